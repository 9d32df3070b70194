"""Reconciliation: finding out what happened to an unknown operation.

Guarantees: evidence that is already recorded (also by a worker that lost its
lease) is read before anybody is asked; a look-up is written down whatever it
says; what follows is `recovery.recover`'s word and nothing else. While a person
is awaited the provider is still asked for a day: it may answer first.

Does not send by itself: a repeat goes through `operations.perform`, with the same
id, key and arguments.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, assert_never

from runs import events, flow
from runs.argument_versions import is_outdated
from runs.calls import build_look_up_call
from runs.evidence import (
    find_proof,
    find_refusal,
    has_nothing_left,
    observe_look_up,
    read_settling,
)
from runs.gate import STOPPED_SECONDS
from runs.judging import NEEDED, find_stop_now
from runs.lease import margin_seconds
from runs.models import TEXT_LIMIT, ToolObservation, ToolOperation
from runs.objections import find_recovery_objection
from runs.operations import (
    KEY_MARGIN,
    LEASE_TOO_SHORT,
    other_account,
    outlives_lease,
    perform,
    tries_allowed,
)
from runs.outcomes import (
    commit_operation,
    establish_not_sent,
    need_person,
    park_unknown,
    reject_operation,
    watch_later,
)
from runs.recovery import (
    OUTDATED,
    AskLater,
    CallAgain,
    Facts,
    Key,
    LookUp,
    NeedsPerson,
    Proof,
    Record,
    Recovery,
    Reject,
    SendSameKey,
    recover,
    stricter,
)
from runs.serving import UNSERVED_SECONDS, may_others_send
from runs.state import OperationEvent
from runs.work import Work
from tools import EffectType, Reconciled
from tools.execution import look_up
from tools.redaction import bound_text
from tools.registry import get_tool
from tools.spec import ToolSpec

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict


# While a person is awaited, the provider is asked on at least this far apart, for this long.
ASK_ON_SECONDS: Final = 60.0
ASK_ON_FOR: Final = timedelta(hours=24)


def reconcile(work: Work, operation: ToolOperation) -> None:
    """Bring an unknown operation one decision further, or leave it alone until its next date."""
    spec = get_tool(operation.tool)
    evidence = list(operation.observations.order_by("id"))
    facts = _gather(work, operation, spec, evidence)
    answer = recover(facts)
    asks_or_sends = isinstance(answer, LookUp | CallAgain | SendSameKey)
    moved = other_account(operation, spec)
    if moved and asks_or_sends and operation.effect_type != EffectType.READ:
        # What another account says, or does, is nothing to this operation.
        answer = NeedsPerson(moved)
    if isinstance(answer, LookUp):
        if (wait := _take_turn(work, operation, spec)) is not None:
            return park_unknown(work, operation, seconds=wait)
        found = _ask_provider(work, operation, spec)
        evidence.append(found)
        facts = _gather(work, operation, spec, evidence, found=found)
        answer = recover(facts)
    settles_in = facts.settling.settles_in
    operation.settles_at = None
    if settles_in is not None:
        operation.settles_at = work.now + timedelta(seconds=settles_in)
    awaits_person = operation.needs_person_since is not None
    if facts.is_outdated and not awaits_person and _is_left(work, operation, facts, answer):
        return park_unknown(work, operation, seconds=UNSERVED_SECONDS)
    match answer:
        case Record(proof=Proof(result=result, external_ref=external_ref, source=source)):
            reason = f"reconciled: {source} proves the effect"
            commit_operation(
                work, operation, result=result, external_ref=external_ref, reason=reason
            )
        case Reject(reason=reason):
            reject_operation(work, operation, reason=reason)
        case CallAgain() | SendSameKey() if not awaits_person:
            _send_again(work, operation, spec, facts, answer)
        case AskLater(seconds=seconds) if not awaits_person:
            park_unknown(work, operation, seconds=seconds)
        case NeedsPerson(why=why, overdue=overdue) if not awaits_person:
            need_person(work, operation, why=why, overdue=overdue)
            park_unknown(work, operation, seconds=_ask_on(facts))
        case CallAgain() | SendSameKey() | AskLater() | NeedsPerson():
            park_unknown(work, operation, seconds=_ask_on(facts))
        case LookUp():
            raise AssertionError("recover asked for a second look-up in one round")
        case _ as never:
            assert_never(never)


def _send_again(
    work: Work,
    operation: ToolOperation,
    spec: ToolSpec,
    facts: Facts,
    answer: CallAgain | SendSameKey,
) -> None:
    if facts.is_outdated:
        # It did not happen, or does no harm: what is sent in its place is planned anew.
        return establish_not_sent(work, operation, reason=f"not executed, and {OUTDATED}")
    if stop := find_stop_now(work, spec):
        operation.error = bound_text(f"not sent again yet: {stop}", TEXT_LIMIT)
        return park_unknown(work, operation, seconds=STOPPED_SECONDS)
    # A repeat under its key is joined to the first; a read or our own transaction has no
    # second effect. Any other is sent as if for the first time.
    harmless = EffectType(operation.effect_type) in (EffectType.READ, EffectType.TRANSACTIONAL)
    is_first_effect = isinstance(answer, CallAgain) and not harmless
    if is_first_effect and (operation.policy_outcome == NEEDED or work.is_paused):
        # It needs a signature of its own, or nothing new is sent now.
        return establish_not_sent(work, operation, reason="not found, and settled: not executed")
    if changed := find_recovery_objection(operation, spec):
        need_person(work, operation, why=changed)
        return park_unknown(work, operation, seconds=_ask_on(facts))
    watch_later(work, operation)
    perform(work, operation, event=OperationEvent.SEND_AGAIN)


def _is_left(work: Work, operation: ToolOperation, facts: Facts, answer: Recovery) -> bool:
    """Whether a worker that may send it again as it is recorded gets the time to."""
    may_be_theirs = isinstance(answer, CallAgain | NeedsPerson) and facts.objective_in > 0
    return may_be_theirs and may_others_send(operation, agent=work.agent, pinned=work.agent_version)


def _take_turn(work: Work, operation: ToolOperation, spec: ToolSpec) -> float | None:
    """Seconds to wait, where the provider's limits do not let it be asked now."""
    if spec.provider is None or spec.provider.limits is None:
        return None
    work.commit_outcomes()
    seconds = spec.timeout_policy.seconds + 2 * margin_seconds()
    return flow.take_for(spec, holder=operation.id, seconds=seconds)


