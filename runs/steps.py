"""Steps: how one opens, what it waits for, and how it closes into the next one.

Guarantees: a step closes only after its decision, with everything that the decision called for
settled, and with a checkpoint; the close and the opening of the next one are one commit.

Does not ask the decider or carry anything out: `engine.py` has that done.
"""

from typing import assert_never

from runs import budgets
from runs.breaker import forget_actions, note_action
from runs.context import Observed, encode_checkpoint
from runs.decisions import (
    Ask,
    CallTools,
    Compensate,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Sleep,
    WaitFor,
)
from runs.delegation import settle_children
from runs.endings import begin_compensating, fail, finish
from runs.history import to_observed, wait_to_observed
from runs.models import TEXT_LIMIT, Wait
from runs.saga import say_failed
from runs.state import OperationStatus, RunEvent, RunState
from runs.undecided import MAX_FAILURES
from runs.waiting import Ended, begin_wait, end_wait, find_end, seconds_left
from runs.work import Work
from tools.redaction import bound_text


def open_step(work: Work) -> None:
    work.step_number += 1
    work.attempt = 1
    work.decision = None
    work.operations = []
    work.parked = None
    work.wait = None
    work.bad_answers = []
    work.spend(work.spent.plus(budgets.ONE_STEP))
    if work.setbacks:
        work.setbacks = work.change.run["setbacks"] = 0
    work.change.run["step_number"] = work.step_number
    work.change.open_step = work.step_number
    work.change.open_attempt = 1
    work.move(RunEvent.OPEN_STEP)


def close_step(work: Work) -> bool:
    """Plan the end of the step. True when the run was given back, or has ended with it."""
    work.commit_opening()
    decision = work.decision
    last = to_observed(work.operations[-1]) if work.operations else None
    match decision:
        case Sleep() | WaitFor() | Ask():
            begin_wait(work, decision)
            return not look_again(work)
        case Finish(result=result):
            _checkpoint(work, last)
            work.change.run |= {"result": result, "error": ""}
            work.move(RunEvent.COMPLETE)
            finish(work)
            return True
        case Fail(reason=reason):
            _checkpoint(work, last)
            fail(work, reason or "the decider gave up")
            return True
        case Compensate(reason=reason):
            _end_step(work, last)
            reason = reason or "the decider had it compensated"
            work.change.run["error"] = bound_text(reason, TEXT_LIMIT)
            begin_compensating(work, reason=reason, ending=RunState.FAILED)
        case CallTools() if work.saga is not None:
            _end_step(work, last)
            _say_if_failed(work)
            work.move(RunEvent.COMPENSATE)
        case CallTools() | Delegate() | DelegateAll():
            note_action(work)
            _end_step(work, last)
            work.move(RunEvent.CLOSE_STEP)
            if work.failures >= MAX_FAILURES:
                fail(work, f"{work.failures} decisions in a row had calls that cannot be made")
                return True
        case None:
            raise AssertionError("a step closes only after its decision")
        case _ as never:
            assert_never(never)
    return False


def look_again(work: Work) -> bool:
    """Plan the end of the step if what it waits for is there. False when it was given back."""
    wait = work.wait
    assert wait is not None, "a run that waits has a row that says what for"
    if wait.kind == Wait.Kind.CHILD:
        ended = Ended(Wait.Outcome.CAME) if settle_children(work) else None
    else:
        ended = find_end(work)
    if ended is None:
        work.release(wake_in=seconds_left(work))
        return False
    end_wait(work, ended)
    if wait.kind == Wait.Kind.CHILD:
        if work.saga is None:
            note_action(work)
        else:
            _say_if_failed(work)
        _end_step(work, to_observed(work.operations[-1]))
    else:
        forget_actions(work)
        _end_step(work, wait_to_observed(wait) if wait.kind != Wait.Kind.TIMER else None)
    work.move(RunEvent.WAKE if work.saga is None else RunEvent.COMPENSATE)
    return True


def _say_if_failed(work: Work) -> None:
    """Whoever resumes a paused saga has to know that its newest compensation came to nothing."""
    newest = work.operations[-1]
    if work.is_paused and newest.status != OperationStatus.COMMITTED:
        work.pause(say_failed(newest))


def _end_step(work: Work, last: Observed | None) -> None:
    """Plan that the step closes, with what the decider will see of it."""
    _checkpoint(work, last)
    work.change.close_attempt = "done"
    work.change.close_step = True
    if work.window is not None:
        work.window.extend(to_observed(operation) for operation in work.operations)
        if last is not None and not work.operations:
            work.window.append(last)


def _checkpoint(work: Work, last: Observed | None) -> None:
    work.change.checkpoint = encode_checkpoint(step_number=work.step_number, last=last)
