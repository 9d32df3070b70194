"""`list_tokens`: who may use the API, with what, and until when."""

from datetime import datetime
from typing import Any, Literal

from django.core.management.base import CommandParser
from django.utils import timezone
from rich.table import Table
from rich.text import Text

from agentops.models import ApiToken
from agentops.tokens import VALID
from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit
from runs.shapes import Shape
from runs.tables import printable, show_time


class TokenShape(Shape):
    """One token. `former_until`: until then the secret before the present one works too."""

    id: int
    name: str
    prefix: str
    user: str
    scopes: list[str]
    standing: Literal["valid", "ended"]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    rotated_at: datetime | None
    former_until: datetime | None


class Command(KernelCommand):
    help = "List API tokens, newest first; never a secret."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--valid", action="store_true", help="only those that have not ended")
        parser.add_argument("--user", help="only those of this user")
        add_limit(parser, default=50, of="tokens")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        limit = checked_limit(options["limit"])
        rows = ApiToken.objects.select_related("user").order_by("-id")
        if options["valid"]:
            rows = rows.filter(VALID)
        if (user := options["user"]) is not None:
            rows = rows.none() if "\0" in user else rows.filter(user__username=user)
        found = list(rows[: limit + 1])
        tokens = [_present(row) for row in found[:limit]]
        self.show(tokens, _table(tokens))
        if not tokens:
            self.say("No token; `manage.py create_token` makes one.")
        if len(found) > limit:
            self.say(f"There are more; these are the newest {limit}.")


def _present(row: ApiToken) -> TokenShape:
    now = timezone.now()
    until = row.previous_until
    return TokenShape(
        id=row.pk,
        name=row.name,
        prefix=row.prefix,
        user=row.user.get_username(),
        scopes=row.scopes,
        standing="ended" if row.expires_at is not None and row.expires_at <= now else "valid",
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        rotated_at=row.rotated_at,
        former_until=until if until is not None and until > now else None,
    )


def _table(tokens: list[TokenShape]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("token", "name", "of", "standing", "ends", "last used", "scopes"):
        table.add_column(title, overflow="fold")
    for token in tokens:
        table.add_row(
            Text(token.prefix),
            Text(printable(token.name)),
            Text(printable(token.user)),
            Text(token.standing, style="green" if token.standing == "valid" else "dim"),
            Text(show_time(token.expires_at) if token.expires_at else "when revoked"),
            Text(show_time(token.last_used_at) if token.last_used_at else "never"),
            Text(printable(", ".join(token.scopes))),
        )
    return table
