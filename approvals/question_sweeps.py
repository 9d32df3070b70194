"""Questions that people are to be reminded of, or that go to a second group.

Guarantees: each is told of once, in the transaction that empties its date; one whose time is
over is neither. Dates are judged by the database's clock and again under the lock of the run, so
somebody who answers in the same moment is not asked again; a run that somebody holds is left to
the next sweep. The work is bounded by what is due.

Does not end a question: the run that waits for it does.
"""

from typing import Any, Final

from django.db.models import Q
from django.db.models.functions import Now

from runs.models import Notice, Question

_IN_TIME: Final = Q(answer_by=None) | Q(answer_by__gt=Now())


def remind(batch: int) -> int:
    """Call inside a transaction. Returns how many were recalled."""
    due = _lock_due("remind_at", batch)
    return _change(due, Notice.Kind.QUESTION_REMINDER, remind_at=None)


def escalate(batch: int) -> int:
    """Call inside a transaction. Returns how many went to a second group."""
    due = _lock_due("escalate_at", batch)
    return _change(due, Notice.Kind.QUESTION_ESCALATED, escalate_at=None, escalated_at=Now())


def _lock_due(date: str, batch: int) -> list[Question]:
    """Open questions whose `date` has come, their runs locked as everybody locks them."""
    due = Question.objects.filter(_IN_TIME, status=Question.Status.OPEN, **{f"{date}__lte": Now()})
    found = (
        due.select_for_update(no_key=True, skip_locked=True, of=("run",))
        .select_related("run")
        .only("id", "run__id")
        .order_by(date)[:batch]
    )
    ids = [question.id for question in found]
    # Read again: what was found may have been answered before its run was locked.
    return list(due.filter(id__in=ids).only("id", "run_id")) if ids else []


def _change(due: list[Question], kind: Notice.Kind, **columns: Any) -> int:
    if due:
        Question.objects.filter(id__in=[question.id for question in due]).update(**columns)
        Notice.objects.bulk_create(
            [
                Notice(
                    event_id=f"{kind}:{question.id}",
                    kind=kind,
                    run_id=question.run_id,
                    question=question,
                    status=Question.Status.OPEN,
                )
                for question in due
            ],
            ignore_conflicts=True,
        )
    return len(due)
