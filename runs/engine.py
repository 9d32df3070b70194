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

from runs import events
from runs.agents import Agent
from runs.change import Change
from runs.commit import BROKEN
from runs.context import encode_checkpoint
from runs.deciding import MAX_FAILURES, decide, plan_again
from runs.decisions import CallTools, Fail, Finish
from runs.endings import cancel, fail, finish
from runs.errors import IntentTaken, LeaseLost, SignatureGone, UndecodableDecision
from runs.evidence import find_proof
from runs.gate import find_approval, follow_verdict
from runs.intents import is_replay, replay
from runs.late import keep_as_late_evidence
from runs.lease import claim, heartbeat
from runs.models import TEXT_LIMIT, Approval, ToolOperation
from runs.operations import open_operation, perform
from runs.outcomes import commit_if_proven, lose_outcome
from runs.planning import replace_operation
from runs.reconciliation import reconcile
from runs.serving import UNSERVED_SECONDS, find_agent, is_served, knows_tool, leave_to_others
from runs.state import (
    RUN_EDGES,
    UNCERTAIN_STATES,
    OperationEvent,
    OperationStatus,
    RunEvent,
    RunState,
)
from runs.work import Work, begin, load, to_observed
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
    lease_lost: bool = False
    steps: int = 0
    state: RunState | None = None
    yielded: bool = False


_draining = threading.Event()


def drain(on: bool = True) -> None:
    """Let every run of this process go at its next step: the process is to end."""
    _draining.set() if on else _draining.clear()


def advance(*, run_id: UUID, owner: str, turn: Slice | None = None) -> Progress:
    """Claim a run that is due and drive it until it waits, ends or its turn is over.

    `owner` names the worker. Returns at once where nothing is due or somebody else
    holds the run. Safe to call any number of times, from anywhere.
    """
    progress = Progress()
    claimed = claim(run_id=run_id, owner=owner)
    if claimed is None:
        return progress
    progress.claimed = True
    work = begin(claimed)
    with heartbeat.keeping(work.lease):
        try:
            _load(work)
            _drive(work, turn or Slice(), progress)
        except LeaseLost:
            work.roll_back()
            progress.lease_lost = True
            events.emit(events.Name.LEASE_LOST, run_id=run_id, fence_token=work.lease.fence_token)
            keep_as_late_evidence(work.change.observations)
        except Exception as error:
            work.roll_back()
            progress.lease_lost = not _set_aside(work, error)
            if not progress.lease_lost:
                raise
        finally:
            work.roll_back()
    progress.state = work.state
    events.emit(events.Name.RUN_RELEASED, run_id=run_id, state=work.state)
    return progress


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
    _resume(work)
    while True:
        if _must_cancel(work):
            return cancel(work)
        if agent is None and work.state not in UNCERTAIN_STATES:
            return work.release(wake_in=UNSERVED_SECONDS)
        if work.state is RunState.READY:
            if work.is_paused:
                return work.release(wake_in=None)
            progress.yielded = (
                progress.steps >= turn.steps or monotonic() > ends or _draining.is_set()
            )
            if progress.yielded:
                return work.release(wake_in=0)
            if agent is not None and (reached := _reached_limit(work, agent)):
                return fail(work, reached)
            _open_step(work)
        if work.decision is None and agent is not None and not decide(work, agent):
            return None
        try:
            if not _carry_out(work):
                return None
        except (IntentTaken, SignatureGone) as error:
            if isinstance(error, SignatureGone) or work.change.decision is None:
                # Nothing was written: what a signature or a proposal met is read anew.
                work.change = Change()
                return work.release(wake_in=0)
            assert agent is not None, "whoever planned the calls knows their agent"
            plan_again(work, agent)
            continue
        if open_operation(work) is None:
            progress.steps += 1
            if _close_step(work):
                return None


def _carry_out(work: Work) -> bool:
    """Settle the decision's operations, in order. False when the run was given back.

    True too when a cancel request came in between, with operations that are still open.
    """
    while (operation := open_operation(work)) is not None and not _must_cancel(work):
        match OperationStatus(operation.status):
            case OperationStatus.AWAITING_APPROVAL:
                going_on = _follow_verdict(work, operation)
            case _ if not knows_tool(operation.tool):
                work.release(wake_in=UNSERVED_SECONDS)
                return False
            case OperationStatus.PREPARED if is_replay(operation):
                going_on = replay(work, operation)
            case OperationStatus.PREPARED:
                going_on = perform(work, operation, event=OperationEvent.SEND)
            case OperationStatus.UNKNOWN:
                going_on = reconcile(work, operation)
            case status:
                raise AssertionError(f"an open operation is {status} between calls")
        if not going_on:
            return False
    return True


