"""`revoke_token`: a token that is refused from now on."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from agentops.tokens import UnknownToken, find_token, revoke_token
from runs.management.base import KernelCommand


class Command(KernelCommand):
    help = "End a token now, with every secret it has. It cannot be taken back."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("token", help="the part of it that list_tokens shows")

    def act(self, options: dict[str, Any]) -> None:
        try:
            found = find_token(options["token"])
        except UnknownToken as error:
            raise CommandError(str(error)) from error
        ended = revoke_token(token_id=found.pk)
        if self.as_json:
            self.show_json(
                {"id": found.pk, "name": found.name, "prefix": found.prefix, "ended_now": ended}
            )
        elif ended:
            self.say(f"Token {found} can no longer be used.")
        else:
            self.say(f"Token {found} had ended before.")
