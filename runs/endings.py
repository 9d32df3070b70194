"""How a run ends: failed, cancelled or completed, always by a commit that says so; and how it
begins to correct what it did.

Guarantees: the final state, the end of the step and of the attempt, and the notice of it are
one commit; nothing is due afterwards. A run that is to be compensated ends only after that.

Does not correct anything: `saga.py` and the engine do.
"""

from runs.agents import get_agent, may_be_called
from runs.delegation import cancel_children, settle_children, tell_parent
from runs.errors import UnknownAgent
from runs.models import TEXT_LIMIT, Notice, Wait
from runs.outcomes import cancel_operation, commit_if_proven
from runs.state import RunEvent, RunState
from runs.waiting import Ended, end_wait
from runs.work import Saga, Work
from tools.redaction import bound_text


def fail(work: Work, reason: str) -> None:
    """End the run as failed, or have it correct first what it did, if its agent says so."""
    work.change.run["error"] = bound_text(reason, TEXT_LIMIT)
    if work.saga is None and _compensates_on_failure(work):
        begin_compensating(work, reason=reason, ending=RunState.FAILED)
        return work.release(wake_in=0, attempt_outcome="done")
    work.move(RunEvent.FAIL, reason)
    finish(work)


def cancel(work: Work) -> None:
    """End the run as cancelled, or correct first what it did; what is open was never sent, or
    proves to have happened. Child runs end first: until then it is given back."""
    work.commit_opening()
    if work.state is RunState.WAITING and not settle_children(work):
        cancel_children(work)
        return work.release(wake_in=None, heed_cancel=False)
    for operation in work.operations:
        if operation.settled_at is None and not commit_if_proven(work, operation):
            cancel_operation(work, operation)
    if work.state is RunState.WAITING:
        end_wait(work, Ended(Wait.Outcome.CANCELLED))
    reason = f"asked for by {work.cancel_requested_by}"
    if work.cancel_compensates:
        begin_compensating(work, reason=reason, ending=RunState.CANCELLED)
        return work.release(wake_in=0, attempt_outcome="done")
    work.move(RunEvent.CANCEL, reason)
    finish(work)


def begin_compensating(work: Work, *, reason: str, ending: RunState) -> None:
    """Plan the edge to COMPENSATING; the open step ends with it."""
    reason = bound_text(reason, TEXT_LIMIT)
    work.saga = Saga(since=work.now, reason=reason, ending=ending)
    work.change.run |= {
        "compensating_since": work.saga.since,
        "compensation_reason": reason,
        "compensation_ending": ending.value,
    }
    _close_step(work)
    work.move(RunEvent.COMPENSATE, reason)


def end_compensating(work: Work, saga: Saga) -> None:
    """End the run as it was to end: everything that is known is corrected."""
    ending = RunEvent.FAIL if saga.ending is RunState.FAILED else RunEvent.CANCEL
    work.move(ending, f"compensated: {saga.reason}")
    finish(work)


def finish(work: Work) -> None:
    """Commit a final state: the step ends with it, and nobody is due any more."""
    work.change.run["finished_at"] = work.now
    # What somebody else asks for from here on finds the run ended.
    work.change.drops_calls = may_be_called(work.agent) and (
        work.called is None or bool(work.called.waiting)
    )
    work.notify(Notice.Kind.RUN_FINISHED, f"{work.run_id}:{work.version}", status=work.state)
    _close_step(work)
    work.release(wake_in=None, attempt_outcome="done")
    if work.parent_id is not None:
        tell_parent(work.run_id, work.parent_id)


def _close_step(work: Work) -> None:
    if work.step_id is not None and work.change.open_step is None:
        work.change.close_step = True


def _compensates_on_failure(work: Work) -> bool:
    try:
        return get_agent(work.agent).on_failure == "compensate"
    except UnknownAgent:
        return False
