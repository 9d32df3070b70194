"""Waiting: for a time, a signal or an answer, with rows and dates, and nobody blocked meanwhile."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection

from runs import (
    Ask,
    CallTools,
    Context,
    Decision,
    Finish,
    Script,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.access import Actor, operator
from runs.context import Observed
from runs.control import cancel_run, pause_run
from runs.models import AgentRun, Checkpoint, Question, Signal, Step, StepAttempt, Wait
from runs.resuming import resume_run
from runs.signals import signal_run
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    ask,
    change,
    drive,
    let_pass,
    pass_until_due,
    run_edges,
    scripted_tool,
)

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
ANN = Actor(name="ann", scopes=frozenset({"runs:write"}))
HOUR = timedelta(hours=1)


def show(context: Context) -> Decision:
    """Finish with what is known of the newest observation."""
    last = context.last
    assert last is not None
    return Finish([last.kind, last.tool, last.result, last.author, last.timed_out])


def wait_then_show(decision: Decision) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        return decision if context.step_number == 1 else show(context)

    return decide


def tell(run: AgentRun, name: str = "paid", payload: Any = None, event_id: str = "e1") -> None:
    signal_run(actor=ANN, run_id=run.id, name=name, payload=payload, event_id=event_id)
    run.refresh_from_db()


# -- Sleeping ------------------------------------------------------------------


def test_a_sleeping_run_is_a_row_with_a_date_and_nobody_holds_it(start: Start) -> None:
    run = start(decider=Script(Sleep(HOUR), Finish("up")))
    drive(run)
    assert (run.state, run.lease_owner) == (RunState.WAITING, "")
    assert (
        3590 < ask("SELECT EXTRACT(EPOCH FROM wake_at - now())::float8 FROM runs_agentrun") <= 3600
    )
    assert ask("SELECT wake_at = (SELECT until FROM runs_wait) FROM runs_agentrun")
    assert not drive(run).claimed


def test_it_wakes_when_the_time_is_over_and_not_before(start: Start) -> None:
    run = start(decider=Script(Sleep(HOUR), Finish("up")))
    drive(run)
    let_pass(minutes=59, seconds=50)
    assert not drive(run).claimed
    let_pass(seconds=11)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "up")
    assert run_edges(run)[3:5] == ["WAIT", "WAKE"]


def test_sleeping_until_a_time_that_is_past_is_no_sleep(start: Start) -> None:
    run = start(decider=Script(Sleep(timedelta(0)), Finish("up")))
    drive(run)
    assert run.state == RunState.COMPLETED
    assert Wait.objects.get().outcome == Wait.Outcome.CAME


def test_a_timer_is_no_observation(start: Start) -> None:
    pay = scripted_tool({"paid": 1})

    def decide(context: Context) -> Decision:
        match context.step_number:
            case 1:
                return CallTools(ToolCall("pay"))
            case 2:
                return Sleep(HOUR)
        return Finish([one.tool for one in context.observations])

    run = start(decider=decide, tools=("pay",))
    drive(run)
    pass_until_due(run)
    drive(run)
    assert (run.result, len(pay.calls)) == (["pay"], 1)


def test_every_waiting_step_is_closed_with_a_checkpoint_and_no_attempt_is_left(
    start: Start,
) -> None:
    run = start(decider=Script(Sleep(HOUR), WaitFor("paid"), Finish("up")))
    drive(run)
    pass_until_due(run)
    drive(run)
    tell(run)
    drive(run)
    assert run.state == RunState.COMPLETED
    assert Checkpoint.objects.count() == 3
    assert not Step.objects.filter(closed_at=None).exists()
    assert not StepAttempt.objects.filter(ended_at=None).exists()


# -- Signals -------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_a_signal_is_found_whether_it_comes_before_or_after_the_wait(
    start: Start, early: bool
) -> None:
    run = start(decider=wait_then_show(WaitFor("paid")))
    if early:
        tell(run, payload={"amount": 5})
        drive(run)
    else:
        drive(run)
        assert (run.state, run.wake_at) == (RunState.WAITING, None)
        tell(run, payload={"amount": 5})
        drive(run)
    assert run.state == RunState.COMPLETED
    assert run.result == ["signal", "paid", {"amount": 5}, "ann", False]


def test_a_signal_that_comes_while_the_run_is_held_is_not_missed(start: Start) -> None:
    def decide(context: Context) -> Decision:
        if context.step_number == 1:
            # Another connection: deciders are asked in a thread of their own.
            tell(AgentRun.objects.get(id=context.run_id), payload="early")
            connection.close()
            return WaitFor("paid")
        return show(context)

    run = start(decider=decide)
    drive(run)
    assert run.result == ["signal", "paid", "early", "ann", False]


def test_a_signal_that_comes_between_the_look_and_the_parking_makes_the_run_due(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runs import waiting

    looked = waiting._find_signal

    def look(work: Any, name: str) -> Signal | None:
        found = looked(work, name)
        thread = Thread(target=_tell_from_elsewhere, args=(run,))
        thread.start()
        thread.join()
        return found

    run = start(decider=wait_then_show(WaitFor("paid")))
    with monkeypatch.context() as patched:
        patched.setattr(waiting, "_find_signal", look)
        drive(run)
    assert run.state == RunState.WAITING
    drive(run)
    assert run.state == RunState.COMPLETED


def _tell_from_elsewhere(run: AgentRun) -> None:
    tell(AgentRun.objects.get(id=run.id))
    connection.close()


def test_signals_of_one_name_are_handed_over_once_and_in_order(start: Start) -> None:
    def decide(context: Context) -> Decision:
        if context.step_number <= 3:
            return WaitFor("paid")
        return Finish([one.payload for one in context.signals])

    run = start(decider=decide)
    for n in range(3):
        tell(run, payload=n, event_id=f"e{n}")
        tell(run, payload=n, event_id=f"e{n}")
    drive(run)
    assert run.result == [0, 1, 2]
    assert list(Signal.objects.order_by("id").values_list("delivered_step", flat=True)) == [1, 2, 3]


def test_two_signals_with_one_id_thirty_milliseconds_apart_are_one(start: Start) -> None:
    run = start(decider=Script(WaitFor("paid"), WaitFor("paid", timeout=HOUR), Finish()))
    drive(run)
    both = Barrier(2)

    def send(delay: float) -> None:
        both.wait()
        change("SELECT pg_sleep(%s)", delay)
        tell(AgentRun.objects.get(id=run.id), payload=7)
        connection.close()

    threads = [Thread(target=send, args=(delay,)) for delay in (0, 0.03)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drive(run)
    assert Signal.objects.count() == 1
    assert (run.state, run.step_number) == (RunState.WAITING, 2)


def test_another_name_does_not_wake_the_wait_and_is_kept(start: Start) -> None:
    run = start(decider=Script(WaitFor("paid"), WaitFor("shipped"), Finish("done")))
    drive(run)
    tell(run, name="shipped")
    drive(run)
    assert (run.state, run.wake_at) == (RunState.WAITING, None)
    tell(run, name="paid", event_id="e2")
    drive(run)
    assert run.result == "done"


def test_a_signal_that_does_not_come_in_time_is_an_observation(start: Start) -> None:
    run = start(decider=wait_then_show(WaitFor("paid", timeout=HOUR)))
    drive(run)
    pass_until_due(run)
    drive(run)
    assert run.result == ["signal", "paid", None, "", True]
    # It comes too late for this wait, and another one could still have it.
    assert Wait.objects.get().outcome == Wait.Outcome.TIMED_OUT


def test_a_script_fails_where_what_it_waits_for_does_not_come(start: Start) -> None:
    run = start(decider=Script(WaitFor("paid", timeout=HOUR), Finish("done")))
    drive(run)
    pass_until_due(run)
    drive(run)
    assert (run.state, run.error) == (
        RunState.FAILED,
        "paid ended as CANCELLED: no signal came in time",
    )


# -- Questions -----------------------------------------------------------------

COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}}


def answer(run: AgentRun, value: Any) -> None:
    change(
        "UPDATE runs_question SET status = 'answered', answer = %s::jsonb, answered_by = 'bo',"
        " ended_at = now() WHERE run_id = %s",
        value,
        run.id,
    )
    change("UPDATE runs_agentrun SET wake_at = now(), sweep_at = now() WHERE id = %s", run.id)


def test_an_answer_reaches_the_decider_with_its_author(start: Start) -> None:
    run = start(decider=wait_then_show(Ask("Which?", COLOUR, groups=("staff",), timeout=HOUR)))
    drive(run)
    question = Question.objects.get()
    assert (question.status, question.text, question.groups) == ("open", "Which?", ["staff"])
    assert question.schema == COLOUR
    assert ask("SELECT event_id FROM runs_notice") == f"question.asked:{question.id}"
    answer(run, '{"colour": "red"}')
    drive(run)
    assert run.result == ["answer", "Which?", {"colour": "red"}, "bo", False]


def test_a_question_that_nobody_answers_in_time_expires_and_is_no_answer(start: Start) -> None:
    run = start(decider=wait_then_show(Ask("Which?", COLOUR, timeout=HOUR)))
    drive(run)
    pass_until_due(run)
    drive(run)
    assert Question.objects.get().status == Question.Status.EXPIRED
    assert run.result == ["answer", "Which?", None, "", True]


def test_a_schema_that_nobody_could_answer_is_no_decision(start: Start) -> None:
    run = start(
        decider=lambda context: Ask("Which?", {"type": "object", "$ref": "http://elsewhere/"})
    )
    drive(run)
    assert not Question.objects.exists()
    assert run.failures == 1


# -- Cancelling and pausing ----------------------------------------------------

WAITS = {
    "timer": Sleep(HOUR),
    "signal": WaitFor("paid", timeout=HOUR),
    "question": Ask("Which?", COLOUR, timeout=HOUR),
}


@pytest.mark.parametrize("decision", WAITS.values(), ids=WAITS)
def test_a_waiting_run_is_cancelled_at_once(start: Start, decision: Decision) -> None:
    run = start(decider=wait_then_show(decision))
    drive(run)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == RunState.CANCELLED
    assert Wait.objects.get().outcome == Wait.Outcome.CANCELLED
    assert not Question.objects.filter(status="open").exists()
    assert not StepAttempt.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize("decision", WAITS.values(), ids=WAITS)
def test_a_paused_run_ends_its_wait_in_time_and_decides_nothing(
    start: Start, decision: Decision
) -> None:
    run = start(decider=wait_then_show(decision))
    drive(run)
    pause_run(actor=operator(), run_id=run.id)
    pass_until_due(run)
    drive(run)
    assert (run.state, run.wake_at, run.step_number) == (RunState.READY, None, 1)
    resume_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.step_number == 2


def test_what_came_of_waiting_is_part_of_the_context_of_every_worker(start: Start) -> None:
    seen: list[tuple[Observed, ...]] = []

    def decide(context: Context) -> Decision:
        seen.append(context.observations)
        if context.step_number < 3:
            return WaitFor("paid")
        return Sleep(HOUR) if context.step_number == 3 else Finish()

    run = start(decider=decide)
    for n in range(2):
        tell(run, payload=n, event_id=f"e{n}")
    drive(run)
    in_memory = seen[-1]
    pass_until_due(run)
    drive(run, owner="worker 2")
    assert [one.result for one in in_memory] == [0, 1]
    assert seen[-1] == in_memory
