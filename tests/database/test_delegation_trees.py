"""Delegation: one tree of runs, and what of it is done once."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import (
    CallTools,
    Context,
    Decision,
    Delegate,
    Fail,
    Finish,
    Script,
    ToolCall,
)
from runs.access import Actor, operator
from runs.control import compensate_run, pause_run
from runs.corrections import correct_by_hand
from runs.forking import fork_run
from runs.models import AgentRun
from runs.retrying import retry_run
from runs.state import RunState
from tests.database.delegating import child_of, children_of, delegate, paying_child, worker
from tests.database.kit import (
    ON_DATABASE,
    change,
    drive,
    scripted_tool,
)
from tools import Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- One tree, one intent ------------------------------------------------------


def test_a_fork_that_delegates_again_repeats_nothing_that_a_child_did(start: Start) -> None:
    pay = scripted_tool({"paid": 1}, {"paid": 2})
    worker(Script(ToolCall("pay", amount=1), Finish("{last}")), tools=("pay",))
    run = start(decider=Script(Delegate("helper"), Finish("{last}")))
    drive(run)
    drive(child_of(run))
    drive(run)
    fork = fork_run(actor=operator(), run_id=run.id, step=0).run
    drive(fork)
    drive(again := child_of(fork))
    drive(fork)
    assert (fork.result, len(pay.calls)) == ({"paid": 1}, 1)
    assert again.lineage == child_of(run).lineage


def test_equal_delegations_that_both_count_are_two(start: Start) -> None:
    pay = scripted_tool({"paid": 1}, {"paid": 2})
    worker(Script(ToolCall("pay", amount=1), Finish("{last}")), tools=("pay",))
    run = start(decider=delegate(Delegate("helper"), Delegate("helper")))
    drive(run)
    for child in children_of(run):
        drive(child)
    assert len(pay.calls) == 2


def test_a_delegation_that_came_to_nothing_and_is_made_again_repeats_no_effect(
    start: Start,
) -> None:
    pay = scripted_tool({"paid": 1}, {"paid": 2})
    is_mended: list[bool] = []

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=1))
        return Finish("done") if is_mended else Fail("not yet")

    worker(decide, tools=("pay",))
    run = start(
        decider=lambda context: (
            Finish("done")
            if context.last is not None and context.last.committed
            else Delegate("helper")
        )
    )
    drive(run)
    drive(child_of(run))
    drive(run)
    is_mended.append(True)
    for child in AgentRun.objects.filter(parent=run, state=RunState.READY):
        drive(child)
    drive(run)
    assert (run.state, len(pay.calls)) == (RunState.COMPLETED, 1)


def test_a_tree_of_runs_has_only_so_many(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.delegation.MOST_IN_TREE", 3)
    worker(Script(Finish(1)))
    run = start(decider=delegate(*(Delegate("helper") for _ in range(5))))
    drive(run)
    statuses = [one.status for one in run.operations.order_by("ordinal")]
    assert statuses == ["RUNNING"] * 3 + ["CANCELLED"] * 2


def test_looking_at_many_children_costs_one_query_for_all(start: Start) -> None:
    worker(Script(Finish(1)))
    run = start(decider=delegate(*(Delegate("helper") for _ in range(12))))
    drive(run)
    change("UPDATE runs_agentrun SET wake_at = now() WHERE id = %s", run.id)
    with CaptureQueriesContext(connection) as queries:
        drive(run)
    assert run.state == RunState.WAITING
    assert len([one for one in queries if '"runs_agentrun"."id" IN' in one["sql"]]) == 1


def test_a_child_with_a_late_effect_is_corrected_once_more(start: Start) -> None:
    undone: list[Any] = []
    paying_child(undone=undone)
    run = start(decider=Script(Delegate("helper"), Finish()))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    change(
        "UPDATE runs_agentrun SET compensating_since = now() - interval '1 day',"
        " compensation_ending = 'CANCELLED' WHERE id = %s",
        child.id,
    )
    compensate_run(actor=operator(), run_id=run.id)
    for _ in range(4):
        drive(run)
        drive(child)
    assert (run.state, len(undone)) == (RunState.CANCELLED, 1)


def test_a_persons_pause_outlives_what_the_engine_has_to_say(start: Start) -> None:
    scripted_tool(Rejected("no"), name="undo")
    scripted_tool({"paid": 1}, compensation_handler="undo")

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay", amount=1))
        return Fail("no")

    run = start(decider=decide, tools=("pay",), on_failure="compensate")
    drive(run)
    pause_run(actor=operator(), run_id=run.id, reason="lunch")
    change("UPDATE runs_agentrun SET wake_at = now(), paused_at = NULL WHERE id = %s", run.id)
    drive(run)
    assert run.pause_reason.startswith("operation ")
    change(
        "UPDATE runs_agentrun SET pause_reason = 'lunch; ' || pause_reason WHERE id = %s", run.id
    )
    paid = run.operations.get(tool="pay")
    correct_by_hand(actor=operator(), operation_id=paid.id, evidence="by phone")
    run.refresh_from_db()
    assert run.paused_at is not None


def test_a_parent_is_retried_although_a_child_that_failed_had_corrected_itself(
    start: Start,
) -> None:
    paying_child(undone=[])
    worker(
        Script(ToolCall("pay", amount=1), Fail("no")),
        name="doubter",
        tools=("pay",),
        on_failure="compensate",
    )
    run = start(decider=Script(Delegate("doubter"), Finish()))
    drive(run)
    for _ in range(4):
        drive(child_of(run))
    drive(run)
    assert run.state == RunState.FAILED
    retry_run(actor=operator(), run_id=run.id)


def test_an_effect_that_its_handler_lets_stand_is_still_a_fact(start: Start) -> None:
    scripted_tool({"paid": 1}, compensation_handler=lambda call: None)
    run = start(decider=Script(ToolCall("pay", amount=1), Finish()), tools=("pay",))
    drive(run)
    compensate_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == RunState.CANCELLED
    fork_run(actor=operator(), run_id=run.id, step=1)


def test_who_had_the_parent_corrected_is_known_to_the_child(start: Start) -> None:
    paying_child(undone=[])
    run = start(decider=Script(Delegate("helper"), Finish()))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    bob = Actor(name="bob", scopes=frozenset({"runs:write"}))
    compensate_run(actor=bob, run_id=run.id)
    drive(run)
    assert [one.by for one in child.requests.all()] == [f"run {run.id}"]
