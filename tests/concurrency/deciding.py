"""What one of many people says at once. Imported by forked processes, so it needs no fixtures."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User

from approvals.commands import Word, decide
from approvals.errors import ApprovalError
from runs.access import Actor, operator


@dataclass(frozen=True)
class Said:
    """One click: by whom, what, and as which event."""

    username: str
    verdict: Word = "approve"
    event_id: str = ""


def say_next(approval_id: UUID, fingerprint: str, clicks: list[Said]) -> str:
    """Take one of the clicks; what became of it in one word."""
    click = clicks.pop()
    user = User.objects.get(username=click.username)
    try:
        approval = decide(
            actor=Actor(click.username, operator().scopes, user_id=user.pk),
            user=user,
            approval_id=approval_id,
            verdict=click.verdict,
            fingerprint=fingerprint,
            reason=f"{click.username} says so",
            event_id=click.event_id,
            via="api",
        )
    except ApprovalError as error:
        return type(error).__name__
    return str(approval.status)
