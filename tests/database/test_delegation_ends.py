"""Delegation and its ends: correcting, retrying, forking, telling and paying for child runs."""

from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from runs import (
    Budget,
    CallTools,
    Context,
    Decision,
    Delegate,
    Fail,
    Finish,
    Script,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.access import operator
from runs.control import cancel_run, compensate_run
from runs.delegation import tell_parent
from runs.errors import AlreadyCorrected
from runs.models import AgentRun, ToolOperation
from runs.retrying import retry_run
from runs.state import RunState
from tests.database.delegating import child_of, children_of, delegate, paying_child, worker
from tests.database.kit import (
    ON_DATABASE,
    another_connection,
    change,
    drive,
    run_edges,
)

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- Compensating --------------------------------------------------------------


def test_compensating_the_parent_corrects_what_its_children_did(start: Start) -> None:
    undone: list[Any] = []
    paying_child(undone=undone)

    run = start(decider=Script(Delegate("helper"), WaitFor("more"), Finish()))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    assert (run.state, child.state) == (RunState.WAITING, RunState.COMPLETED)
    compensate_run(actor=operator(), run_id=run.id, reason="wrong order")
    drive(run)
    while run.state not in (RunState.CANCELLED, RunState.FAILED):
        drive(child)
        drive(run)
    assert run.state == RunState.CANCELLED
    assert child.state == RunState.CANCELLED
    assert undone == [child.operations.get(tool="pay").id]
    assert run_edges(run)[-1] == "CANCEL"
    correction = ToolOperation.objects.get(run=run, tool="compensate_run")
    begun = ToolOperation.objects.get(run=run, tool="delegate")
    assert (correction.status, correction.compensates_id) == ("COMMITTED", begun.id)


# -- Budgets -------------------------------------------------------------------


def test_what_a_child_spends_is_spent_by_its_parent(start: Start) -> None:
    worker(Script(Sleep(timedelta(0)), Sleep(timedelta(0)), Finish(1)))
    run = start(decider=delegate(Delegate("helper")), budget=Budget(steps=10))
    drive(run)
    # All that is left is reserved while the child goes on.
    assert run.spent_steps == 10
    drive(child := child_of(run))
    assert (child.budget["steps"], child.spent_steps) == (9, 3)
    drive(run)
    assert (run.state, run.spent_steps) == (RunState.COMPLETED, 5)


def test_a_child_cannot_spend_what_its_parent_has_not_left(start: Start) -> None:
    worker(lambda context: Sleep(timedelta(0)))
    run = start(decider=delegate(Delegate("helper"), Delegate("helper")), budget=Budget(steps=5))
    drive(run)
    for child in children_of(run):
        drive(child)
        assert (child.spent_steps, child.wake_at) == (2, None)
        assert "2 of 2 steps" in child.pause_reason


def test_tokens_of_children_count_too(start: Start) -> None:
    def decide(context: Context) -> Decision:
        context.usage.add(tokens=30, cost_usd="0.01")
        return Finish(1)

    worker(decide)
    run = start(decider=delegate(Delegate("helper")), budget=Budget(tokens=100))
    drive(run)
    drive(child_of(run))
    drive(run)
    assert (run.spent_tokens, str(run.spent_cost_usd)) == (30, "0.010000")


def test_a_parent_that_waits_for_a_childs_correction_is_told_of_its_second_end(
    start: Start,
) -> None:
    undone: list[Any] = []
    paying_child(undone=undone)
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    assert run.state == RunState.COMPLETED
    compensate_run(actor=operator(), run_id=child.id)
    compensate_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.wake_at) == (RunState.WAITING, None)
    for _ in range(4):
        drive(child)
    run.refresh_from_db()
    assert run.wake_at is not None
    drive(run)
    drive(run)
    assert run.state == RunState.CANCELLED
    assert len(undone) == 1


def test_a_cancelled_parent_lets_a_child_that_corrects_itself_come_to_its_end(
    start: Start,
) -> None:
    undone: list[Any] = []
    paying_child(undone=undone)
    worker(
        Script(ToolCall("pay", amount=1), Fail("no")),
        name="doubter",
        tools=("pay",),
        on_failure="compensate",
    )
    run = start(decider=delegate(Delegate("doubter")))
    drive(run)
    child = child_of(run)
    drive(child)
    assert child.compensating_since is not None
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.error) == (RunState.WAITING, "")
    for _ in range(4):
        drive(child)
    assert (child.state, len(undone)) == (RunState.FAILED, 1)
    drive(run)
    assert run.state == RunState.CANCELLED


def test_a_run_that_corrects_what_it_did_after_a_failure_is_not_stopped_by_a_late_cancel(
    start: Start,
) -> None:
    undone: list[Any] = []
    paying_child(undone=undone)

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=1))
        cancel_run(actor=operator(), run_id=run.id)
        connection.close()
        return Fail("no")

    run = start(decider=decide, tools=("pay",), on_failure="compensate")
    for _ in range(4):
        drive(run)
    assert (run.state, len(undone)) == (RunState.FAILED, 1)


def test_a_parent_whose_childs_work_was_taken_back_is_not_retried(start: Start) -> None:
    paying_child(undone=[])
    run = start(decider=Script(Delegate("helper"), Fail("no")))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    assert run.state == RunState.FAILED
    compensate_run(actor=operator(), run_id=child.id)
    with pytest.raises(AlreadyCorrected):
        retry_run(actor=operator(), run_id=run.id)


def test_telling_a_parent_and_retrying_its_child_never_wait_for_each_other(start: Start) -> None:
    worker(Script(Fail("no")))
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    child = child_of(run)
    drive(child)
    change("UPDATE runs_agentrun SET parent_told_at = NULL WHERE id = %s", child.id)
    with another_connection(autocommit=False) as other:
        # As `retry_run` does: the parent, then the child.
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [run.id])
        telling = Thread(target=_tell, args=(child,))
        telling.start()
        telling.join(timeout=0.5)
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [child.id])
        other.commit()
    telling.join()
    child.refresh_from_db()
    assert child.parent_told_at is not None


def _tell(child: AgentRun) -> None:
    assert child.parent_id is not None
    change("SET lock_timeout = '60s'")
    tell_parent(child.id, child.parent_id)
    connection.close()
