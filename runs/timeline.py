"""The incident timeline: what happened to one run, and why, oldest first.

Guarantees: it is read from the journal and the observations, both append-only, so
it shows what was recorded at the time; the edges of a run and of its operations
come in the order in which they were committed, and what was learned stands before
the edges it led to. A page costs the same number of queries whatever it holds.

Does not read traces or logs, and does not show the values of sensitive arguments.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.db.models import Q
from pydantic import Field

from runs.models import ModelDecision, StepAttempt, ToolObservation, ToolOperation, Transition
from runs.paging import Cursor, Page
from runs.sensitive import names_of_operation, without_secrets
from runs.shapes import TimelineEntry
from runs.state import OperationEvent, RunEvent
from tools.redaction import redact

PAGE_SIZE: Final = 500
# Beyond every version and id.
FAR: Final = 2**62

_Row: TypeAlias = Transition | ToolObservation


class _Place(Cursor):
    """Between two entries: how many come before it, and the last of each kind among them."""

    seq: int = Field(default=0, ge=0, le=FAR)
    version: int = Field(default=0, ge=0, le=FAR)
    transition: int = Field(default=0, ge=0, le=FAR)
    observation: int = Field(default=0, ge=0, le=FAR)


def read_timeline(
    *, run_id: UUID, cursor: str | None = None, size: int = PAGE_SIZE
) -> Page[TimelineEntry]:
    """One page of the run's timeline. Raises InvalidInput for a foreign cursor."""
    place = _Place.decode(cursor) if cursor is not None else _Place()
    if place.back:
        return _read_back(run_id, place, size)
    rows = _rows_after(run_id, place, size + 1)
    shown = rows[:size]
    return Page(
        items=_describe(run_id, shown, first=place.seq + 1),
        next=_place_after(shown, place).encode() if len(rows) > size else None,
        previous=place.model_copy(update={"back": True}).encode() if place.seq else None,
    )


def read_newest(*, run_id: UUID, size: int) -> Page[TimelineEntry]:
    """The last page of the run's timeline, oldest first like every other."""
    edges = Transition.objects.filter(run_id=run_id).count()
    seen = ToolObservation.objects.filter(operation__run_id=run_id).count()
    end = _Place(back=True, seq=edges + seen, version=FAR, transition=FAR, observation=FAR)
    page = _read_back(run_id, end, size)
    return Page(items=page.items, next=None, previous=page.previous)


def _read_back(run_id: UUID, place: _Place, size: int) -> Page[TimelineEntry]:
    rows = _rows_before(run_id, place, size + 1)
    shown = rows[-size:]
    first = _place_before(shown, place)
    return Page(
        items=_describe(run_id, shown, first=first.seq + 1),
        next=place.model_copy(update={"back": False}).encode(),
        previous=first.encode() if len(rows) > size else None,
    )


# -- Rows ----------------------------------------------------------------------


def _rows_after(run_id: UUID, place: _Place, limit: int) -> list[_Row]:
    # The first condition says nothing new; it lets the index find the place.
    later = Q(version__gte=place.version) & (
        Q(version__gt=place.version) | Q(id__gt=place.transition)
    )
    edges = Transition.objects.filter(later, run_id=run_id).order_by("version", "id")
    seen = ToolObservation.objects.filter(
        operation__run_id=run_id, id__gt=place.observation
    ).order_by("id")
    return list(islice(_merge(edges[:limit], seen[:limit]), limit))


def _rows_before(run_id: UUID, place: _Place, limit: int) -> list[_Row]:
    earlier = Q(version__lte=place.version) & (
        Q(version__lt=place.version) | Q(id__lte=place.transition)
    )
    edges = Transition.objects.filter(earlier, run_id=run_id).order_by("-version", "-id")
    seen = ToolObservation.objects.filter(
        operation__run_id=run_id, id__lte=place.observation
    ).order_by("-id")
    return list(_merge(edges[:limit][::-1], seen[:limit][::-1]))[-limit:]


def _merge(edges: Iterable[Transition], seen: Iterable[ToolObservation]) -> Iterator[_Row]:
    """Both in their own order, by time; at one time what was learned comes first."""
    waiting = deque(seen)
    for edge in edges:
        while waiting and waiting[0].observed_at <= edge.at:
            yield waiting.popleft()
        yield edge
    yield from waiting


def _place_after(rows: Sequence[_Row], place: _Place) -> _Place:
    """The place behind `rows`, which begin at `place`."""
    moved: dict[str, int] = {"seq": place.seq + len(rows)}
    for row in rows:
        if isinstance(row, Transition):
            moved |= {"version": row.version, "transition": row.pk}
        else:
            moved["observation"] = row.pk
    return place.model_copy(update=moved)


def _place_before(rows: Sequence[_Row], place: _Place) -> _Place:
    """The place in front of `rows`, which end at `place`; reads back from there."""
    moved: dict[str, int] = {"seq": max(0, place.seq - len(rows))}
    for row in reversed(rows):
        if isinstance(row, Transition):
            moved |= {"version": row.version, "transition": row.pk - 1}
        else:
            moved["observation"] = row.pk - 1
    return place.model_copy(update=moved)


