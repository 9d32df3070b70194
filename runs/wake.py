"""Telling a worker that a run is due: a hint, never the truth, and a turn (`turns.py`).

Guarantees: a hint leaves only after the commit that made the run due, and one
that cannot leave breaks nothing, because the sweep finds the row.

Does not say that anybody heard it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID, uuid4

import celery
from django.db import transaction
from django.db.models.functions import Now
from kombu import Queue
from kombu.exceptions import OperationalError

from runs import events
from runs.models import AgentRun, ToolOperation
from runs.pinning import find_lane, lane
from runs.state import OperationStatus

# Older than this, the sweep has told somebody again.
HINT_SECONDS: Final = 60

# Beat's sweeps have 0, the broker's highest: however many turns are in the queue, they go first.
HINT_PRIORITY: Final = 6


def hint_after_commit(run_id: UUID, *, operation_id: str | None = None) -> None:
    """Publish the hint once the current transaction has committed."""
    transaction.on_commit(lambda: hint(run_id, operation_id=operation_id), robust=True)


def make_due(run_id: UUID, *, operation_id: str | None = None, hints: bool = True) -> None:
    """Have a worker look at a run that is not final now, whatever date it has, and hint at it.

    With `operation_id` it looks at that unknown operation, and its siblings keep their dates.
    """
    AgentRun.objects.filter(id=run_id, finished_at__isnull=True).update(
        wake_at=Now(), sweep_at=Now()
    )
    if operation_id is not None:
        ToolOperation.objects.filter(id=operation_id, status=OperationStatus.UNKNOWN).update(
            next_reconcile_at=Now()
        )
    if hints:
        hint_after_commit(run_id, operation_id=operation_id)


def make_prepared_due(*, tool: str = "", provider: str = "") -> int:
    """Have every run looked at now whose next call, of this tool or provider, is yet to be sent,
    perhaps for another time.

    For whoever lets sending go on. Returns how many; the sweep tells the workers.
    """
    unsent = (OperationStatus.PREPARED, OperationStatus.UNKNOWN)
    parked = ToolOperation.objects.filter(status__in=unsent)
    if tool:
        parked = parked.filter(tool=tool)
    if provider:
        parked = parked.filter(provider=provider)
    runs = AgentRun.objects.filter(id__in=parked.values("run_id"), finished_at__isnull=True)
    # Nobody is waited for while several are locked: who is locked is being moved already.
    free = runs.order_by("id").select_for_update(no_key=True, skip_locked=True)
    with transaction.atomic():
        due = AgentRun.objects.filter(id__in=list(free.values_list("id", flat=True)))
        return due.update(wake_at=Now(), sweep_at=Now())


def hint(run_id: UUID, *, operation_id: str | None = None) -> bool:
    """Publish one hint; False (and an event) when the broker cannot be reached.

    With `operation_id` the message is named after the reconciliation it asks for.
    """
    return _publish(*_name_hint(run_id, operation_id), queue=find_lane(run_id))


@dataclass(frozen=True)
class Hint:
    """Whom to tell of: `lane` is the version whose workers alone are to hear of it, if any."""

    run_id: UUID
    lane: str | None = None
    operation_id: str | None = None


def hint_all(due: Sequence[Hint]) -> int:
    """Publish a hint for each run, with its unknown operation if it has one; returns how many.

    Over one channel and without what Celery does for each call by itself, which costs more than
    the message. Where the broker is away the rest would only wait for it too: it is left out.
    """
    app = celery.current_app
    told = 0
    try:
        with app.producer_pool.acquire(block=True) as producer:
            for one in due:
                task, argument = _name_hint(one.run_id, one.operation_id)
                message = app.amqp.create_task_message(
                    str(uuid4()), task, [argument], {}, expires=HINT_SECONDS, ignore_result=True
                )
                app.amqp.send_task_message(
                    producer,
                    task,
                    message,
                    queue=lane(one.lane) if one.lane is not None else None,
                    retry=False,
                    priority=HINT_PRIORITY,
                )
                told += 1
    except (OperationalError, OSError) as error:
        events.emit(events.Name.HINT_LOST, task="runs.advance_run", error=type(error).__name__)
    return told


def hint_watch(operation_id: str) -> bool:
    """Publish that a closed operation is due to be looked up; False as above."""
    return _publish("runs.watch_operation", operation_id)


def _name_hint(run_id: UUID, operation_id: str | None) -> tuple[str, str]:
    if operation_id is not None:
        return "runs.reconcile_operation", operation_id
    return "runs.advance_run", str(run_id)


def _publish(task: str, argument: str, *, queue: Queue | None = None) -> bool:
    try:
        celery.current_app.send_task(
            task,
            args=[argument],
            # The stubs know of names alone.
            queue=cast("str | None", queue),
            retry=False,
            expires=HINT_SECONDS,
            priority=HINT_PRIORITY,
            ignore_result=True,
        )
    except (OperationalError, OSError) as error:
        events.emit(events.Name.HINT_LOST, task=task, error=type(error).__name__)
        return False
    return True
