"""Run one command while the servers that the settings ask for are running.

    python -m agentops.embedded python manage.py shell

Guarantees that the command finds them ready, and ends with the command's exit status.
Servers whose addresses are given in the environment are left alone.
"""

import subprocess
import sys

from agentops import settings
from agentops.embedded import EmbeddedError, running
from agentops.embedded.urls import broker_url, database_url


def main(command: list[str]) -> int:
    if not command:
        sys.stderr.write("usage: python -m agentops.embedded COMMAND [ARGUMENT]...\n")
        return 2
    data_dir = settings.AGENTOPS_DATA_DIR
    postgres = database_url(data_dir) == settings.DATABASE_URL
    broker = broker_url(data_dir) == settings.CELERY_BROKER_URL
    try:
        with running(data_dir, postgres=postgres, broker=broker):
            return subprocess.run(command, check=False).returncode
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
