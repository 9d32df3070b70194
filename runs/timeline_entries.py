"""What one line of the timeline says: an edge, a thing learned, or an incident.

Guarantees: what the rows of a page refer to is read at once, kind by kind, so a page
costs the same number of queries whatever it holds; the values of sensitive arguments
are hidden.

Does not order or page; `timeline.py` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeAlias, assert_never

from django.db.models import Q

from runs.fingerprint import differences
from runs.models import (
    Approval,
    Handoff,
    Incident,
    LlmRequest,
    StepAttempt,
    ToolObservation,
    ToolOperation,
    Transition,
)
from runs.sensitive import names_of_operation, without_secrets
from runs.shapes import TimelineEntry
from runs.state import OperationEvent
from runs.timeline_edges import RunFacts, decision_of_edge, evidence_of_run_edge, look_up_facts
from runs.timeline_llm import LlmRow, describe_llm_rows, secrets_of
from runs.timeline_moments import Moment, describe_moments
from runs.timeline_subject import Subject
from tools.redaction import redact

_SPOKEN: Final = (ToolObservation.Source.PERSON, ToolObservation.Source.TAKE_OVER)

_Recorded: TypeAlias = Transition | ToolObservation | Incident
Row: TypeAlias = _Recorded | LlmRow | Moment


@dataclass(frozen=True)
class _Around:
    """What the rows of a page refer to, each kind read at once."""

    operations: Mapping[str, ToolOperation]
    attempts: Mapping[tuple[int, int], StepAttempt]
    # Who wrote down what nobody sent: a person, or the worker that took over.
    speakers: Mapping[tuple[str, datetime], str]
    # By operation: the requests for a signature on it, oldest first.
    approvals: Mapping[str, Sequence[Approval]]
    # What the run's own edges refer to: decisions, waits, where it came from.
    run: RunFacts


def describe(subject: Subject, rows: Sequence[Row], *, first: int) -> list[TimelineEntry]:
    """The entries of `rows`, numbered from `first`."""
    written = [row for row in rows if isinstance(row, LlmRow)]
    # First, because it tells at once which names are hidden in everything else.
    secrets = secrets_of(subject, written)
    around = _look_around(subject, rows)
    moments = describe_moments(subject, [row for row in rows if isinstance(row, Moment)])
    of_llms = iter(describe_llm_rows(subject, written, secrets))

    def entry_of(row: Row) -> TimelineEntry:
        match row:
            case Transition():
                return _of_transition(row, around)
            case ToolObservation():
                return _of_observation(row, around)
            case Incident():
                return _of_incident(row, around)
            case LlmRequest() | Handoff():
                return next(of_llms)
            case Moment():
                return moments[row]
            case _ as never:
                assert_never(never)

    return [
        entry_of(row).model_copy(update={"seq": seq}) for seq, row in enumerate(rows, start=first)
    ]


def _look_around(subject: Subject, rows: Sequence[Row]) -> _Around:
    recorded = [row for row in rows if isinstance(row, _Recorded)]
    named = {row.operation_id for row in recorded if row.operation_id is not None}
    operations = ToolOperation.objects.defer("result").in_bulk(list(named))
    subject.look_up_holders({_held_at(row, operations) for row in rows} - {(0, 0)})
    edges = [row for row in recorded if isinstance(row, Transition)]
    return _Around(
        operations=operations,
        attempts=subject.held,
        speakers=_speakers(subject, recorded),
        approvals=_approvals(operations.values()),
        run=look_up_facts(subject, edges),
    )


def _held_at(row: Row, operations: Mapping[str, ToolOperation]) -> tuple[int, int]:
    """The step and the token that a row speaks about; zeros for one that is about no attempt."""
    match row:
        case Transition():
            return (row.step_number, row.fence_token)
        case ToolObservation():
            return (operations[row.operation_id].step_number, row.fence_token)
        case LlmRequest():
            return (row.step.number, row.fence_token)
        case Incident() | Handoff() | Moment():
            return (0, 0)
        case _ as never:
            assert_never(never)


def _approvals(operations: Iterable[ToolOperation]) -> dict[str, list[Approval]]:
    """By operation, with those that were asked for before other arguments took their place."""
    asked = [one.id for one in operations if one.approval_id is not None]
    if not asked:
        return {}
    wanted = Q(operation_id__in=asked) | Q(superseded_by__operation_id__in=asked)
    found: dict[str, list[Approval]] = {}
    for approval in Approval.objects.filter(wanted).distinct().order_by("requested_at"):
        found.setdefault(approval.operation_id, []).append(approval)
    return found


def _speakers(subject: Subject, rows: Sequence[_Recorded]) -> dict[tuple[str, datetime], str]:
    """By operation and time: the actor of the edge that was written together with a word."""
    spoken = {
        (row.operation_id, row.observed_at)
        for row in rows
        if isinstance(row, ToolObservation) and row.source in _SPOKEN
    }
    found = {
        (row.operation_id or "", row.at): row.actor for row in rows if isinstance(row, Transition)
    }
    if missing := {at for operation_id, at in spoken if (operation_id, at) not in found}:
        # On another page, if there is one.
        edges = Transition.objects.filter(
            run_id=subject.run_id, at__in=missing, operation__isnull=False
        )
        others = edges.values_list("operation_id", "at", "actor")
        found |= {(operation_id or "", at): actor for operation_id, at, actor in others}
    return found


def _of_transition(row: Transition, around: _Around) -> TimelineEntry:
    operation = around.operations[row.operation_id] if row.operation_id else None
    committed = operation is not None and row.event == OperationEvent.COMMIT
    approval = _approval_of_edge(row, around)
    decision = decision_of_edge(row, around.run)
    judged = operation or decision
    return TimelineEntry(
        at=row.at,
        seq=0,
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
        prompt_version=(decision.prompt_version or None) if decision else None,
        llm_version=(decision.llm_version or None) if decision else None,
        tool_version=(operation.tool_version or None) if operation else None,
        policy_version=judged.policy_version or None if judged else None,
        approval_id=str(approval.id) if approval is not None else None,
        external_ref=(operation.external_ref or None) if operation and committed else None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence=_evidence_of_edge(row, operation, around, approval),
    )


def _of_observation(row: ToolObservation, around: _Around) -> TimelineEntry:
    operation = around.operations[row.operation_id]
    attempt = around.attempts.get((operation.step_number, row.fence_token))
    actor = attempt.worker if attempt else row.source
    if row.source in _SPOKEN:
        actor = around.speakers.get((row.operation_id, row.observed_at), row.source)
    looked_up = row.source == ToolObservation.Source.LOOK_UP
    said = without_secrets(row.detail, operation)
    return TimelineEntry(
        at=row.observed_at,
        seq=0,
        kind=f"observation.{row.source}",
        actor=actor,
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
            "window": row.window,
            "also": row.also or [],
            "result": redact(row.result, names_of_operation(operation)),
        },
    )


def _of_incident(row: Incident, around: _Around) -> TimelineEntry:
    operation = around.operations[row.operation_id]
    said = without_secrets(row.detail, operation)
    label = Incident.Kind(row.kind).label
    return TimelineEntry(
        at=row.at,
        seq=0,
        kind=f"incident.{row.kind.lower()}",
        actor="reconciliation",
        run_id=row.run_id,
        step_number=operation.step_number,
        attempt=None,
        operation_id=row.operation_id,
        # An incident is a finding: it moves nothing, under no token.
        fence_token=0,
        from_state=None,
        to_state=None,
        reason=f"{label}: {said}" if said else label,
        prompt_version=None,
        llm_version=None,
        tool_version=operation.tool_version or None,
        policy_version=operation.policy_version or None,
        approval_id=None,
        external_ref=row.external_ref or None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence={"tool": operation.tool, "incident": row.kind},
    )


def _evidence_of_edge(
    row: Transition,
    operation: ToolOperation | None,
    around: _Around,
    approval: Approval | None,
) -> dict[str, Any] | None:
    if operation is None:
        return evidence_of_run_edge(row, around.run)
    repeats = {"repeats": operation.repeats_id} if operation.repeats_id else {}
    corrects = {"compensates": operation.compensates_id} if operation.compensates_id else {}
    judged = _evidence_of_policy(row, operation)
    signed = _evidence_of_approval(row, operation, approval, around) if approval else {}
    return {"tool": operation.tool, **repeats, **corrects, **judged, **signed}


# The edges at which policy speaks; what it said of an operation last stands in its row.
_JUDGED: Final = frozenset((OperationEvent.INTEND, OperationEvent.HOLD, OperationEvent.REFUSE))


def _evidence_of_policy(row: Transition, operation: ToolOperation) -> dict[str, Any]:
    if row.event not in _JUDGED or not operation.policy_outcome:
        return {}
    return {
        "policy": operation.policy_outcome,
        "rule": without_secrets(operation.policy_rule, operation) or None,
    }


# The edges of an operation that a request for a signature explains.
_SIGNED: Final = frozenset(
    (
        OperationEvent.HOLD,
        OperationEvent.APPROVE,
        OperationEvent.DENY,
        OperationEvent.EXPIRE,
        OperationEvent.REPLACE,
        OperationEvent.SEND,
        OperationEvent.CANCEL,
    )
)


def _approval_of_edge(row: Transition, around: _Around) -> Approval | None:
    """The newest request at the time: one is asked for in the commit of its HOLD."""
    if row.operation_id is None or row.event not in _SIGNED:
        return None
    asked = [
        one for one in around.approvals.get(row.operation_id, ()) if one.requested_at <= row.at
    ]
    if row.event == OperationEvent.SEND:
        # Under no other than the one that it spent.
        asked = [one for one in asked if one.spent_under == row.fence_token]
    return asked[-1] if asked else None


def _evidence_of_approval(
    row: Transition, operation: ToolOperation, approval: Approval, around: _Around
) -> dict[str, Any]:
    """What the reviewer saw, or what became of it."""
    if row.event != OperationEvent.HOLD:
        return {
            "fingerprint": approval.fingerprint,
            "decided_by": approval.decided_by or None,
            "decided_at": approval.decided_at.isoformat() if approval.decided_at else None,
        }
    known = chain.from_iterable(around.approvals.values())
    before = next((one for one in known if one.id == approval.supersedes_id), None)
    return {
        "fingerprint": approval.fingerprint,
        "reviewed": redact(approval.covered, names_of_operation(operation)),
        "rule": without_secrets(approval.rule, operation),
        "groups": approval.groups,
        "quorum": approval.quorum,
        "approve_by": approval.approve_by.isoformat(),
        "changed": differences(before.covered, approval.covered) if before else [],
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
