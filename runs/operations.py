"""Operations: from an intent to a recorded outcome.

Guarantees: intent is durable before a call; a call starts only while the lease outlives
its deadline; what came back is recorded as committed, rejected, not sent or unknown, with
the window in which it was sent, and only a clean answer of this very send counts as an
outcome. A TRANSACTIONAL tool runs in the transaction that records its outcome.

Does not plan (`planning.py`), does not resolve an unknown outcome
(`reconciliation.py`) and does not choose what comes next (`engine.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, assert_never

from runs import events, flow
from runs.argument_versions import is_outdated
from runs.calls import build_call
from runs.gate import STOPPED_SECONDS, Admitted, admit, put_off, put_off_for_sender
from runs.judging import NEEDED
from runs.late import keep_late_answer
from runs.lease import lease_seconds, margin_seconds
from runs.models import TEXT_LIMIT, Approval, NeverSent, ToolObservation, ToolOperation
from runs.objections import find_objection
from runs.outcomes import (
    commit_if_proven,
    commit_operation,
    end_unsent,
    iso,
    lose_outcome,
    move_run,
    park,
    park_unknown,
    prepare_run,
    reject_operation,
)
from runs.renewal import leave_or_renew
from runs.state import OperationEvent, RunEvent
from runs.transactional import call_in_transaction
from runs.work import Work
from tools import Call, EffectType
from tools.declarations import Limits
from tools.execution import execute, in_flight
from tools.outcome import Committed, Outcome, Refused, Unknown, Unsent, name_of
from tools.redaction import bound_text, scrub
from tools.registry import get_tool
from tools.spec import ToolSpec

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict

# A key is not used in the last part of its life: the request needs time to arrive.
KEY_MARGIN: Final = timedelta(minutes=5)
# The stage of a call that was stopped between its intent and its send.
WITHHELD: Final = "withheld"
LEASE_TOO_SHORT: Final = "the lease would end before the call's deadline"


@dataclass(frozen=True)
class Ready:
    """An operation that may be sent now; not `admitted` anew is the repeat of a send that was."""

    operation: ToolOperation
    spec: ToolSpec
    event: OperationEvent
    admitted: Admitted | None

    @property
    def approval(self) -> Approval | None:
        """What the send spends."""
        return self.admitted.approval if self.admitted is not None else None

    @property
    def seconds(self) -> float:
        return self.spec.timeout_policy.seconds

    @property
    def limits(self) -> Limits | None:
        """Of its provider."""
        return self.spec.provider.limits if self.spec.provider is not None else None


def perform(work: Work, operation: ToolOperation, *, event: OperationEvent) -> None:
    """Send the operation and plan what came back, or leave it alone until it may be sent.

    `event` is SEND from PREPARED, or SEND_AGAIN from UNKNOWN.
    """
    if event is OperationEvent.SEND:
        ready = make_ready(work, operation)
    else:
        # The recovery of a send that was admitted, under the signature that it spent.
        ready = Ready(operation, get_tool(operation.tool), event, None)
    if ready is None:
        return
    if ready.approval is not None:
        # The statement that spends a signature writes nothing if it cannot.
        work.commit_outcomes()
        if work.cancel_requested_by is not None:
            return
    if take_turn(work, ready):
        try:
            _send(work, ready)
        finally:
            give_turns_back(work, [ready])


def _send(work: Work, ready: Ready) -> None:
    operation = ready.operation
    work.change.lease_seconds = ready.seconds + 2 * margin_seconds()
    if ready.spec.effect_type is EffectType.TRANSACTIONAL:
        # Only the try is durable before, and counts in windows: the rest commits with the effect.
        operation.attempts += 1
        operation.last_sent_at = work.now
        work.change.touch(operation)
        work.commit()
        _open_send_window(work, ready)
    else:
        begin_send(work, ready)
        work.commit()
    call = build_call(work, operation, seconds=ready.seconds)
    if objection := find_objection(work, operation, ready.spec, call, admitted=ready.admitted):
        return withhold(work, ready, call, objection)
    events.emit(events.Name.CALL_STARTING, **work.about(operation))
    outcome = _call_tool(work, ready, call)
    events.emit(events.Name.CALL_DONE, **work.about(operation), outcome=name_of(outcome))
    record_outcome(work, ready, call, outcome)
    if work.open_transaction is not None and ready.limits is not None:
        # Before its turn is given back, which is another statement.
        work.commit()


def make_ready(work: Work, operation: ToolOperation) -> Ready | None:
    """The prepared operation if it may be sent now; else what follows is planned."""
    spec = get_tool(operation.tool)
    if commit_if_proven(work, operation):
        return None
    prepare_run(work)
    if operation.attempts >= tries_allowed(operation, spec):
        _give_up(work, operation, operation.error)
        return None
    if moved := other_account(operation, spec):
        _give_up(work, operation, moved)
        return None
    if is_outdated(operation, spec):
        leave_or_renew(work, operation, spec)
        return None
    admitted = admit(work, operation, spec)
    return Ready(operation, spec, OperationEvent.SEND, admitted) if admitted is not None else None


def take_turn(work: Work, ready: Ready) -> bool:
    """Whether its provider's limits let it leave now; else it is left alone until they may."""
    if ready.limits is None:
        return True
    work.commit_outcomes()
    operation = ready.operation
    seconds = ready.seconds + 2 * margin_seconds()
    wait = flow.take_for(ready.spec, holder=operation.id, seconds=seconds)
    if wait is None:
        return True
    if ready.event is OperationEvent.SEND:
        put_off(work, operation, "its provider's limits are reached", seconds=wait)
    else:
        park_unknown(work, operation, seconds=wait)
    return False


