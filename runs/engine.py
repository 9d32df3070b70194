"""The engine: drives one claimed run from what is recorded to what is next.

Guarantees: every line asks first "is it recorded already?", and that is all that
resuming means; nothing remote happens while a change is pending (but the question for
a resource's version, while a decision that needs a signature is not recorded yet), and
everything between two remote calls is one commit, so a steady tool step costs two: decision,
intent and send window before the call; outcome, checkpoint and the next step's
opening after it.

Does not wait: where a date, a signature or a person is due, the run is given back.
"""

import threading
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, assert_never
from uuid import UUID

from runs import budgets, events
from runs.adoption import adopt_or_leave, sign_anew
from runs.agents import Agent
from runs.batches import find_batch, give_back, next_operation
from runs.breaker import trip_loop, trip_poison
from runs.built_in import is_built_in
from runs.called import is_called
from runs.change import Change
from runs.commit import BROKEN
from runs.deciding import decide, decide_called, decide_correction, plan_again
from runs.delegation import start_children
from runs.endings import cancel, end_compensating
from runs.errors import IntentTaken, LeaseLost, SignatureGone, UndecodableDecision
from runs.evidence import find_proof
from runs.external import has_next, is_external
from runs.gate import find_approval, follow_verdict, put_off_for_sender
from runs.intents import is_replay, replay
from runs.late import keep_as_late_evidence
from runs.lease import claim, heartbeat
from runs.loading import begin, load
from runs.models import TEXT_LIMIT, Approval, ToolOperation
from runs.operations import open_operation, perform
from runs.outcomes import commit_if_proven, lose_all_outcomes, move_run, park
from runs.parallel import perform_together
from runs.planning import replace_operation
from runs.reconciliation import reconcile
from runs.saga import Correct, Stuck, find_next
from runs.serving import (
    UNSERVED_SECONDS,
    find_agent,
    is_served,
    knows_tool,
    leave_operation,
    leave_to_others,
    settles_only,
)
from runs.state import (
    RUN_EDGES,
    UNCERTAIN_STATES,
    OperationEvent,
    OperationStatus,
    RunEvent,
    RunState,
)
from runs.steps import close_step, look_again, open_step
from runs.work import Work
from tools.outcome import describe
from tools.redaction import bound_text

SET_ASIDE_SECONDS: Final = 60.0
RECONNECT_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Slice:
    """How much one task does of one run before others get a turn."""

    steps: int = 50
    seconds: float = 20.0


@dataclass
class Progress:
    """What one call of `advance` did."""

    claimed: bool = False
    run_id: UUID | None = None
    lease_lost: bool = False
    steps: int = 0
    state: RunState | None = None
    yielded: bool = False
    # Its agent elsewhere asked for more while the run was held.
    called: bool = False


_draining = threading.Event()


def drain(on: bool = True) -> None:
    """Let every run of this process go at its next step: the process is to end."""
    _draining.set() if on else _draining.clear()


def advance(*, run_id: UUID, owner: str, turn: Slice | None = None) -> Progress:
    """Claim a run that is due and drive it until it waits, ends or its turn is over.

    `owner` names the worker. Returns at once where nothing is due or somebody else
    holds the run. Safe to call any number of times, from anywhere.
    """
    claimed = claim(run_id=run_id, owner=owner)
    return drive(begin(claimed), turn=turn) if claimed is not None else Progress()


def drive(work: Work, *, turn: Slice | None = None) -> Progress:
    """The same for a run that was claimed, once, at any time within its lease."""
    progress = Progress(claimed=True, run_id=work.run_id)
    events.emit(
        events.Name.SLICE_STARTING,
        **work.about(),
        agent_version=work.agent_version,
        traceparent=work.traceparent,
        worker=work.lease.owner,
    )
    try:
        _hold(work, turn or Slice(), progress)
    finally:
        progress.state = work.state
        held = {"steps": progress.steps, "lease_lost": progress.lease_lost}
        events.emit(events.Name.RUN_RELEASED, **work.about(), **held, state=work.state)
    if work.state is RunState.COMPENSATING and not work.is_paused:
        progress.yielded = True
    return progress


def _hold(work: Work, turn: Slice, progress: Progress) -> None:
    with heartbeat.keeping(work.lease):
        try:
            _load(work)
            _drive(work, turn, progress)
        except LeaseLost:
            work.roll_back()
            progress.lease_lost = True
            events.emit(events.Name.LEASE_LOST, **work.about())
            keep_as_late_evidence(work.change.observations)
        except Exception as error:
            work.roll_back()
            progress.lease_lost = not _set_aside(work, error)
            if not progress.lease_lost:
                raise
        finally:
            work.roll_back()


