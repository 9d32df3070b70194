"""What `manage.py` does: Django's command line, with the audit around what changes something.

Does not load anything before Django does.
"""

from collections.abc import Sequence

from django.apps import apps
from django.core.management import ManagementUtility
from django.core.management.base import BaseCommand


class CommandLine(ManagementUtility):
    """Django's own, but for the commands that are to be noted."""

    def fetch_command(self, subcommand: str) -> BaseCommand:
        command = super().fetch_command(subcommand)
        if not apps.ready:
            return command
        # It knows models, which only now can be loaded.
        from agentops.management.noting import noted

        return noted(subcommand, command, self.argv[2:])


def main(argv: Sequence[str]) -> None:
    """Run the command that `argv` names, as `python manage.py …` has it."""
    CommandLine(list(argv)).execute()
