"""Reconciliation: finding out what happened to an unknown operation.

Guarantees: evidence that is already recorded (also by a worker that lost its
lease) is read before anybody is asked; a look-up is written down whatever it
says; what follows is `recovery.recover`'s word and nothing else.

Does not send by itself: a repeat goes through `operations.perform`, with the same
id, key and arguments.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, assert_never

from runs import events
from runs.lease import margin_seconds
from runs.models import TEXT_LIMIT, ToolObservation, ToolOperation
from runs.operations import (
    KEY_MARGIN,
    LEASE_TOO_SHORT,
    build_call,
    commit_operation,
    outlives_lease,
    park_unknown,
    perform,
    reject_operation,
)
from runs.recovery import (
    AskLater,
    CallAgain,
    Facts,
    LookUp,
    NeedsPerson,
    Proof,
    Record,
    Recovery,
    Reject,
    SendSameKey,
    recover,
)
from runs.state import OperationEvent, RunEvent, RunState
from runs.work import Work
from tools import Reconciled
from tools.execution import look_up
from tools.redaction import bound_text, scrub
from tools.registry import get_tool
from tools.spec import ToolSpec

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict


def reconcile(work: Work, operation: ToolOperation) -> bool:
    """Bring an unknown operation one decision further. False when the run was parked."""
    spec = get_tool(operation.tool)
    evidence = list(operation.observations.order_by("id"))
    answer = recover(_gather(work, operation, spec, evidence))
    if isinstance(answer, LookUp):
        found = _ask_provider(work, operation, spec)
        evidence.append(found)
        answer = recover(_gather(work, operation, spec, evidence, found=found))
    if work.cancel_requested_by is not None:
        answer = _without_sending(answer)
    match answer:
        case Record(proof=Proof(result=result, external_ref=external_ref, source=source)):
            reason = f"reconciled: {source} proves the effect"
            commit_operation(
                work, operation, result=result, external_ref=external_ref, reason=reason
            )
            return True
        case Reject(reason=reason):
            reject_operation(work, operation, reason=reason)
            return True
        case CallAgain() | SendSameKey():
            if work.state is RunState.WAITING_FOR_RESOLUTION:
                return _wait_for_person(work)
            return perform(work, operation, event=OperationEvent.SEND_AGAIN)
        case AskLater(seconds=seconds):
            if work.state is RunState.WAITING_FOR_RESOLUTION:
                return _wait_for_person(work)
            park_unknown(work, operation, seconds=seconds)
            return False
        case NeedsPerson(why=why):
            if work.state is not RunState.WAITING_FOR_RESOLUTION:
                operation.error = bound_text(why, TEXT_LIMIT)
                operation.next_reconcile_at = None
                work.change.touch(operation)
                work.move(RunEvent.NEED_PERSON, why)
            return _wait_for_person(work)
        case LookUp():
            raise AssertionError("recover asked for a second look-up in one round")
        case _ as never:
            assert_never(never)


def _without_sending(answer: Recovery) -> Recovery:
    """A run that is to be cancelled settles what may have happened; it makes nothing happen."""
    match answer:
        case CallAgain():
            return Reject("cancelled before there was an answer")
        case SendSameKey():
            return NeedsPerson("cancelled while unknown: sending it again could make it happen")
        case _:
            return answer


def _wait_for_person(work: Work) -> bool:
    work.release(wake_in=None)
    return False


def _ask_provider(work: Work, operation: ToolOperation, spec: ToolSpec) -> ToolObservation:
    """One look-up, written down with what it said."""
    seconds = spec.timeout_policy.seconds
    work.change.lease_seconds = seconds + 2 * margin_seconds()
    work.commit()
    work.lease.expect(seconds + margin_seconds())
    call = build_call(work, operation, seconds=seconds)
    events.emit(events.Name.LOOK_UP_STARTING, run_id=work.run_id, operation_id=operation.id)
    if outlives_lease(work, call):
        found = Reconciled.indeterminate(LEASE_TOO_SHORT, failed=True)
    else:
        found = look_up(spec=spec, call=call)
    events.emit(events.Name.LOOK_UP_DONE, run_id=work.run_id, operation_id=operation.id)
    observation = _observe(work, operation, found)
    operation.look_ups += 1
    work.change.touch(operation)
    work.observe(observation)
    return observation


def _observe(work: Work, operation: ToolOperation, found: Reconciled[object]) -> ToolObservation:
    detail = scrub(found.why or "", operation.arguments, operation.sensitive)
    return ToolObservation(
        operation_id=operation.id,
        run_id=operation.run_id,
        source=Source.LOOK_UP,
        verdict=Verdict(found.verdict),
        detail=bound_text(detail, TEXT_LIMIT),
        result=found.result,
        external_ref=found.external_ref or "",
        attempt=operation.attempts,
        fence_token=work.lease.fence_token,
    )


def _gather(
    work: Work,
    operation: ToolOperation,
    spec: ToolSpec,
    evidence: Sequence[ToolObservation],
    found: ToolObservation | None = None,
) -> Facts:
    now = work.now
    in_flight_for = 0.0
    if operation.in_flight_until is not None:
        in_flight_for = max(0.0, (operation.in_flight_until - now).total_seconds())
    return Facts(
        effect_type=spec.effect_type,
        can_look_up=spec.reconcile_handler is not None,
        key_is_good=_key_is_good(work, operation, spec),
        sends=operation.attempts,
        max_sends=spec.retry_policy.max_attempts,
        look_ups=operation.look_ups,
        retry_in=spec.retry_policy.delay(max(1, operation.look_ups)),
        in_flight_for=in_flight_for,
        proof=_proof(evidence),
        refused=_refused(evidence),
        found=_negative(found),
        found_why=found.detail if found is not None else "",
    )


def _key_is_good(work: Work, operation: ToolOperation, spec: ToolSpec) -> bool:
    if spec.idempotency_support == "natural_id":
        return True
    if spec.idempotency_support != "key" or operation.key_expires_at is None:
        return False
    margin = min(KEY_MARGIN, (spec.idempotency_retention or KEY_MARGIN) / 10)
    # The request may leave as late as the call's deadline.
    latest = work.now + timedelta(seconds=spec.timeout_policy.seconds)
    return latest < operation.key_expires_at - margin


def _negative(
    found: ToolObservation | None,
) -> Literal["not_found", "indeterminate"] | None:
    match found.verdict if found is not None else None:
        case Verdict.NOT_FOUND:
            return "not_found"
        case Verdict.INDETERMINATE:
            return "indeterminate"
        case _:
            return None


def _proof(evidence: Sequence[ToolObservation]) -> Proof | None:
    for seen in evidence:
        if seen.verdict == Verdict.COMMITTED:
            return Proof(
                result=seen.result,
                external_ref=seen.external_ref,
                source=_WHERE_FROM.get(Source(seen.source), "an answer"),
            )
    return None


_WHERE_FROM: Final = {
    Source.LOOK_UP: "the provider's look-up",
    Source.STALE_WORKER: "the late answer to an earlier worker",
}


def _refused(evidence: Sequence[ToolObservation]) -> str | None:
    """The newest refusal, if it is the newest answer to a send."""
    for seen in reversed(evidence):
        if seen.source != Source.LOOK_UP:
            return seen.detail if seen.verdict == Verdict.REJECTED else None
    return None
