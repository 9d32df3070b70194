"""How a worker process is known to have ended.

Why: closing a socket does not recall the bytes, and a worker that lost its lease may only
stand still. So a call whose sender never reported back is sent again only once that
process is known to have ended.

Guarantees: an end is recorded once, by whoever comes first of four: the process itself
(`workers.py`), its supervisor after it has collected it, a neighbour on the same kernel
that finds it gone, or an operator, with name and reason. Then whatever the worker sent
without a known outcome is due at once. A stopped process is not an ended one, and silence
proves nothing.

Does not conclude anything from a machine or container that vanished, and does not watch
processes that a tool function started as its own.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from runs.access import OPERATIONS_RESOLVE, Actor
from runs.errors import InvalidInput, RunsError
from runs.incarnation import this_place, why_gone
from runs.lease import lease_seconds
from runs.models import TEXT_LIMIT, StepAttempt, ToolOperation, Worker
from runs.state import OperationStatus
from runs.wake import make_due
from tools.canonical import check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text

KEPT: Final = timedelta(days=30)
EndedBy = Worker.EndedBy
Standing = Literal["alive", "silent", "ended"]


class UnknownWorker(RunsError):
    def __init__(self, *, name: str) -> None:
        self.name = name
        super().__init__(f"worker: there is no worker {name!r}; list_workers shows them.")


class WorkerSeenAlive(RunsError):
    def __init__(self, *, name: str) -> None:
        self.name = name
        super().__init__(
            f"worker: {name} was seen within the last {lease_seconds():g} seconds, so it seems "
            "to live. Stop it first; or say --even-if-alive if you know better."
        )


@dataclass(frozen=True)
class SaidEnds:
    """What became of an operator's word. `due` are the unknown operations looked up now."""

    ended: list[str]
    already_ended: list[str]
    due: list[str]


def end(name: str, *, by: Worker.EndedBy, evidence: str) -> bool:
    """Record an end; False if there is one already, or no such worker."""
    if not _set_ended(name, by=by, evidence=evidence):
        return False
    _look_up_now([name])
    return True


def end_child(
    *, pid: int, pid_started: int | None, alive_for: timedelta, evidence: str
) -> list[str]:
    """End the worker that was this child of ours and is collected; returns its name, if any.

    `alive_for` is how long ago the child was started. Where the kernel's start time is not
    known, the row must be younger than that: nobody else can have had the id since.
    """
    rows = _at_this_place().filter(pid=pid, pid_started=pid_started)
    if pid_started is None:
        rows = rows.filter(started_at__gt=Now() - alive_for)
    names = list(rows.values_list("name", flat=True))
    return [name for name in names if end(name, by=EndedBy.SUPERVISOR, evidence=evidence)]


def end_gone_neighbours(*, me: str) -> list[str]:
    """End the workers of this kernel that are gone, on the word of `me`; returns their names.

    Only silent ones are looked at: who was seen within a lease lives, whatever /proc shows.
    """
    if not this_place().is_known:
        return []
    neighbours = _at_this_place().filter(_silent()).exclude(name=me)
    ended = []
    for name, pid, started in neighbours.values_list("name", "pid", "pid_started"):
        found = why_gone(pid=pid, started=started)
        if found and end(name, by=EndedBy.SUCCESSOR, evidence=f"{me} found {found}"):
            ended.append(name)
    return ended


def end_workers(
    *,
    actor: Actor,
    names: Collection[str] = (),
    host: str | None = None,
    evidence: str,
    even_if_alive: bool = False,
) -> SaidEnds:
    """Record, on the actor's word, that workers have ended: those named, and all of `host`.

    All of them or none. Raises UnknownWorker, WorkerSeenAlive (one was seen within the last
    lease), InvalidInput or NotPermitted.
    """
    actor.require(OPERATIONS_RESOLVE)
    why = f"{actor.name}: {_reason(evidence)}"
    if not names and host is None:
        raise InvalidInput(field="worker", value="none", fix="Name workers, or give a host.")
    meant = Q(name__in=[_storable(name, field="worker") for name in names])
    if host is not None:
        meant |= Q(host=_storable(host, field="host"), ended_at__isnull=True)
    with transaction.atomic():
        _know_senders(names)
        rows = list(
            Worker.objects.filter(meant)
            .annotate(is_silent=_silent())
            .order_by("name")
            .select_for_update(no_key=True)
        )
        if missing := set(names) - {row.name for row in rows}:
            raise UnknownWorker(name=bound_text(min(missing), 120))
        living = [row for row in rows if row.ended_at is None and not row.is_silent]
        if living and not even_if_alive:
            raise WorkerSeenAlive(name=living[0].name)
        ended = [
            row.name for row in rows if _set_ended(row.name, by=EndedBy.OPERATOR, evidence=why)
        ]
    return SaidEnds(
        ended=ended,
        already_ended=[row.name for row in rows if row.name not in ended],
        due=_look_up_now(ended),
    )


