"""The edges on which an operation ends, waits or becomes unknown, together with its run's.

Guarantees: whatever ends an operation dates it, lets its intent go where nothing happened,
counts what contradicts the end, and has it watched where it was ever in doubt. A run stands
where its operations do: uncertain while one of them is unknown, and with a person only while
every unknown one is.

Does not decide which edge is taken: `operations.py` (an answer), `reconciliation.py`
(evidence), `resolution.py` (a person) and `engine.py` (a cancel) do.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from runs.evidence import find_proof
from runs.late import FURTHER_EFFECT, find_further_effects
from runs.models import (
    TEXT_LIMIT,
    Approval,
    Incident,
    NeverSent,
    Notice,
    ToolObservation,
    ToolOperation,
)
from runs.state import UNCERTAIN_STATES, OperationEvent, OperationStatus, RunEvent, RunState
from runs.work import Work
from tools import EffectType
from tools.redaction import bound_text, scrub

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict

# How long a closed operation is watched at least, and from when on.
WATCH_FOR: Final = timedelta(hours=24)
FIRST_WATCH: Final = timedelta(minutes=1)


def commit_operation(
    work: Work, operation: ToolOperation, *, result: Any, external_ref: str, reason: str = ""
) -> None:
    """Plan the edge to COMMITTED, of the operation and of its run."""
    operation.result = result
    operation.external_ref = external_ref
    operation.error = ""
    if operation.attempts > 1 or operation.unknown_since is not None:
        pending = [one for one in work.change.observations if one.operation_id == operation.id]
        for reference in find_further_effects(operation, pending=pending):
            work.open_incident(
                operation,
                kind=Incident.Kind.DUPLICATE,
                external_ref=reference,
                detail=FURTHER_EFFECT,
            )
    if operation.compensates_id is not None:
        _let_intent_go(work, operation.compensates_id)
    settle(work, operation)
    work.move_operation(operation, OperationEvent.COMMIT, reason)
    move_run(work, RunEvent.COMMIT, reason)


def commit_if_proven(work: Work, operation: ToolOperation) -> bool:
    """Plan the edge to COMMITTED of an operation that an earlier send proves to have made.

    The proof may have come after somebody had established that there is no effect.
    """
    proof = find_proof(operation.observations.order_by("id")) if operation.attempts else None
    if proof is None:
        return False
    if work.state in (RunState.DECISION_RECORDED, RunState.TOOL_COMMITTED):
        prepare_run(work)
    reason = f"{proof.source} proves the effect of an earlier send"
    commit_operation(
        work, operation, result=proof.result, external_ref=proof.external_ref, reason=reason
    )
    drop_approval(work, operation, Approval.Status.SUPERSEDED)
    return True


def reject_operation(work: Work, operation: ToolOperation, *, reason: str) -> None:
    """Plan the edge to REJECTED, of the operation and of its run."""
    operation.error = reason
    operation.holds_intent = None
    if operation.unknown_since is not None:
        watch_later(work, operation)
    settle(work, operation)
    work.move_operation(operation, OperationEvent.REJECT, reason)
    move_run(work, RunEvent.REJECT, reason)


def establish_not_sent(work: Work, operation: ToolOperation, *, reason: str) -> None:
    """Plan the way back to PREPARED: it is established that nothing happened.

    Not given back with it is a signature: the earlier send did leave.
    """
    operation.unknown_since = None
    operation.needs_person_since = None
    operation.next_reconcile_at = None
    operation.error = reason
    watch_later(work, operation)
    work.move_operation(operation, OperationEvent.NOT_SENT, reason)
    move_run(work, RunEvent.NOT_SENT, reason)


def cancel_operation(work: Work, operation: ToolOperation) -> None:
    """Plan the edge to CANCELLED of an operation whose run is cancelled."""
    end_unsent(
        work, operation, OperationEvent.CANCEL, why=NeverSent.CANCELLED, error=operation.error
    )


def end_unsent(
    work: Work, operation: ToolOperation, event: OperationEvent, *, why: NeverSent, error: str
) -> None:
    """Plan an edge to CANCELLED, with the typed reason that the decider is told."""
    operation.error = bound_text(scrub(error, operation.arguments, operation.sensitive), TEXT_LIMIT)
    operation.never_sent = why
    operation.holds_intent = None
    settle(work, operation)
    drop_approval(work, operation)
    work.move_operation(operation, event, operation.error)


def drop_approval(
    work: Work,
    operation: ToolOperation,
    status: Approval.Status = Approval.Status.CANCELLED,
) -> None:
    """Plan the end of a request under which its operation will not be sent.

    SUPERSEDED where the effect is there all the same, or needs no signature any more.
    """
    if operation.approval_id is not None:
        work.change.ended_approvals[operation.approval_id] = status


def lose_outcome(work: Work, operation: ToolOperation, *, reason: str, event: RunEvent) -> None:
    """Plan the edge to UNKNOWN; `event` is LOSE_OUTCOME, or TAKE_OVER when the sender is gone."""
    operation.unknown_since = operation.unknown_since or work.now
    operation.error = reason
    if event is RunEvent.TAKE_OVER:
        # Until its end is known, nobody can say when it is too late for it to act.
        operation.settles_at = None
        work.observe(_observe_take_over(work, operation, reason))
    work.move_operation(operation, OperationEvent.LOSE_OUTCOME, reason)
    move_run(work, event, reason)
    if EffectType(operation.effect_type).is_write:
        work.notify(
            Notice.Kind.OPERATION_UNKNOWN,
            f"{operation.id}:{operation.attempts}",
            operation_id=operation.id,
            status=operation.status,
        )


def lose_all_outcomes(work: Work) -> None:
    """Plan a new attempt at the open step: what a vanished sender left is unknown."""
    before = work.state
    reason = f"taken over under token {work.lease.fence_token}: its sender is gone"
    for operation in work.operations:
        if operation.status == OperationStatus.RUNNING:
            lose_outcome(work, operation, reason=reason, event=RunEvent.TAKE_OVER)
    if work.state is before:
        work.move(RunEvent.RESUME)


def need_person(work: Work, operation: ToolOperation, *, why: str, overdue: bool = False) -> None:
    """Give an unknown operation to a person, and say why."""
    if overdue:
        work.open_incident(operation, kind=Incident.Kind.OVERDUE, detail=why)
    operation.error = bound_text(why, TEXT_LIMIT)
    operation.needs_person_since = work.now
    work.change.touch(operation)
    move_run(work, RunEvent.NEED_PERSON, why)
    work.notify(
        Notice.Kind.OPERATION_NEEDS_PERSON,
        f"{operation.id}:{operation.attempts}",
        operation_id=operation.id,
        status=operation.status,
    )


def settle(work: Work, operation: ToolOperation) -> None:
    """Date the operation as settled; its edge is planned by the caller."""
    operation.settled_at = work.now
    operation.unknown_since = None
    operation.needs_person_since = None
    operation.next_reconcile_at = None
    operation.next_try_at = None
    if operation.next_watch_at is not None:
        # Watched from its end on, however long it took to come to that.
        watch_later(work, operation)


def watch_later(work: Work, operation: ToolOperation) -> None:
    """Have the provider asked, once this is closed, for an effect that comes late.

    Read from the row: a tool that is gone must not keep its operations open.
    """
    if EffectType(operation.effect_type).is_write:
        a_day = work.now + WATCH_FOR
        operation.watch_until = max(operation.key_expires_at or a_day, a_day)
        operation.next_watch_at = work.now + FIRST_WATCH


def park(work: Work, operation: ToolOperation, *, seconds: float | None) -> None:
    """Leave the operation alone until then; None is until somebody makes its run due.

    Its run is given back when nothing else of the step can be done (`parallel.give_back`).
    """
    work.parked = (work.parked or {}) | {operation.id: seconds}


def park_unknown(work: Work, operation: ToolOperation, *, seconds: float | None) -> None:
    """Leave the operation alone until it may be asked about again; None is never."""
    operation.next_reconcile_at = None
    if seconds is not None:
        operation.next_reconcile_at = work.now + timedelta(seconds=seconds)
    work.change.touch(operation)
    park(work, operation, seconds=seconds)


def prepare_run(work: Work) -> None:
    """Plan the run's edge before a prepared operation is sent or dropped."""
    if work.state not in (RunState.TOOL_PREPARED, RunState.TOOL_RUNNING, *UNCERTAIN_STATES):
        work.move(RunEvent.PREPARE)