def _resume(work: Work) -> None:
    """Begin a new attempt at an open step; what a vanished sender left is unknown."""
    if work.step_id is None or work.state is RunState.WAITING_FOR_APPROVAL:
        # An attempt begins with the verdict.
        return
    _begin_attempt(work)
    operation = open_operation(work)
    if work.state is RunState.TOOL_RUNNING and operation is not None:
        reason = f"taken over under token {work.lease.fence_token}: its sender is gone"
        lose_outcome(work, operation, reason=reason, event=RunEvent.TAKE_OVER)
    else:
        work.move(RunEvent.RESUME)


def _begin_attempt(work: Work) -> None:
    if work.attempt_id is None and work.change.open_attempt is None:
        work.attempt += 1
        work.change.open_attempt = work.attempt


def _open_step(work: Work) -> None:
    work.step_number += 1
    work.attempt = 1
    work.decision = None
    work.operations = []
    work.change.run["step_number"] = work.step_number
    work.change.open_step = work.step_number
    work.change.open_attempt = 1
    work.move(RunEvent.OPEN_STEP)


def _close_step(work: Work) -> bool:
    """Plan the end of the step. True when it was the run's end too, which is committed."""
    last = to_observed(work.operations[-1]) if work.operations else None
    work.change.checkpoint = encode_checkpoint(step_number=work.step_number, last=last)
    match work.decision:
        case Finish(result=result):
            work.change.run |= {"result": result, "error": ""}
            work.move(RunEvent.COMPLETE)
            finish(work)
            return True
        case Fail(reason=reason):
            fail(work, reason or "the decider gave up")
            return True
        case CallTools():
            pass
        case None:
            raise AssertionError("a step closes only after its decision")
        case _ as never:
            assert_never(never)
    if work.window is not None:
        work.window.extend(to_observed(operation) for operation in work.operations)
    work.change.close_attempt = "done"
    work.change.close_step = True
    work.move(RunEvent.CLOSE_STEP)
    if work.failures >= MAX_FAILURES:
        fail(work, f"{work.failures} decisions in a row had calls that cannot be made")
        return True
    return False


def _follow_verdict(work: Work, operation: ToolOperation) -> bool:
    """Act on the verdict on a held operation. False while there is none: nobody waits here."""
    # Its request may be part of what is about to be written: then nobody has seen it yet.
    is_asked = not any(operation is one for one in work.change.new_operations)
    approval = find_approval(operation) if is_asked else None
    seen = operation.observations.order_by("id") if operation.attempts else ()
    is_proven = find_proof(seen) is not None
    if not is_proven and (approval is None or approval.status == Approval.Status.PENDING):
        if work.state is not RunState.WAITING_FOR_APPROVAL:
            work.move(RunEvent.HOLD)
        work.release(wake_in=None)
        return False
    proposes = approval is not None and approval.proposed_arguments is not None
    if proposes and not is_proven and not knows_tool(operation.tool):
        work.release(wake_in=UNSERVED_SECONDS)
        return False
    _begin_attempt(work)
    if commit_if_proven(work, operation):
        # Sent before it was asked about anew, it has turned out to have happened.
        return True
    assert approval is not None, "without one only a proof goes on"
    if proposes:
        work.commit_outcomes()
        replace_operation(work, operation, approval)
    else:
        follow_verdict(work, operation, approval)
    return True


def _must_cancel(work: Work) -> bool:
    return work.cancel_requested_by is not None and (work.state, RunEvent.CANCEL) in RUN_EDGES


def _reached_limit(work: Work, agent: Agent) -> str:
    budget = agent.budget
    if budget.steps is not None and work.step_number >= budget.steps:
        return f"budget: {budget.steps} steps are used"
    if budget.duration is not None and work.now - work.created_at > budget.duration:
        return f"budget: it ran longer than {budget.duration}"
    return ""


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
    try:
        # Longer with every attempt: what fails the same way again wants a person.
        first = RECONNECT_SECONDS if isinstance(error, BROKEN) else SET_ASIDE_SECONDS
        wait = first * 2 ** min(max(work.attempt - 1, 0), 6)
        work.release(wake_in=wait, attempt_outcome="lost", heed_cancel=False)
    except LeaseLost:
        return False
    except Exception:  # noqa: BLE001  the lease ends by itself; the first error is the one to see
        return True
    return True


__all__ = ["Progress", "Slice", "advance", "drain"]
