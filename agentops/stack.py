"""Bringing the stack up: servers, database, child processes, in that order.

Guarantees: servers that `DATABASE_URL` or `CELERY_BROKER_URL` name are used as they
are; the others are started below the data directory. What was started is stopped
when the `ExitStack` it was put on is closed, in the opposite order.

Does not watch anything: `supervisor.py` does.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core.management import call_command
from django.db import connections

from agentops.embedded import Stack, start
from agentops.embedded.urls import broker_url, database_url
from agentops.ports import require_free_port
from agentops.processes import LOOPBACK

READY_SECONDS: Final = 30.0


def require_ports(*, host: str = LOOPBACK, flower: bool = True) -> None:
    """Raise PortUnusable, naming the variable to set, before anything is started."""
    require_free_port(settings.PORT, host=host, variable="PORT")
    if flower:
        require_free_port(settings.FLOWER_PORT, host=LOOPBACK, variable="FLOWER_PORT")


def start_servers(ending: ExitStack, *, say: Callable[[str], None]) -> Stack | None:
    """The embedded servers that no address of another server replaces; None if there are none."""
    data_dir = settings.AGENTOPS_DATA_DIR
    postgres = database_url(data_dir) == settings.DATABASE_URL
    broker = broker_url(data_dir) == settings.CELERY_BROKER_URL
    if not postgres and not broker:
        return None
    names = [name for name, ours in (("PostgreSQL", postgres), ("Valkey", broker)) if ours]
    here = data_dir.relative_to(Path.cwd()) if data_dir.is_relative_to(Path.cwd()) else data_dir
    say(f"starting {' and '.join(names)} in {here}")
    stack = start(data_dir, postgres=postgres, broker=broker)
    ending.callback(stack.stop)
    return stack


def migrate(*, say: Callable[[str], None]) -> None:
    """Bring the database up to date."""
    say("bringing the database up to date")
    call_command("migrate", interactive=False, verbosity=0)
    # The child processes open their own; these would only hold a seat.
    connections.close_all()


def child_environment(*, flower_login: str) -> dict[str, str]:
    """What the child processes need besides what they inherit."""
    paths = [str(settings.BASE_DIR), os.environ.get("PYTHONPATH", "")]
    return {
        # All of them have to agree on the key, also when it was only made up here.
        "AGENTOPS_SECRET_KEY": settings.SECRET_KEY,
        "AGENTOPS_DATA_DIR": str(settings.AGENTOPS_DATA_DIR),
        # Their lines pass through here, and are read by whoever reads ours.
        "AGENTOPS_LOG_FORMAT": settings.AGENTOPS_LOG_FORMAT,
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "FLOWER_BASIC_AUTH": flower_login,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def await_port(port: int, *, host: str = LOOPBACK, stop: Callable[[], bool] = bool) -> bool:
    """Wait until something listens, so that an address that is shown can be opened."""
    target = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and not stop():
        try:
            socket.create_connection((target, port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False