def move_run(work: Work, event: RunEvent, reason: str = "") -> None:
    """Plan the run's edge, if there is one, after one of its operations was moved.

    There is none while another operation keeps the run where it is: one that is unknown, or
    one that is under way. A run that waits for its children is moved by the end of its wait.
    """
    if work.state is RunState.WAITING:
        return
    standing = {one.status for one in work.operations}
    if OperationStatus.UNKNOWN in standing:
        _stay_uncertain(work, event, reason)
        return
    is_under_way = OperationStatus.RUNNING in standing
    if is_under_way and (event is not RunEvent.SEND or work.state is RunState.TOOL_RUNNING):
        return
    work.move(event, reason)


def _stay_uncertain(work: Work, event: RunEvent, reason: str) -> None:
    unknown = [one for one in work.operations if one.status == OperationStatus.UNKNOWN]
    if any(one.needs_person_since is None for one in unknown):
        if work.state is not RunState.TOOL_STATUS_UNKNOWN:
            taken_over = event is RunEvent.TAKE_OVER
            work.move(RunEvent.TAKE_OVER if taken_over else RunEvent.LOSE_OUTCOME, reason)
    elif work.state is not RunState.WAITING_FOR_RESOLUTION:
        if event is not RunEvent.NEED_PERSON:
            reason = f"what is still unknown waits for a person: {unknown[0].error}"
        work.move(RunEvent.NEED_PERSON, reason)


def _let_intent_go(work: Work, corrected_id: str) -> None:
    """What was taken back may be done anew: by this run's next life, or by another run."""
    corrected = ToolOperation.objects.get(id=corrected_id)
    if corrected.holds_intent is not None:
        corrected.holds_intent = None
        work.change.touch(corrected)


def _observe_take_over(work: Work, operation: ToolOperation, reason: str) -> ToolObservation:
    return ToolObservation(
        operation_id=operation.id,
        run_id=operation.run_id,
        source=Source.TAKE_OVER,
        verdict=Verdict.UNKNOWN,
        stage="crash",
        detail=reason,
        # Of the send that nobody reported on, under the token it was made under.
        attempt=operation.attempts,
        fence_token=operation.fence_token,
        window={
            "opened_at": iso(operation.last_sent_at),
            "deadline": iso(operation.in_flight_until),
            "lease_end": iso(work.now),
        },
    )


def iso(at: datetime | None) -> str | None:
    """As windows store a time."""
    return at.isoformat() if at is not None else None