def _ask_on(facts: Facts) -> float | None:
    """When the provider is asked again while a person is awaited."""
    if not facts.can_look_up or facts.unknown_for > ASK_ON_FOR.total_seconds():
        return None
    return max(facts.retry_in, ASK_ON_SECONDS)


def _ask_provider(work: Work, operation: ToolOperation, spec: ToolSpec) -> ToolObservation:
    """One look-up, written down with what it said."""
    seconds = spec.timeout_policy.seconds
    work.change.lease_seconds = seconds + 2 * margin_seconds()
    work.commit()
    work.lease.expect(seconds + margin_seconds())
    asked_at = work.now
    call = build_look_up_call(
        operation, fence_token=work.lease.fence_token, now=asked_at, seconds=seconds
    )
    about = work.about(operation) | {"look_up": operation.look_ups + 1}
    events.emit(events.Name.LOOK_UP_STARTING, **about)
    if outlives_lease(work, call):
        found = Reconciled.indeterminate(LEASE_TOO_SHORT, failed=True)
    else:
        found = look_up(spec=spec, call=call)
    events.emit(events.Name.LOOK_UP_DONE, **about, verdict=found.verdict, failed=found.failed)
    flow.give_back_for(spec, [operation.id])
    observation = observe_look_up(
        operation, found, asked_at=asked_at, fence_token=work.lease.fence_token
    )
    operation.look_ups += 1
    work.change.touch(operation)
    work.observe(observation)
    return observation


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
    unknown_since = operation.unknown_since or now
    settling = read_settling(operation, evidence, window=spec.settle_window, now=now)
    return Facts(
        effect_type=stricter(EffectType(operation.effect_type), spec.effect_type),
        can_look_up=spec.reconcile_handler is not None,
        key=key_standing(operation, spec, now=now),
        sends=operation.attempts,
        max_sends=tries_allowed(operation, spec),
        retry_in=spec.retry_policy.delay(max(1, operation.look_ups)),
        objective_in=(unknown_since + spec.reconcile_within - now).total_seconds(),
        unknown_for=(now - unknown_since).total_seconds(),
        in_flight_for=in_flight_for,
        settling=settling,
        may_send=work.cancel_requested_by is None,
        is_outdated=is_outdated(operation, spec),
        nothing_left=has_nothing_left(operation, evidence),
        proof=find_proof(evidence),
        refused=find_refusal(evidence),
        found=_negative(found),
        found_why=found.detail if found is not None else "",
    )


def key_standing(operation: ToolOperation, spec: ToolSpec, *, now: datetime) -> Key:
    """Whether the provider still joins a repeat under the operation's key to what it knows."""
    if spec.idempotency_support == "natural_id":
        return "kept"
    if spec.idempotency_support != "key":
        return "none"
    if operation.key_expires_at is None:
        return "expired"
    margin = min(KEY_MARGIN, (spec.idempotency_retention or KEY_MARGIN) / 10)
    # The request may leave as late as the call's deadline.
    latest = now + timedelta(seconds=spec.timeout_policy.seconds)
    return "kept" if latest < operation.key_expires_at - margin else "expired"


def _negative(
    found: ToolObservation | None,
) -> Literal["not_found", "indeterminate", "failed"] | None:
    match found.verdict if found is not None else None:
        case Verdict.NOT_FOUND:
            return "not_found"
        case Verdict.INDETERMINATE:
            return "indeterminate"
        case Verdict.FAILED:
            return "failed"
        case _:
            return None
