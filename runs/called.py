"""What the agent of a run, which runs elsewhere, has asked for and was not taken up yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from runs.change import NEARLY_OVER
from runs.models import GatewayCall, Notice, ToolOperation
from runs.state import OperationStatus


@dataclass
class Called:
    """Requests in the order in which they came.

    `ends_run`: the run was started for one call, and has nothing to do after it. `heard_at` is
    when its agent asked for something last; None for never.
    """

    waiting: list[GatewayCall]
    ends_run: bool
    heard_at: datetime | None
    # By operation: until when whoever asked waits for what was taken up here.
    answer_by: dict[str, datetime] = field(default_factory=dict)
    # The operation of the step that was closed last, where that was seen.
    last: ToolOperation | None = None

    def take(self, most: int) -> Sequence[GatewayCall]:
        """The requests that are decided about next, together: calls, or the one end."""
        kind = self.waiting[0].kind
        size = 1 if kind == GatewayCall.Kind.FINISH else most
        taken: list[GatewayCall] = []
        while self.waiting and self.waiting[0].kind == kind and len(taken) < size:
            taken.append(self.waiting.pop(0))
        self.answer_by |= {
            one.operation_id: one.answer_by for one in taken if one.operation_id and one.answer_by
        }
        return taken


def find_called(run_id: UUID) -> Called:
    """What waits, and when the run's agent was heard of last: one read of two indexes."""
    calls = GatewayCall.objects.filter(run_id=run_id)
    # A run that ends with its call was started with it.
    first, newest = calls.order_by("id")[:1], calls.order_by("-id")[:1]
    rows = list(
        GatewayCall.objects.filter(
            Q(run_id=run_id, taken_at__isnull=True)
            | Q(id__in=first.values("id"))
            | Q(id__in=newest.values("id"))
        ).order_by("id")
    )
    return Called(
        waiting=[row for row in rows if row.taken_at is None],
        ends_run=any(row.ends_run for row in rows),
        heard_at=max((row.received_at for row in rows), default=None),
    )


def is_called(run_id: UUID) -> bool:
    """Whether anything waits: for whoever has let the run go, since what was accepted while they
    held it could be taken up by nobody else."""
    return GatewayCall.objects.filter(run_id=run_id, taken_at__isnull=True).exists()


def is_one_call(run_id: UUID) -> bool:
    """Whether the run was started for one call, and ends with what that comes to."""
    calls = GatewayCall.objects.filter(run_id=run_id).order_by("id")
    return bool(calls.values_list("ends_run", flat=True).first())


def drop_called(run_id: UUID) -> None:
    """What the run was asked for and has not taken up is never done."""
    _drop(GatewayCall.objects.filter(run_id=run_id))


def drop_if_ended(call: GatewayCall) -> None:
    """Have a call that its run did not take up before it ended say so; `call` then knows when it
    was taken up, or that it never will be."""
    _drop(GatewayCall.objects.filter(pk=call.pk, run__finished_at__isnull=False))
    call.refresh_from_db(fields=["taken_at", "arguments", "run"])


def _drop(calls: QuerySet[GatewayCall]) -> None:
    """Whoever does not wait for them any more is told, by the same commit."""
    waiting = calls.filter(taken_at__isnull=True)
    if not waiting.exists():
        return
    with transaction.atomic():
        rows = list(waiting.select_for_update(of=("self",)).order_by("id"))
        GatewayCall.objects.filter(pk__in=[row.pk for row in rows]).update(
            taken_at=Now(), arguments=None
        )
        late = GatewayCall.objects.filter(
            pk__in=[row.pk for row in rows], answer_by__lte=Now() + NEARLY_OVER
        )
        Notice.objects.bulk_create(
            [
                Notice(
                    event_id=f"{Notice.Kind.OPERATION_SETTLED}:{row.operation_id}",
                    kind=Notice.Kind.OPERATION_SETTLED,
                    run_id=row.run_id,
                    operation_id=row.operation_id,
                    status=OperationStatus.CANCELLED,
                )
                for row in late.filter(kind=GatewayCall.Kind.CALL)
                if row.run_id is not None and row.operation_id is not None
            ],
            ignore_conflicts=True,
        )
