"""Operations: from a call in a decision to a recorded outcome.

Guarantees: intent is durable before a call and carries one id for life; a call
starts only while the lease outlives its deadline; what came back is recorded as
committed, rejected, not sent or unknown, and only a clean answer of this very
send counts as an outcome.

Does not resolve an unknown outcome (`reconciliation.py`) and does not choose
what comes next (`engine.py`).
"""

import hashlib
import json
import time
from datetime import timedelta
from functools import partial
from typing import Any, Final, assert_never
from uuid import UUID

from django.db import connection

from runs import events
from runs.agents import Agent
from runs.decisions import ToolCall
from runs.lease import lease_seconds, margin_seconds
from runs.models import TEXT_LIMIT, ToolObservation, ToolOperation
from runs.state import OperationEvent, RunEvent, RunState
from runs.work import Work
from tools import Call, EffectType
from tools.canonical import canonical_json, digest
from tools.errors import InvalidArguments, InvalidPayload, UnknownTool
from tools.execution import execute
from tools.outcome import Committed, Outcome, Refused, Unknown, Unsent
from tools.policy import evaluate
from tools.redaction import bound_text, scrub
from tools.registry import get_tool
from tools.spec import ToolSpec

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict

# A key is not used in the last part of its life: the request needs time to arrive.
KEY_MARGIN: Final = timedelta(minutes=5)
LEASE_TOO_SHORT: Final = "the lease would end before the call's deadline"


def operation_id(*, run_id: UUID, step_number: int, logical_action: str) -> str:
    """The operation's one id: a digest over an injective encoding of what names it."""
    name = json.dumps([str(run_id), step_number, logical_action])
    return "op_" + hashlib.sha256(name.encode()).hexdigest()[:40]


def plan_operation(work: Work, *, agent: Agent, ordinal: int, call: ToolCall) -> ToolOperation:
    """Plan the operation of one call: intended, held for a signature, or refused."""
    operation = ToolOperation(
        id=operation_id(
            run_id=work.run_id,
            step_number=work.step_number,
            logical_action=f"{call.tool}#{ordinal}",
        ),
        run_id=work.run_id,
        step_id=work.open_step_id,
        step_number=work.step_number,
        ordinal=ordinal,
        tool=bound_text(call.tool, 100),
        status="",
        arguments=dict(call.arguments),
        sensitive=[],
    )
    operation.idempotency_key = operation.id
    try:
        spec = get_tool(call.tool)
        # First of all: what is sensitive is hidden of a refused call too.
        _copy_declaration(operation, spec)
        if call.tool not in agent.tools:
            raise UnknownTool(call.tool, near=agent.tools)
        operation.arguments = spec.validate(operation.arguments)
    except (UnknownTool, InvalidArguments, InvalidPayload) as error:
        operation.arguments_digest = digest(operation.arguments)
        return _refuse(work, operation, str(error), rule="invalid call")
    operation.arguments_digest = digest(operation.arguments)
    operation.intent = digest([spec.name, spec.intent_values(operation.arguments)])
    policy = evaluate(spec, operation.arguments)
    operation.policy_outcome = policy.outcome
    operation.policy_rule = policy.rule
    operation.policy_version = policy.version
    match policy.outcome:
        case "allow":
            work.move_operation(operation, OperationEvent.INTEND)
        case "require_approval":
            work.move_operation(operation, OperationEvent.HOLD, policy.rule)
        case "refuse":
            return _refuse(work, operation, policy.rule, rule=policy.rule)
        case _ as never:
            assert_never(never)
    return operation


def perform(work: Work, operation: ToolOperation, *, event: OperationEvent) -> bool:
    """Send the operation and plan what came back. False when the run was parked instead.

    `event` is SEND from PREPARED, or SEND_AGAIN from UNKNOWN.
    """
    spec = get_tool(operation.tool)
    if event is OperationEvent.SEND:
        if operation.attempts >= spec.retry_policy.max_attempts:
            return _give_up(work, operation)
        if work.state is not RunState.TOOL_PREPARED:
            work.move(RunEvent.PREPARE)
    seconds = spec.timeout_policy.seconds
    _open_send_window(work, operation, spec, event)
    work.change.lease_seconds = seconds + 2 * margin_seconds()
    work.commit()

    call = build_call(work, operation, seconds=seconds)
    events.emit(events.Name.CALL_STARTING, run_id=work.run_id, operation_id=operation.id)
    if outlives_lease(work, call):
        outcome: Outcome = Unsent(LEASE_TOO_SHORT)
    else:
        work.lease.expect(seconds + margin_seconds())
        outcome = execute(
            spec=spec, call=call, on_late=partial(_keep_late_answer, operation=operation)
        )
    events.emit(events.Name.CALL_DONE, run_id=work.run_id, operation_id=operation.id)
    return _record_outcome(work, operation, spec, outcome)


