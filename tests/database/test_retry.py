"""A failed run goes on from its last checkpoint, and never does again what it committed."""

import threading
from typing import Any

import pytest
from django.db import connection

from runs import Agent, CallTools, Context, Decision, Delegate, Fail, Finish, Script, ToolCall
from runs.commands import cancel_run, retry_run
from runs.errors import AlreadyCorrected, ParentDecides, ParentHeld, WrongState
from runs.lease import claim
from runs.models import AgentRun, Incident, Step, Wait
from runs.state import RunState
from tests.database.controlling import (
    ANN,
    as_it_stands,
    asked_of,
    failed,
    finish,
    newest_edge,
    pause_in,
    pay_and_ship,
)
from tests.database.gating import Start, tamper
from tests.database.kit import ON_DATABASE, another_connection, ask, change, drive, scripted_tool
from tools import EffectType, Rejected

pytestmark = ON_DATABASE


def _voided(run: AgentRun) -> list[int]:
    rows = Step.objects.filter(run=run, voided_at__isnull=False).order_by("number")
    return list(rows.values_list("number", flat=True))


def test_it_is_ready_and_due_with_a_journal_row_and_a_clean_slate(start: Start) -> None:
    run, _ = failed(start)
    before = run.version
    again = retry_run(actor=ANN, run_id=run.id)
    assert (again.state, again.version, again.finished_at) == ("READY", before + 1, None)
    assert (again.error, again.failures, again.repeats) == ("", 0, 0)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
    assert newest_edge(run) == ("RETRY", "FAILED", "READY", "ann")
    spent = {"tokens": 0, "cost_usd": "0.000000"}
    assert run.requests.get().details == {"steps": [2, 3], "spent": spent}


def test_steps_after_the_last_committed_write_are_taken_back(start: Start) -> None:
    run, _ = failed(start)
    assert retry_run(actor=ANN, run_id=run.id).voided_steps == 2
    assert _voided(run) == [2, 3]


def test_a_read_is_done_again_and_a_write_is_not(start: Start) -> None:
    scripted_tool({"id": 1}, name="pay")
    scripted_tool("seen", name="look", effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        names = ("pay", "look")
        if context.step_number <= 2:
            return CallTools(ToolCall(names[context.step_number - 1]))
        return Fail("no")

    run = start(decider=decide, tools=("pay", "look"))
    drive(run)
    retry_run(actor=ANN, run_id=run.id)
    assert _voided(run) == [2, 3]


def test_what_the_run_was_told_is_not_asked_for_again(start: Start) -> None:
    run, _ = failed(start)
    step = run.steps.get(number=2)
    wait = Wait.objects.create(
        step=step,
        run=run,
        step_number=2,
        kind=Wait.Kind.SIGNAL,
        name="paid",
        ended_at=step.opened_at,
        outcome=Wait.Outcome.CAME,
    )
    assert wait.outcome == "came"
    retry_run(actor=ANN, run_id=run.id)
    assert _voided(run) == [3]


def test_an_effect_that_came_late_counts_as_committed(start: Start) -> None:
    run, _ = failed(start)
    Incident.objects.create(
        run=run, operation=run.operations.get(tool="ship"), kind=Incident.Kind.LATE_COMMIT
    )
    retry_run(actor=ANN, run_id=run.id)
    assert _voided(run) == [3]


def test_a_retry_is_not_cancelled_or_held_by_requests_of_its_former_life(start: Start) -> None:
    run, _ = failed(start)
    pause_in(run)
    tamper("UPDATE runs_agentrun SET cancel_requested_at = now(), cancel_requested_by = 'eve'")
    again = retry_run(actor=ANN, run_id=run.id)
    assert (again.paused_at, again.cancel_requested_at) == (None, None)


@pytest.mark.parametrize("state", ["READY", "COMPLETED", "CANCELLED"])
def test_only_a_failed_run_is_retried(start: Start, state: str) -> None:
    run = start(decider=finish)
    if state == "CANCELLED":
        cancel_run(actor=ANN, run_id=run.id)
    if state != "READY":
        drive(run)
    assert run.state == state
    before = as_it_stands(run)
    with pytest.raises(WrongState, match="retry"):
        retry_run(actor=ANN, run_id=run.id)
    assert as_it_stands(run) == before
    assert "retry" not in dict(asked_of(run))


def test_the_second_retry_finds_a_run_that_goes_on(start: Start) -> None:
    run, _ = failed(start)
    retry_run(actor=ANN, run_id=run.id)
    with pytest.raises(WrongState):
        retry_run(actor=ANN, run_id=run.id)
    assert asked_of(run) == [("retry", "ann")]


def test_two_retries_at_once_are_one(start: Start) -> None:
    run, _ = failed(start)
    with another_connection(autocommit=False) as other:
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [run.id])
        change("SET lock_timeout = '100ms'")
        with pytest.raises(Exception, match="lock timeout"):
            retry_run(actor=ANN, run_id=run.id)
        other.rollback()
    assert _voided(run) == []
    retry_run(actor=ANN, run_id=run.id)


