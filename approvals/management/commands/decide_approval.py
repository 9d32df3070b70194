"""`decide_approval`: sign or refuse one exact action."""

from typing import Any, get_args

from django.core.management.base import CommandParser

from approvals.commands import Word, decide
from approvals.management.base import SigningCommand, find_user


class Command(SigningCommand):
    help = (
        "Approve or deny an action as the user that --as names. Without --fingerprint the action "
        "is shown, and nothing is signed before you say yes."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verdict", metavar="approve|deny", help=" or ".join(get_args(Word)))
        parser.add_argument("--reason", default="", help="why; required to deny")
        parser.add_argument(
            "--event-id", default="", help="names the word: heard once however often it is said"
        )

    def act(self, options: dict[str, Any]) -> None:
        user = find_user(options["username"], option="--as")
        verdict = options["verdict"]
        question = f"{str(verdict).capitalize()} exactly this as {user.get_username()}?"
        decided = decide(
            actor=self.actor,
            user=user,
            approval_id=options["approval"],
            verdict=verdict,
            fingerprint=self.agreed_fingerprint(options, question=question),
            reason=options["reason"],
            event_id=options["event_id"],
            via="command line",
        )
        self.show_approval(decided.id)
