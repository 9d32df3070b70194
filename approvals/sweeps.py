"""The sweep over what people are asked: what runs out, is recalled, or goes to a second group.

Guarantees: an approval whose time is over becomes expired, which is neither an approval nor a
person's refusal, and its run is due; a reminder and an escalation are told of once. Dates are
judged by the database's clock and again under the lock of the run, so a person who decides in
the same moment is never overruled; a run that somebody holds is left to the next sweep. Two
sweeps at one time do no harm. The work is bounded by what is due.

Does not move runs or operations, and does not tell anybody: notices are delivered elsewhere.
Does not end a question whose time is over: the run that waits for it does.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from approvals import question_sweeps
from runs.models import AgentRun, Approval, Notice, Sweep
from runs.wake import hint

BATCH: Final = 500
SWEEP: Final = "approvals"
RAN_OUT: Final = "nobody decided in time"
_LOCK: Final = 7_301_003


@dataclass(frozen=True)
class Swept:
    expired: int = 0
    reminded: int = 0
    escalated: int = 0
    questions_reminded: int = 0
    questions_escalated: int = 0


def run_once() -> Swept:
    """One sweep. Returns how many approvals and questions it moved, reminded of and escalated."""
    with transaction.atomic():
        if not _try_lock():
            return Swept()
        expired = _expire()
        swept = Swept(
            expired=len(expired),
            reminded=_remind(),
            escalated=_escalate(),
            questions_reminded=question_sweeps.remind(BATCH),
            questions_escalated=question_sweeps.escalate(BATCH),
        )
        Sweep.objects.update_or_create(
            name=SWEEP,
            defaults={
                "last_run_at": Now(),
                "found": sum(astuple(swept)),
            },
        )
    for run_id in expired:
        if not hint(run_id):
            # The broker is away; the sweep over due runs finds the rest.
            break
    return swept


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _expire() -> list[UUID]:
    """The runs of what ran out."""
    due = _lock_due("approve_by")
    _change(
        due,
        Notice.Kind.APPROVAL_DECIDED,
        status=Approval.Status.EXPIRED,
        decided_at=Now(),
        reason=RAN_OUT,
    )
    runs = [approval.run_id for approval in due]
    AgentRun.objects.filter(id__in=runs, finished_at__isnull=True).update(
        wake_at=Now(), sweep_at=Now()
    )
    return runs


def _remind() -> int:
    due = _lock_due("remind_at")
    _change(due, Notice.Kind.APPROVAL_REMINDER, remind_at=None)
    return len(due)


def _escalate() -> int:
    due = _lock_due("escalate_at")
    _change(due, Notice.Kind.APPROVAL_ESCALATED, escalate_at=None, escalated_at=Now())
    return len(due)


def _lock_due(date: str) -> list[Approval]:
    """Pending approvals whose `date` has come, their runs locked as everybody locks them."""
    due = Approval.objects.filter(status=Approval.Status.PENDING, **{f"{date}__lte": Now()})
    if date != "approve_by":
        # One that ran out, but whose run is held, is neither reminded of nor escalated.
        due = due.filter(approve_by__gt=Now())
    found = (
        due.select_for_update(no_key=True, skip_locked=True, of=("run",))
        .select_related("run")
        .order_by(date)[:BATCH]
    )
    ids = [approval.id for approval in found]
    # Read again: what was found may have been decided before its run was locked.
    return list(due.filter(id__in=ids)) if ids else []


def _change(due: Sequence[Approval], kind: Notice.Kind, **columns: Any) -> None:
    if not due:
        return
    Approval.objects.filter(id__in=[approval.id for approval in due]).update(**columns)
    Notice.objects.bulk_create(
        [
            Notice(
                event_id=f"{kind}:{approval.id}",
                kind=kind,
                run_id=approval.run_id,
                operation_id=approval.operation_id,
                approval_id=approval.id,
                status=columns.get("status", approval.status),
            )
            for approval in due
        ],
        ignore_conflicts=True,
    )