def outlives_lease(work: Work, call: Call) -> bool:
    """Whether this process was stopped so long since its commit that it must not act any more."""
    left = call.seconds_left()
    return left <= 0 or work.lease.left() < left + margin_seconds()


def build_call(work: Work, operation: ToolOperation, *, seconds: float) -> Call:
    """What the tool's function or handler is told about this execution."""
    return Call(
        operation_id=operation.id,
        idempotency_key=operation.idempotency_key,
        fence_token=work.lease.fence_token,
        attempt=operation.attempts,
        run_id=str(work.run_id),
        step_number=work.step_number,
        # In canonical form, so that a repeat leaves as the same bytes although the database
        # keeps keys in another order; and a copy, so that a tool cannot change the record.
        arguments=json.loads(canonical_json(operation.arguments)),
        expires_at_monotonic=time.monotonic() + seconds,
        deadline=work.now + timedelta(seconds=seconds),
    )


def commit_operation(
    work: Work, operation: ToolOperation, *, result: Any, external_ref: str, reason: str = ""
) -> None:
    """Plan the edge to COMMITTED, of the operation and of its run."""
    operation.result = result
    operation.external_ref = external_ref
    operation.error = ""
    _settle(work, operation)
    work.move_operation(operation, OperationEvent.COMMIT, reason)
    work.move(RunEvent.COMMIT, reason)


def reject_operation(work: Work, operation: ToolOperation, *, reason: str) -> None:
    """Plan the edge to REJECTED, of the operation and of its run."""
    operation.error = reason
    _settle(work, operation)
    work.move_operation(operation, OperationEvent.REJECT, reason)
    work.move(RunEvent.REJECT, reason)


def cancel_operation(work: Work, operation: ToolOperation) -> None:
    """Plan the edge to CANCELLED of an operation that was never sent."""
    _settle(work, operation)
    work.move_operation(operation, OperationEvent.CANCEL)


def lose_outcome(work: Work, operation: ToolOperation, *, reason: str, event: RunEvent) -> None:
    """Plan the edge to UNKNOWN; `event` is LOSE_OUTCOME, or TAKE_OVER when the sender is gone."""
    operation.unknown_since = operation.unknown_since or work.now
    operation.error = reason
    work.move_operation(operation, OperationEvent.LOSE_OUTCOME, reason)
    work.move(event, reason)


def keep_as_late_evidence(observations: list[ToolObservation]) -> None:
    """Append what a worker learned although it no longer holds the run. Moves no state."""
    for observation in observations:
        if observation.source == Source.WORKER:
            observation.source = Source.STALE_WORKER
        observation.save(force_insert=True)
        events.emit(
            events.Name.LATE_EVIDENCE,
            run_id=observation.run_id,
            operation_id=observation.operation_id,
        )


def _refuse(work: Work, operation: ToolOperation, error: str, *, rule: str) -> ToolOperation:
    operation.policy_outcome = "refuse"
    operation.policy_rule = rule
    operation.error = bound_text(error, TEXT_LIMIT)
    _settle(work, operation)
    work.move_operation(operation, OperationEvent.REFUSE, operation.error)
    return operation


def _copy_declaration(operation: ToolOperation, spec: ToolSpec) -> None:
    operation.tool_version = spec.version
    operation.effect_type = spec.effect_type
    operation.provider = spec.provider_name
    operation.account = spec.account
    operation.sensitive = list(spec.sensitive)


def _open_send_window(
    work: Work, operation: ToolOperation, spec: ToolSpec, event: OperationEvent
) -> None:
    now = work.now
    operation.attempts += 1
    operation.fence_token = work.lease.fence_token
    operation.first_sent_at = operation.first_sent_at or now
    operation.last_sent_at = now
    operation.next_reconcile_at = None
    operation.in_flight_until = now + timedelta(
        seconds=spec.timeout_policy.seconds + margin_seconds()
    )
    if operation.key_expires_at is None and spec.idempotency_retention is not None:
        operation.key_expires_at = now + spec.idempotency_retention
    work.move_operation(operation, event)
    work.move(RunEvent.SEND)


