"""Delegation and its ends: correcting, retrying, forking, telling and paying for child runs."""

from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import (
    Agent,
    Budget,
    CallTools,
    Context,
    Decision,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Script,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.access import Actor, operator
from runs.control import cancel_run, compensate_run, pause_run
from runs.corrections import correct_by_hand
from runs.delegation import tell_parent
from runs.errors import AlreadyCorrected
from runs.forking import fork_run
from runs.models import AgentRun, ToolOperation
from runs.retrying import retry_run
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    another_connection,
    change,
    drive,
    run_edges,
    scripted_tool,
)
from tools import Rejected, tool
from tools.declarations import EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def child_of(run: AgentRun, n: int = 0) -> AgentRun:
    return list(AgentRun.objects.filter(parent=run).order_by("parent_operation", "created_at"))[n]


def children_of(run: AgentRun) -> list[AgentRun]:
    places = {one.id: one.ordinal for one in ToolOperation.objects.filter(run=run)}
    found = AgentRun.objects.filter(parent=run)
    return sorted(found, key=lambda one: places[one.parent_operation or ""])


def worker(decider: Any, name: str = "helper", **options: Any) -> None:
    Agent(name=name, decider=decider, **options)


def ends_as(context: Context) -> Decision:
    last = context.last
    assert last is not None
    return Finish([last.kind, last.tool, str(last.status), last.result, last.error])


def delegate(*children: Delegate) -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        if context.step_number > 1:
            return ends_as(context)
        return children[0] if len(children) == 1 else DelegateAll(*children)

    return decide


# -- Compensating --------------------------------------------------------------


def paying_child(*, undone: list[Any]) -> None:
    @tool(name="undo", effect_type=EffectType.IDEMPOTENT_WRITE)
    def undo(call: Any, amount: int) -> str:
        """Undo."""
        undone.append(call.compensates.operation_id)
        return "undone"

    scripted_tool({"paid": 1}, compensation_handler="undo")
    worker(Script(ToolCall("pay", amount=1), Finish(1)), tools=("pay",))


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
        other.execute("SET lock_timeout = '2s'")
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [child.id])
        other.commit()
    telling.join()
    child.refresh_from_db()
    assert child.parent_told_at is not None


def _tell(child: AgentRun) -> None:
    assert child.parent_id is not None
    tell_parent(child.id, child.parent_id)
    connection.close()


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


def test_what_is_delegated_anew_takes_the_place_of_what_came_to_nothing(start: Start) -> None:
    worker(Script(Finish("{input.n}")), name="helper")
    run = start(
        decider=lambda context: (
            DelegateAll(Delegate("helper"), Delegate("helper"))
            if context.step_number == 1
            else Delegate("helper")
        )
    )
    drive(run)
    first, second = children_of(run)
    cancel_run(actor=operator(), run_id=first.id)
    drive(first)
    change("UPDATE runs_agentrun SET input = '{\"n\": 1}' WHERE id = %s", second.id)
    drive(second)
    drive(run)
    third = AgentRun.objects.exclude(id__in=(first.id, second.id)).get(parent=run)
    assert third.lineage == first.lineage != second.lineage


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
