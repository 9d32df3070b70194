"""`propose_changes`: ask for other arguments in place of those that wait for a signature."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.commands import propose
from approvals.management.base import SigningCommand, find_user
from runs.requests import read_json_option


class Command(SigningCommand):
    help = (
        "Propose other arguments for an action that waits. They are a new action: policy judges "
        "it, and others must sign it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--arguments", required=True, metavar="JSON|@FILE", help="all of them, as an object"
        )
        parser.add_argument("--reason", required=True, help="why; it stands in the record")

    def act(self, options: dict[str, Any]) -> None:
        user = find_user(options["username"], option="--as")
        question = f"Propose to change exactly this as {user.get_username()}?"
        arguments = read_json_option(options["arguments"], option="--arguments")
        proposed = propose(
            actor=self.actor,
            user=user,
            approval_id=options["approval"],
            arguments=arguments,
            fingerprint=self.agreed_fingerprint(options, question=question),
            reason=options["reason"],
            via="command line",
        )
        shown = self.show_approval(proposed.id)
        self.say(f"Run {shown.run} goes on with the change; others must sign it.")
