"""What the commands of this app share: who signs, and what exactly.

Guarantees: whoever signs has named the fingerprint, or has seen the whole action and said yes
to it on a terminal; a program that names none is refused, for it has seen nothing.

Does not check that the person at the keyboard is the one who is named: a shell on the server
may speak for everybody. The record says that the word came by the command line.
"""

import sys
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from approvals.inbox import get_approval
from approvals.presenting import present_approval
from approvals.shapes import Approval
from approvals.tables import action_table, say_status
from runs.errors import InvalidInput
from runs.management.base import KernelCommand, as_json


class SigningCommand(KernelCommand):
    """A command by which a person says something about an approval."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("approval", metavar="ID", help="as list_approvals shows it")
        parser.add_argument(
            "--as", required=True, dest="username", metavar="USERNAME", help="who says it"
        )
        parser.add_argument(
            "--fingerprint",
            help="of the action, as list_approvals --json shows it; without one it is shown here, "
            "and asked for on the terminal",
        )

    def agreed_fingerprint(self, options: dict[str, Any], *, question: str) -> str:
        """The fingerprint that was given, or that of the action which was shown and agreed to.

        Raises InvalidInput where nobody can be asked, CommandError where the answer is no.
        """
        given: str | None = options["fingerprint"]
        if given is not None:
            return given
        if self.as_json or not sys.stdin.isatty():
            raise InvalidInput(
                field="--fingerprint",
                value="none",
                fix="Name the action that you have seen, as list_approvals --json shows it; "
                "without a terminal nobody can be asked.",
            )
        approval = present_approval(get_approval(options["approval"]))
        self.show_table(action_table(approval))
        self.stdout.write(f"{question} [yes/no] ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CommandError("Nothing was changed.")
        return approval.fingerprint

    def show_approval(self, approval_id: Any) -> Approval:
        """Print the approval as it stands now; returns it."""
        approval = present_approval(get_approval(approval_id))
        if self.as_json:
            self.show_json(as_json(approval))
        else:
            self.say(f"Approval {approval.id} is {say_status(approval)}.")
        return approval


def find_user(username: str, *, option: str) -> User:
    """The user of this name. Raises InvalidInput."""
    # PostgreSQL takes no NUL, so no name has one.
    known = None if "\0" in username else User.objects.filter(username=username).first()
    if known is None:
        raise InvalidInput(
            field=option, value=ascii(username[:80]), fix="Name a user, as the admin lists them."
        )
    return known