def _load(work: Work) -> None:
    try:
        load(work)
    except UndecodableDecision:
        # Cancelling needs the rows alone, and a cancel may be the only way out.
        if not _must_cancel(work):
            raise


def _drive(work: Work, turn: Slice, progress: Progress) -> None:
    ends = monotonic() + turn.seconds
    agent = find_agent(work)
    if not is_served(work, agent) and not _must_cancel(work):
        if work.state is RunState.TOOL_RUNNING:
            _resume(work)
        return leave_to_others(work)
    if _is_held_back(work) and not _must_cancel(work):
        return work.release(wake_in=None)
    work.settles_only = settles_only(work, agent)
    _resume(work)
    if not _must_cancel(work) and trip_poison(work):
        return work.release(wake_in=None)
    while True:
        if _must_cancel(work):
            return cancel(work)
        if agent is None and work.saga is None and work.state not in UNCERTAIN_STATES:
            return work.release(wake_in=UNSERVED_SECONDS)
        if work.state is RunState.WAITING and not look_again(work):
            return None
        if work.state in (RunState.READY, RunState.COMPENSATING):
            if _is_held_back(work):
                return work.release(wake_in=None)
            progress.yielded = (
                progress.steps >= turn.steps or monotonic() > ends or _draining.is_set()
            )
            if progress.yielded:
                return work.release(wake_in=0)
            if agent is not None and work.saga is None and _trip(work, agent):
                return work.release(wake_in=None)
        is_to_decide = work.saga is None and work.state in (RunState.READY, RunState.DECIDING)
        if is_to_decide and agent is not None and not adopt_or_leave(work, agent):
            return None
        is_between = work.state is RunState.READY and work.saga is None
        if is_between and agent is not None and is_external(agent) and not has_next(work, agent):
            progress.called = progress.yielded = is_called(work.run_id)
            return None
        if work.state is RunState.READY:
            open_step(work)
        # The decision of the step that closed is not the next one's.
        undecided = work.decision is None or work.state is RunState.COMPENSATING
        if undecided and not _decide(work, agent):
            return None
        try:
            if not _carry_out(work, agent):
                return None
        except (IntentTaken, SignatureGone) as error:
            is_stale = isinstance(error, SignatureGone) or work.change.decision is None
            if is_stale or work.saga is not None:
                # Nothing was written: what a signature or a proposal met is read anew.
                work.change = Change()
                return work.release(wake_in=0)
            assert agent is not None, "whoever planned the calls knows their agent"
            plan_again(work, agent)
            continue
        if open_operation(work) is None:
            progress.steps += 1
            if close_step(work):
                return None


def _decide(work: Work, agent: Agent | None) -> bool:
    """Record what is done next. False when the run was given back, or has ended."""
    if work.saga is None:
        assert agent is not None, "a run whose agent is not known here was given back"
        if is_external(agent):
            decide_called(work, agent)
            return True
        return decide(work, agent)
    match find_next(work):
        case None:
            end_compensating(work, work.saga)
            return False
        case Stuck(why=why):
            work.pause(why)
            work.release(wake_in=None)
            return False
        case Correct(target=target, call=call):
            if work.state is RunState.COMPENSATING:
                open_step(work)
            decide_correction(work, target, call, agent=agent)
            return True
        case _ as never:
            assert_never(never)


def _carry_out(work: Work, agent: Agent | None) -> bool:
    """Settle the decision's operations. False when the run was given back.

    True too when a cancel request came in between, with operations that are still open.
    """
    while not _must_cancel(work):
        if agent is not None and not sign_anew(work, agent):
            work.settles_only = True
        if (operation := next_operation(work)) is None:
            break
        if operation.status != OperationStatus.AWAITING_APPROVAL:
            # A run that waits for a signature has no attempt yet.
            _begin_attempt(work)
        match OperationStatus(operation.status):
            case OperationStatus.AWAITING_APPROVAL:
                _follow_verdict(work, operation)
            case OperationStatus.PREPARED if is_built_in(operation):
                return start_children(work, agent)
            case _ if not knows_tool(operation):
                leave_operation(work, operation)
            case OperationStatus.PREPARED if is_replay(operation):
                replay(work, operation)
            case OperationStatus.PREPARED if len(batch := find_batch(work)) > 1:
                perform_together(work, batch)
            case OperationStatus.PREPARED:
                perform(work, operation, event=OperationEvent.SEND)
            case OperationStatus.UNKNOWN:
                reconcile(work, operation)
            case status:
                raise AssertionError(f"an open operation is {status} between calls")
    if open_operation(work) is None or _must_cancel(work):
        return True
    if work.settles_only and work.state not in UNCERTAIN_STATES:
        leave_to_others(work)
    else:
        give_back(work)
    return False


