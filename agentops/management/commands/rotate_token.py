"""`rotate_token`: another secret for the same token."""

from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from agentops.tokens import (
    GRACE,
    LONGEST_DAYS,
    LONGEST_GRACE,
    AlreadyRotated,
    InvalidPeriod,
    TokenEnded,
    UnknownToken,
    find_token,
    rotate_token,
)
from runs.management.base import KernelCommand

MINUTES: Final = int(GRACE.total_seconds() // 60)
MOST_MINUTES: Final = int(LONGEST_GRACE.total_seconds() // 60)


class Command(KernelCommand):
    help = (
        "Give a token a new secret and print it, once. Its scopes, what it started and its "
        "idempotency keys stay; the present secret works on for a while."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("token", help="the part of it that list_tokens shows")
        parser.add_argument(
            "--grace-minutes",
            type=int,
            default=MINUTES,
            help=f"how long the present secret works on (default {MINUTES}); 0: it leaked",
        )
        parser.add_argument("--days", type=int, help="the token's new end; as it is if left out")

    def act(self, options: dict[str, Any]) -> None:
        minutes, days = options["grace_minutes"], options["days"]
        if not 0 <= minutes <= MOST_MINUTES:
            raise CommandError(
                f"--grace-minutes: {minutes} is not possible; give 0 to {MOST_MINUTES}."
            )
        if days is not None and not 1 <= days <= LONGEST_DAYS:
            raise CommandError(f"--days: {days} is not possible; give a number of days from 1.")
        try:
            found = find_token(options["token"])
            issued = rotate_token(
                token_id=found.pk,
                grace=timedelta(minutes=minutes),
                expires_at=timezone.now() + timedelta(days=days) if days else None,
                prefix=found.prefix,
            )
        except (UnknownToken, TokenEnded, AlreadyRotated, InvalidPeriod) as error:
            raise CommandError(str(error)) from error
        row = issued.row
        until = row.previous_until
        if self.as_json:
            self.show_json(
                {
                    "token": issued.secret,
                    "id": row.pk,
                    "name": row.name,
                    "prefix": row.prefix,
                    "user": found.user.get_username(),
                    "former_until": until.isoformat() if until else None,
                    "expires_at": row.expires_at.isoformat() if row.expires_at else None,
                }
            )
            return
        self.say(f"Token {row.name!r} of {found.user.get_username()} has a new secret.")
        if until is not None:
            self.say(f"The former one works until {until:%Y-%m-%d %H:%M:%S} UTC.")
        else:
            self.say("The former one works no longer.")
        self.say("It is shown this once; send it as the header")
        self.say(f"Authorization: Token {issued.secret}")
