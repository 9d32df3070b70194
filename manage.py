#!/usr/bin/env python
"""The command line of the project: `python manage.py help` lists what it can do."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentops.settings")
    from agentops.management.commandline import main as execute

    execute(sys.argv)


if __name__ == "__main__":
    main()