def _resume(work: Work) -> None:
    """Begin a new attempt at an open step; what a vanished sender left is unknown."""
    if work.step_id is None or work.state in (RunState.WAITING, RunState.WAITING_FOR_APPROVAL):
        # An attempt begins with what is waited for.
        return
    _begin_attempt(work)
    lose_all_outcomes(work)


def _is_held_back(work: Work) -> bool:
    """Whether a pause leaves nothing to do here: nothing new is decided or begun."""
    between = (RunState.READY, RunState.COMPENSATING)
    undecided = work.state is RunState.DECIDING and work.decision is None
    return work.is_paused and (work.state in between or undecided)


def _trip(work: Work, agent: Agent) -> bool:
    """Plan a pause where the run may not spend more, or only repeats itself."""
    limits = budgets.limits_of(own=work.budget, budget=agent.budget, created_at=work.created_at)
    needed = budgets.ONE_STEP.plus(budgets.reservation(agent.budget))
    if breach := budgets.find_breach(limits, work.spent, needed=needed, now=work.now):
        work.pause(breach)
        return True
    return trip_loop(work, agent)


def _begin_attempt(work: Work) -> None:
    if work.attempt_id is None and work.change.open_attempt is None:
        work.attempt += 1
        work.change.open_attempt = work.attempt


def _follow_verdict(work: Work, operation: ToolOperation) -> None:
    """Act on the verdict on a held operation, or park it while there is none."""
    # Its request may be part of what is about to be written: then nobody has seen it yet.
    is_asked = not any(operation is one for one in work.change.new_operations)
    approval = find_approval(operation) if is_asked else None
    seen = operation.observations.order_by("id") if operation.attempts else ()
    is_proven = find_proof(seen) is not None
    if not is_proven and (approval is None or approval.status == Approval.Status.PENDING):
        if work.state is not RunState.WAITING_FOR_APPROVAL:
            move_run(work, RunEvent.HOLD)
        return park(work, operation, seconds=None)
    proposes = approval is not None and approval.proposed_arguments is not None
    if proposes and not is_proven and not knows_tool(operation):
        return park(work, operation, seconds=UNSERVED_SECONDS)
    _begin_attempt(work)
    if commit_if_proven(work, operation):
        # Sent before it was asked about anew, it has turned out to have happened.
        return None
    assert approval is not None, "without one only a proof goes on"
    ends = proposes or approval.status != Approval.Status.APPROVED
    if ends and put_off_for_sender(work, operation):
        return None
    if proposes:
        work.commit_outcomes()
        return replace_operation(work, operation, approval)
    follow_verdict(work, operation, approval)


def _must_cancel(work: Work) -> bool:
    return work.cancel_requested_by is not None and (work.state, RunEvent.CANCEL) in RUN_EDGES


def _set_aside(work: Work, error: Exception) -> bool:
    """Something here is wrong (a row that cannot be read, a fault of ours): say so on the run.

    What was planned is dropped; a call that was made without its outcome being recorded is
    unknown to the next holder. Tried again later, because a deployment may mend it.
    False when the run is not ours any more: then its rows moved under us, and that is all.
    """
    seen = work.change.observations
    work.change = Change(run={"error": bound_text(describe(error), TEXT_LIMIT)})
    with suppress(Exception):  # what was learned may be the very thing that cannot be stored
        keep_as_late_evidence(seen, wake=False)
    # Longer with every attempt: what fails the same way again wants a person.
    first = RECONNECT_SECONDS if isinstance(error, BROKEN) else SET_ASIDE_SECONDS
    wait: float | None = first * 2 ** min(max(work.attempt - 1, 0), 6)
    try:
        if work.step_id is not None:
            _begin_attempt(work)
            work.lost_attempts += 1
        elif not isinstance(error, BROKEN):
            work.setbacks = work.change.run["setbacks"] = work.setbacks + 1
            wait = first * 2 ** min(work.setbacks - 1, 6)
        if trip_poison(work):
            wait = None
        ending = "parked" if wait is None else "lost"
        work.release(wake_in=wait, attempt_outcome=ending, heed_cancel=False)
    except LeaseLost:
        return False
    except Exception:  # noqa: BLE001  the lease ends by itself; the first error is the one to see
        return True
    return True


__all__ = ["Progress", "Slice", "advance", "drain"]