def give_turns_back(work: Work, ready: Sequence[Ready]) -> None:
    """Let others have the turns of calls that are back."""
    if work.open_transaction is not None:
        # It is to be rolled back, and this with it: the turn ends by itself.
        return
    if back := [one.operation.id for one in ready if one.limits and one.limits.concurrency]:
        flow.give_back(back)


def begin_send(work: Work, ready: Ready) -> None:
    """Plan the intent of one more try: the commit of it opens the window."""
    ready.operation.attempts += 1
    _open_send_window(work, ready)


def late_listener(ready: Ready, call: Call) -> Callable[[Outcome], None]:
    """What keeps the answer of a function that comes back after its deadline."""
    return partial(_keep_late_answer, operation=ready.operation, call=call)


def _call_tool(work: Work, ready: Ready, call: Call) -> Outcome:
    if outlives_lease(work, call):
        return Unsent(LEASE_TOO_SHORT)
    work.lease.expect(ready.seconds + margin_seconds())
    if ready.spec.effect_type is EffectType.TRANSACTIONAL:
        return call_in_transaction(work, spec=ready.spec, call=call)
    return execute(spec=ready.spec, call=call, on_late=late_listener(ready, call))


def other_account(operation: ToolOperation, spec: ToolSpec) -> str:
    """Why the tool, as it is declared now, may not act for the operation; empty if it may.

    Keys and look-ups mean something within one account of one provider.
    """
    planned, now = (
        f"{provider}/{account}"
        for provider, account in (
            (operation.provider, operation.account),
            (spec.provider_name, spec.account),
        )
    )
    return "" if planned == now else f"it was planned for {planned}, and its tool now uses {now}"


def tries_allowed(operation: ToolOperation, spec: ToolSpec) -> int:
    """How many sends the operation may have: the tool's tries, and as many again after a
    person established that the earlier ones did nothing."""
    tries = spec.retry_policy.max_attempts
    if operation.attempts < tries:
        return tries
    # What was withheld at the last moment was no try.
    tries += operation.observations.filter(stage=WITHHELD).count()
    word = operation.observations.filter(source=Source.PERSON).order_by("-id").first()
    return tries + (word.attempt if word is not None else 0)


def outlives_lease(work: Work, call: Call) -> bool:
    """Whether this process was stopped so long since its commit that it must not act any more."""
    left = call.seconds_left()
    return left <= 0 or work.lease.left() < left + margin_seconds()


def _open_send_window(work: Work, ready: Ready) -> None:
    if ready.approval is not None:
        work.change.spent_approvals.add(ready.approval.id)
    operation, spec, now = ready.operation, ready.spec, work.now
    operation.fence_token = work.lease.fence_token
    operation.first_sent_at = operation.first_sent_at or now
    operation.last_sent_at = now
    operation.next_try_at = None
    operation.next_reconcile_at = None
    operation.needs_person_since = None
    operation.in_flight_until = now + timedelta(seconds=ready.seconds + margin_seconds())
    operation.settles_at = operation.in_flight_until + spec.settle_window
    if operation.key_expires_at is None and spec.idempotency_retention is not None:
        operation.key_expires_at = now + spec.idempotency_retention
    work.move_operation(operation, ready.event)
    move_run(work, RunEvent.SEND)


