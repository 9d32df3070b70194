"""What the worker makes of requests: heeded at its next commit, and effects settled first."""

from uuid import UUID

import pytest

from runs import Agent, CallTools, Context, Decision, Delegate, Finish, ToolCall, WaitFor
from runs.commands import (
    cancel_run,
    compensate_run,
    pause_run,
    resume_run,
    retry_run,
    signal_run,
)
from runs.models import AgentRun, Signal
from tests.database.controlling import ANN, asked_of
from tests.database.gating import Start
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    drive,
    drive_in_time,
    drive_when_due,
    found,
    operation_of,
    scripted_tool,
)
from tests.database.sagas import Books
from tools import Call

pytestmark = ON_DATABASE


def test_a_pause_during_the_decision_keeps_its_call_from_being_sent(start: Start) -> None:
    script = scripted_tool({"id": 1})

    def decide(context: Context) -> Decision:
        if context.last is not None:
            return Finish("done")
        pause_run(actor=ANN, run_id=run.id)
        return CallTools(ToolCall("pay"))

    run = start(decider=decide, tools=("pay",))
    drive(run)
    for _ in range(2):
        drive_when_due(run)
    assert script.calls == []
    resume_run(actor=ANN, run_id=run.id)
    drive(run)
    assert (run.state, len(script.calls)) == ("COMPLETED", 1)


def test_a_pause_during_a_call_lets_its_outcome_be_recorded(start: Start) -> None:
    def pause_meanwhile(call: Call) -> object:
        pause_run(actor=ANN, run_id=UUID(call.run_id))
        return {"id": 1}

    script = scripted_tool(pause_meanwhile, {"id": 2})
    run = start(
        decider=lambda context: CallTools(ToolCall("pay", amount=context.step_number)),
        tools=("pay",),
    )
    drive(run)
    first = run.operations.get(step_number=1)
    assert (first.status, len(script.calls)) == ("COMMITTED", 1)
    drive_when_due(run)
    assert len(script.calls) == 1


def test_an_unknown_effect_of_a_paused_run_is_reconciled(start: Start) -> None:
    scripted_tool(LOST, look_up=Script(found("it happened")))
    run = start(decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",))
    drive(run)
    assert operation_of(run).status == "UNKNOWN"
    pause_run(actor=ANN, run_id=run.id)
    drive_when_due(run)
    assert operation_of(run).status == "COMMITTED"
    assert run.step_number == 1


def test_a_signal_to_a_paused_run_is_kept_and_heeded_once_it_goes_on(start: Start) -> None:
    run = start(
        decider=lambda context: Finish(context.last.result) if context.last else WaitFor("paid")
    )
    drive(run)
    pause_run(actor=ANN, run_id=run.id)
    signal_run(actor=ANN, run_id=run.id, name="paid", event_id="e1", payload=17)
    drive(run)
    assert run.state != "COMPLETED"
    resume_run(actor=ANN, run_id=run.id)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", 17)
    assert Signal.objects.get().delivered_at is not None


def test_a_cancel_travels_to_the_runs_that_are_waited_for(start: Start) -> None:
    Agent(name="patient", decider=lambda context: WaitFor("never"))
    run = start(decider=lambda context: Delegate("patient"))
    drive(run)
    child = AgentRun.objects.get(parent=run)
    drive(child)
    assert (run.state, child.state) == ("WAITING", "WAITING")
    cancel_run(actor=ANN, run_id=run.id)
    for _ in range(3):
        drive_when_due(run)
        drive_when_due(child)
    assert (child.state, run.state) == ("CANCELLED", "CANCELLED")
    assert asked_of(child) == [("cancel", f"run {run.id}")]


def test_a_completed_run_is_corrected_and_then_cannot_be_corrected_or_retried(
    start: Start,
) -> None:
    books = Books()
    books.define("pay", "ship")

    def decide(context: Context) -> Decision:
        calls = ("do_pay", "do_ship")
        return (
            CallTools(ToolCall(calls[context.step_number - 1]))
            if context.step_number <= 2
            else Finish("done")
        )

    run = start(decider=decide, tools=("do_pay", "do_ship"))
    drive(run)
    assert run.state == "COMPLETED"
    compensate_run(actor=ANN, run_id=run.id, reason="wrong order")
    run.refresh_from_db()
    drive_in_time(run)
    assert run.state == "CANCELLED"
    assert books.names == ["do_pay", "do_ship", "undo_ship", "undo_pay"]
    for request in (compensate_run, retry_run):
        with pytest.raises(Exception, match=r"no committed effect|can no longer"):
            request(actor=ANN, run_id=run.id)


def test_a_cancel_with_compensation_corrects_before_it_ends(start: Start) -> None:
    books = Books()
    books.define("pay")
    run = start(
        decider=lambda context: WaitFor("never") if context.last else CallTools(ToolCall("do_pay")),
        tools=("do_pay",),
    )
    drive(run)
    assert run.state == "WAITING"
    cancel_run(actor=ANN, run_id=run.id, compensate=True)
    run.refresh_from_db()
    drive_in_time(run)
    assert (run.state, books.names) == ("CANCELLED", ["do_pay", "undo_pay"])