def _record_outcome(work: Work, operation: ToolOperation, spec: ToolSpec, outcome: Outcome) -> bool:
    observation = _observe(operation, outcome, Source.WORKER)
    work.observe(observation)
    was_unknown = operation.unknown_since is not None
    # Until the function is back, its send may be under way; the heartbeat pushes this on.
    operation.in_flight_until = None
    if isinstance(outcome, Unknown) and outcome.stage == "deadline":
        operation.in_flight_until = work.now + timedelta(seconds=lease_seconds())
    match outcome:
        case Committed(result=result, external_ref=external_ref):
            commit_operation(work, operation, result=result, external_ref=external_ref or "")
            return True
        case Unsent() | Refused() if was_unknown and not _answers(outcome, spec):
            # It speaks about this send alone; an earlier one may have taken effect.
            reason = f"an earlier send is unknown; this one: {observation.detail}"
            lose_outcome(work, operation, reason=reason, event=RunEvent.LOSE_OUTCOME)
            return _ask_later(work, operation, spec)
        case Refused():
            reject_operation(work, operation, reason=observation.detail)
            return True
        case Unsent():
            operation.error = observation.detail
            work.move_operation(operation, OperationEvent.NOT_SENT, observation.detail)
            work.move(RunEvent.NOT_SENT, observation.detail)
            if operation.attempts >= spec.retry_policy.max_attempts:
                return _give_up(work, operation)
            work.release(wake_in=spec.retry_policy.delay(operation.attempts))
            return False
        case Unknown():
            lose_outcome(work, operation, reason=observation.detail, event=RunEvent.LOSE_OUTCOME)
            return _ask_later(work, operation, spec)
        case _ as never:
            assert_never(never)


def _answers(outcome: Outcome, spec: ToolSpec) -> bool:
    """Whether an outcome settles the operation and not only its newest send."""
    return isinstance(outcome, Refused) and spec.effect_type is EffectType.READ


def _ask_later(work: Work, operation: ToolOperation, spec: ToolSpec) -> bool:
    park_unknown(work, operation, seconds=spec.retry_policy.delay(operation.attempts))
    return False


def park_unknown(work: Work, operation: ToolOperation, *, seconds: float) -> None:
    """Give the run back until the operation may be asked about again."""
    operation.next_reconcile_at = work.now + timedelta(seconds=seconds)
    work.change.touch(operation)
    work.release(wake_in=seconds)


def _give_up(work: Work, operation: ToolOperation) -> bool:
    reason = f"never sent in {operation.attempts} tries: {operation.error}"
    operation.error = bound_text(reason, TEXT_LIMIT)
    _settle(work, operation)
    work.move_operation(operation, OperationEvent.GIVE_UP, operation.error)
    work.move(RunEvent.GIVE_UP, operation.error)
    return True


def _settle(work: Work, operation: ToolOperation) -> None:
    operation.settled_at = work.now
    operation.unknown_since = None
    operation.next_reconcile_at = None


def _observe(
    operation: ToolOperation, outcome: Outcome, source: ToolObservation.Source
) -> ToolObservation:
    seen = ToolObservation(
        operation_id=operation.id,
        run_id=operation.run_id,
        source=source,
        attempt=operation.attempts,
        fence_token=operation.fence_token,
    )
    match outcome:
        case Committed(result=result, external_ref=external_ref):
            seen.verdict = Verdict.COMMITTED
            seen.result = result
            seen.external_ref = external_ref or ""
        case Refused(reason=reason):
            seen.verdict, seen.detail = Verdict.REJECTED, reason
        case Unsent(reason=reason):
            seen.verdict, seen.detail = Verdict.NOT_SENT, reason
        case Unknown(reason=reason, stage=stage):
            seen.verdict, seen.detail, seen.stage = Verdict.UNKNOWN, reason, stage
        case _ as never:
            assert_never(never)
    seen.detail = bound_text(
        scrub(seen.detail, operation.arguments, operation.sensitive), TEXT_LIMIT
    )
    return seen


def _keep_late_answer(outcome: Outcome, *, operation: ToolOperation) -> None:
    """A function came back after its deadline, in its own thread: keep what it says."""
    keep_as_late_evidence([_observe(operation, outcome, Source.STALE_WORKER)])
    connection.close()


def open_operation(work: Work) -> ToolOperation | None:
    """The first operation of the open step that is not settled."""
    for operation in work.operations:
        if operation.settled_at is None:
            return operation
    return None