def test_what_was_corrected_is_not_retried(start: Start) -> None:
    run, _ = failed(start)
    AgentRun.objects.filter(id=run.id).update(compensation_ending="FAILED")
    with pytest.raises(AlreadyCorrected):
        retry_run(actor=ANN, run_id=run.id)
    AgentRun.objects.filter(id=run.id).update(compensation_ending="")
    paid, shipped = run.operations.get(tool="pay"), run.operations.get(tool="ship")
    tamper(
        "UPDATE runs_tooloperation SET compensates_id = %s, status = 'COMMITTED' WHERE id = %s",
        paid.id,
        shipped.id,
    )
    with pytest.raises(AlreadyCorrected):
        retry_run(actor=ANN, run_id=run.id)
    assert _voided(run) == []


# -- Children -----------------------------------------------------------------------------------


def _family(start: Start, *answers: Any) -> tuple[AgentRun, AgentRun]:
    """A run that waits for another which paid and failed; it was told, and has not looked yet."""
    scripted_tool({"id": "re_1"}, name="pay")
    scripted_tool(*(answers or (Rejected("no"),)), name="ship")
    agent = Agent(name="shipping", decider=pay_and_ship, tools=("pay", "ship"))

    def decide(context: Context) -> Decision:
        if context.last is None:
            return Delegate(agent.name)
        return Finish(context.last.result) if context.last.committed else Fail("it failed")

    parent = start(decider=decide)
    drive(parent)
    child = AgentRun.objects.get(parent=parent)
    drive(child)
    parent.refresh_from_db()
    assert (parent.state, child.state) == ("WAITING", "FAILED")
    return parent, child


def test_a_child_is_retried_while_its_parent_waits_for_it_and_answers_it_anew(
    start: Start,
) -> None:
    parent, child = _family(start, Rejected("no"), {"id": "sh_1"})
    again = retry_run(actor=ANN, run_id=child.id)
    assert (again.state, again.parent_told_at) == ("READY", None)
    drive(parent)
    assert parent.state == "WAITING"
    drive(child)
    drive(parent)
    assert (child.state, parent.state, parent.result) == ("COMPLETED", "COMPLETED", "shipped")


def test_a_child_whose_parent_took_its_failure_for_an_answer_is_not_retried(start: Start) -> None:
    parent, child = _family(start)
    drive(parent)
    assert parent.state == "FAILED"
    with pytest.raises(ParentDecides, match="answer") as refused:
        retry_run(actor=ANN, run_id=child.id)
    assert refused.value.parent_id == str(parent.id)


def test_a_child_is_not_retried_while_its_parent_may_be_reading_its_end(start: Start) -> None:
    parent, child = _family(start)
    assert claim(run_id=parent.id, owner="worker 9") is not None
    with pytest.raises(ParentHeld):
        retry_run(actor=ANN, run_id=child.id)
    child.refresh_from_db()
    assert child.state == "FAILED"


def test_a_parent_does_not_start_a_child_again_that_left_effects(start: Start) -> None:
    parent, _ = _family(start)
    drive(parent)
    retry_run(actor=ANN, run_id=parent.id)
    assert _voided(parent) == [2]


def test_a_child_whose_parent_was_purged_is_not_retried(start: Start) -> None:
    run, _ = failed(start)
    AgentRun.objects.filter(id=run.id).update(parent_operation="op_gone")
    with pytest.raises(WrongState, match="gone"):
        retry_run(actor=ANN, run_id=run.id)


# -- What the worker then does ------------------------------------------------------------------


def test_it_completes_and_the_committed_effect_was_made_once(start: Start) -> None:
    run, ship = failed(start, Rejected("no"), {"id": "sh_1"})
    retry_run(actor=ANN, run_id=run.id)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "shipped")
    assert run.operations.filter(tool="pay").count() == 1
    assert len(ship.calls) == 2


def test_a_script_does_its_refused_entry_again(start: Start) -> None:
    pay = scripted_tool({"id": "re_1"}, name="pay")
    ship = scripted_tool(Rejected("no stock"), {"id": "sh_1"}, name="ship")
    script = Script(ToolCall("pay"), ToolCall("ship"), Finish("{last.id}"))
    run = start(decider=script, tools=("pay", "ship"))
    drive(run)
    assert run.state == "FAILED"
    retry_run(actor=ANN, run_id=run.id)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "sh_1")
    assert (len(pay.calls), len(ship.calls)) == (1, 2)
    assert len({call.operation_id for call in ship.calls}) == 2


def test_of_four_retries_at_once_one_is_carried_out(start: Start) -> None:
    run, _ = failed(start)
    together = threading.Barrier(4)
    heard: list[object] = []

    def request() -> None:
        together.wait(timeout=20)
        try:
            heard.append(retry_run(actor=ANN, run_id=run.id).state)
        except WrongState as error:
            heard.append(error.state)
        finally:
            connection.close()

    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == ["READY"] * 4
    assert asked_of(run) == [("retry", "ann")]
    run.refresh_from_db()
    assert run.voided_steps == 2
