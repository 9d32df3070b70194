"""What the agent of a run, which runs elsewhere, has asked for and was not taken up yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from runs.models import GatewayCall


@dataclass
class Called:
    """Requests in the order in which they came.

    `ends_run`: the run was started for one call, and has nothing to do after it. `heard_at` is
    when its agent asked for something last; None for never.
    """

    waiting: list[GatewayCall]
    ends_run: bool
    heard_at: datetime | None

    def take(self, most: int) -> Sequence[GatewayCall]:
        """The requests that are decided about next, together: calls, or the one end."""
        kind = self.waiting[0].kind
        size = 1 if kind == GatewayCall.Kind.FINISH else most
        taken: list[GatewayCall] = []
        while self.waiting and self.waiting[0].kind == kind and len(taken) < size:
            taken.append(self.waiting.pop(0))
        return taken


def find_called(run_id: UUID) -> Called:
    """What waits, and when the run's agent was heard of last: one read of two indexes."""
    newest = GatewayCall.objects.filter(run_id=run_id).order_by("-id")[:1]
    rows = list(
        GatewayCall.objects.filter(
            Q(run_id=run_id, taken_at__isnull=True) | Q(id__in=newest.values("id"))
        ).order_by("id")
    )
    return Called(
        waiting=[row for row in rows if row.taken_at is None],
        ends_run=any(row.ends_run for row in rows),
        heard_at=max((row.received_at for row in rows), default=None),
    )