def _know_senders(names: Collection[str]) -> None:
    """Give a row to those that sent something and could not register themselves."""
    unregistered = set(names) - set(
        Worker.objects.filter(name__in=names).values_list("name", flat=True)
    )
    if not unregistered:
        return
    senders = StepAttempt.objects.filter(worker__in=unregistered, step__closed_at__isnull=True)
    long_ago = Now() - timedelta(seconds=2 * lease_seconds())
    Worker.objects.bulk_create(
        [
            Worker(name=name, host="", pid=0, started_at=long_ago, last_seen_at=long_ago)
            for name in sorted(set(senders.values_list("worker", flat=True)))
        ],
        ignore_conflicts=True,
    )


def unknown_from(names: Collection[str]) -> QuerySet[ToolOperation]:
    """Unknown operations of open steps that these workers had in hand."""
    attempts = StepAttempt.objects.filter(worker__in=list(names), step__closed_at__isnull=True)
    return ToolOperation.objects.filter(
        status=OperationStatus.UNKNOWN, step_id__in=attempts.values("step_id")
    )


def standing(worker: Worker) -> Standing:
    """How a worker stands, by this machine's clock: for display."""
    if worker.ended_at is not None:
        return "ended"
    age = timezone.now() - worker.last_seen_at
    return "silent" if age.total_seconds() > lease_seconds() else "alive"


def count_by_standing() -> dict[Standing, int]:
    """How many workers are alive, silent and ended."""
    unended = Worker.objects.filter(ended_at__isnull=True).count()
    silent = Worker.objects.filter(_silent()).count()
    ended = Worker.objects.filter(ended_at__isnull=False).count()
    return {"alive": unended - silent, "silent": silent, "ended": ended}


def forget_old() -> int:
    """Remove workers that ended long ago, but none whose end somebody may still ask for."""
    of_open_steps = StepAttempt.objects.filter(step__closed_at__isnull=True).values("worker")
    old = Worker.objects.filter(ended_at__lt=Now() - KEPT).exclude(name__in=of_open_steps)
    return old.delete()[0]


def _set_ended(name: str, *, by: Worker.EndedBy, evidence: str) -> bool:
    unended = Worker.objects.filter(name=name, ended_at__isnull=True)
    evidence = bound_text(evidence, TEXT_LIMIT)
    return bool(unended.update(ended_at=Now(), ended_by=by, evidence=evidence))


def _look_up_now(names: Collection[str]) -> list[str]:
    """Make what these workers sent, and nobody knows the outcome of, due; returns the ids."""
    # A run that is held is being looked at this very moment.
    waiting = unknown_from(names).filter(run__lease_expires_at__isnull=True)
    found = list(waiting.values_list("id", "run_id"))
    with transaction.atomic():
        for operation_id, run_id in found:
            make_due(run_id, operation_id=operation_id)
    return [operation_id for operation_id, _ in found]


def _at_this_place() -> QuerySet[Worker]:
    place = this_place()
    return Worker.objects.filter(
        ended_at__isnull=True,
        host=place.host,
        boot_id=place.boot_id,
        pid_namespace=place.pid_namespace,
    )


def _silent() -> Q:
    """Not ended, and not seen for a lease."""
    since = Now() - timedelta(seconds=lease_seconds())
    return Q(ended_at__isnull=True, last_seen_at__lt=since)


def _reason(text: str) -> str:
    text = _storable(text, field="evidence").strip()
    if not 0 < len(text) <= TEXT_LIMIT:
        raise InvalidInput(
            field="evidence",
            value=f"{len(text)} characters",
            fix=f"Say in 1 to {TEXT_LIMIT} how you know.",
        )
    return text


def _storable(text: str, *, field: str) -> str:
    try:
        check_json(text, field=field)
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
    return text