# -- Entries -------------------------------------------------------------------


@dataclass(frozen=True)
class _Around:
    """What the rows of a page refer to, each kind read at once."""

    operations: Mapping[str, ToolOperation]
    decisions: Mapping[int, ModelDecision]
    attempts: Mapping[tuple[int, int], StepAttempt]


def _describe(run_id: UUID, rows: Sequence[_Row], *, first: int) -> list[TimelineEntry]:
    around = _look_around(run_id, rows)
    return [
        _of_transition(row, around, seq)
        if isinstance(row, Transition)
        else _of_observation(row, around, seq)
        for seq, row in enumerate(rows, start=first)
    ]


def _look_around(run_id: UUID, rows: Sequence[_Row]) -> _Around:
    named = {row.operation_id for row in rows if row.operation_id is not None}
    operations = ToolOperation.objects.defer("result").in_bulk(list(named))
    decided = [
        row.step_number
        for row in rows
        if isinstance(row, Transition) and row.event == RunEvent.RECORD_DECISION
    ]
    decisions = ModelDecision.objects.filter(
        step__run_id=run_id, step__number__in=decided
    ).select_related("step")
    tokens = {row.fence_token for row in rows if isinstance(row, ToolObservation)}
    steps = {operation.step_number for operation in operations.values()}
    attempts = StepAttempt.objects.filter(
        step__run_id=run_id, step__number__in=steps, fence_token__in=tokens
    ).select_related("step")
    return _Around(
        operations=operations,
        decisions={one.step.number: one for one in decisions.defer("body")},
        attempts={(one.step.number, one.fence_token): one for one in attempts},
    )


def _of_transition(row: Transition, around: _Around, seq: int) -> TimelineEntry:
    operation = around.operations[row.operation_id] if row.operation_id else None
    committed = operation is not None and row.event == OperationEvent.COMMIT
    return TimelineEntry(
        at=row.at,
        seq=seq,
        kind=f"{'run' if operation is None else 'operation'}.{row.event.lower()}",
        actor=row.actor,
        run_id=row.run_id,
        step_number=row.step_number,
        attempt=row.attempt or None,
        operation_id=row.operation_id,
        fence_token=row.fence_token,
        from_state=row.from_state or None,
        to_state=row.to_state,
        reason=_scrub_edge(row, around),
        prompt_version=None,
        llm_version=None,
        tool_version=(operation.tool_version or None) if operation else None,
        policy_version=(operation.policy_version or None) if operation else None,
        approval_id=None,
        external_ref=(operation.external_ref or None) if operation and committed else None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence=_evidence_of_edge(row, operation, around),
    )


def _of_observation(row: ToolObservation, around: _Around, seq: int) -> TimelineEntry:
    operation = around.operations[row.operation_id]
    attempt = around.attempts.get((operation.step_number, row.fence_token))
    looked_up = row.source == ToolObservation.Source.LOOK_UP
    said = without_secrets(row.detail, operation)
    return TimelineEntry(
        at=row.observed_at,
        seq=seq,
        kind=f"observation.{row.source}",
        actor=attempt.worker if attempt else row.source,
        run_id=row.run_id,
        step_number=operation.step_number,
        attempt=attempt.number if attempt else None,
        operation_id=row.operation_id,
        fence_token=row.fence_token,
        from_state=None,
        to_state=None,
        reason=said or ToolObservation.Verdict(row.verdict).label,
        prompt_version=None,
        llm_version=None,
        tool_version=operation.tool_version or None,
        policy_version=operation.policy_version or None,
        approval_id=None,
        external_ref=row.external_ref or None,
        timeout_stage=row.stage or None,
        reconciliation_result=row.verdict if looked_up else None,
        evidence={
            "source": row.source,
            "verdict": row.verdict,
            "send": row.attempt,
            "result": redact(row.result, names_of_operation(operation)),
        },
    )


def _evidence_of_edge(
    row: Transition, operation: ToolOperation | None, around: _Around
) -> dict[str, Any] | None:
    if operation is not None:
        return {"tool": operation.tool}
    if row.event != RunEvent.RECORD_DECISION or row.step_number not in around.decisions:
        return None
    decision = around.decisions[row.step_number]
    return {
        "decision": decision.kind,
        "decider": decision.decider,
        "agent_version": decision.agent_version,
        "tool_versions": decision.tool_versions,
    }


def _scrub_edge(row: Transition, around: _Around) -> str:
    """The reason of an edge; a run's edge may quote what an operation of its step ran into."""
    if row.operation_id is not None:
        return without_secrets(row.why, around.operations[row.operation_id])
    text = row.why
    for operation in around.operations.values():
        if operation.step_number == row.step_number:
            text = without_secrets(text, operation)
    return text