def record_outcome(work: Work, ready: Ready, call: Call, outcome: Outcome) -> None:
    """Plan what an answer, or the lack of one, makes of an operation that was sent."""
    operation, spec = ready.operation, ready.spec
    observation = _observe(operation, outcome, Source.WORKER)
    observation.window = _window(work, operation, call)
    work.observe(observation)
    was_unknown = operation.unknown_since is not None
    # Until the function is back, its send may be under way; the heartbeat pushes this on.
    operation.in_flight_until = None
    operation.settles_at = work.now + spec.settle_window
    if "returned_at" not in observation.window:
        operation.in_flight_until = work.now + timedelta(seconds=lease_seconds())
        operation.settles_at = operation.in_flight_until + spec.settle_window
    earlier = operation.attempts > 1 and not isinstance(outcome, Committed)
    if earlier and commit_if_proven(work, operation):
        return
    match outcome:
        case Committed(result=result, external_ref=external_ref):
            commit_operation(work, operation, result=result, external_ref=external_ref or "")
        case Unsent() | Refused() if was_unknown and not _answers(outcome, spec):
            # It speaks about this send alone; an earlier one may have taken effect.
            reason = f"an earlier send is unknown; this one: {observation.detail}"
            lose_outcome(work, operation, reason=reason, event=RunEvent.LOSE_OUTCOME)
            _ask_later(work, operation, spec)
        case Refused():
            reject_operation(work, operation, reason=observation.detail)
        case Unsent():
            _take_back(work, operation, observation.detail)
            _try_later(work, operation, spec)
        case Unknown():
            lose_outcome(work, operation, reason=observation.detail, event=RunEvent.LOSE_OUTCOME)
            _ask_later(work, operation, spec)
        case _ as never:
            assert_never(never)


def withhold(work: Work, ready: Ready, call: Call, why: str) -> None:
    """Plan that an admitted call did not leave; its next try is judged anew, and soon."""
    operation = ready.operation
    observation = _observe(operation, Unsent(f"withheld: {why}"), Source.WORKER)
    observation.stage = WITHHELD
    observation.window = _window(work, operation, call)
    work.observe(observation)
    operation.in_flight_until = None
    if operation.unknown_since is not None:
        # An earlier send may have taken effect all the same.
        lose_outcome(work, operation, reason=observation.detail, event=RunEvent.LOSE_OUTCOME)
        park_unknown(work, operation, seconds=STOPPED_SECONDS)
        return
    _take_back(work, operation, observation.detail)
    park(work, operation, seconds=0)


def _take_back(work: Work, operation: ToolOperation, reason: str) -> None:
    """Plan the way back to PREPARED: nothing left, so a signature is as good as before."""
    operation.error = reason
    approval = operation.approval_id
    if approval is not None and operation.policy_outcome == NEEDED:
        if approval in work.change.spent_approvals:
            work.change.spent_approvals.discard(approval)
        else:
            work.change.returned_approvals.add(approval)
    work.move_operation(operation, OperationEvent.NOT_SENT, reason)
    move_run(work, RunEvent.NOT_SENT, reason)


def _try_later(work: Work, operation: ToolOperation, spec: ToolSpec) -> None:
    if operation.attempts >= tries_allowed(operation, spec):
        return _give_up(work, operation, operation.error)
    seconds = spec.retry_policy.delay(operation.attempts)
    operation.next_try_at = work.now + timedelta(seconds=seconds)
    park(work, operation, seconds=seconds)


def _answers(outcome: Outcome, spec: ToolSpec) -> bool:
    """Whether an outcome settles the operation and not only its newest send."""
    harmless = spec.effect_type in (EffectType.READ, EffectType.TRANSACTIONAL)
    return isinstance(outcome, Refused) and harmless


def _ask_later(work: Work, operation: ToolOperation, spec: ToolSpec) -> None:
    park_unknown(work, operation, seconds=spec.retry_policy.delay(operation.attempts))


def _give_up(work: Work, operation: ToolOperation, why: str) -> None:
    if put_off_for_sender(work, operation):
        return
    # After a person's word the earlier sends did leave, and came to nothing.
    what = "not sent again" if operation.watch_until is not None else "never sent"
    tries = f" in {operation.attempts} tries" if operation.attempts else ""
    reason = f"{what}{tries}: {why}"
    end_unsent(work, operation, OperationEvent.GIVE_UP, why=NeverSent.GIVEN_UP, error=reason)
    move_run(work, RunEvent.GIVE_UP, operation.error)


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


def _window(work: Work, operation: ToolOperation, call: Call) -> dict[str, Any]:
    """When this send was claimed, when bytes are known to have left, and when it had to end."""
    window = {
        "opened_at": iso(operation.last_sent_at),
        **{f"{mark}_at": iso(at) for mark, at in call.window.marks.items()},
        "deadline": iso(call.deadline),
        "lease_end": iso(work.now + timedelta(seconds=work.lease.left())),
    }
    if operation.id not in in_flight():
        window["returned_at"] = iso(work.now)
    return window


def _keep_late_answer(outcome: Outcome, *, operation: ToolOperation, call: Call) -> None:
    """A function came back after its deadline, in its own thread: keep what it says."""
    observation = _observe(operation, outcome, Source.STALE_WORKER)
    returned_at = call.deadline - timedelta(seconds=call.seconds_left())
    observation.window = {"deadline": iso(call.deadline), "returned_at": iso(returned_at)}
    keep_late_answer(observation)


def open_operation(work: Work) -> ToolOperation | None:
    """The first operation of the open step that is not settled."""
    for operation in work.operations:
        if operation.settled_at is None:
            return operation
    return None
