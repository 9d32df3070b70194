"""Delegation: a child run is one operation of its parent, and never two."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from runs import (
    Context,
    Decision,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Script,
    Sleep,
    ToolCall,
)
from runs.access import operator
from runs.control import cancel_run
from runs.delegation import DEEPEST, MOST_CHILDREN, tell_untold_once
from runs.events import Name
from runs.models import AgentRun
from runs.state import RunState
from tests.database.delegating import child_of, children_of, delegate, worker
from tests.database.kit import (
    ON_DATABASE,
    change,
    dies_at,
    drive,
    expire_lease,
    operation_of,
    scripted_tool,
)
from tools.declarations import EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def test_the_childs_result_is_what_the_parent_observes(start: Start) -> None:
    worker(Script(Finish({"sum": "{input.a}"})))
    run = start(decider=delegate(Delegate("helper", "add up", {"a": 3})), labels={"team": "x"})
    drive(run)
    assert (run.state, run.wake_at) == (RunState.WAITING, None)
    child = child_of(run)
    assert (child.objective, child.input, child.labels) == ("add up", {"a": 3}, {"team": "x"})
    assert (child.depth, child.created_by, child.parent_operation) == (
        1,
        run.created_by,
        operation_of(run).id,
    )
    drive(child)
    run.refresh_from_db()
    assert run.wake_at is not None
    drive(run)
    assert run.result == ["child", "helper", "COMMITTED", {"sum": 3}, ""]


def test_a_childs_failure_reaches_the_parent_with_its_reason(start: Start) -> None:
    worker(Script(Fail("no flour")))
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    drive(child := child_of(run))
    drive(run)
    assert run.result == [
        "child",
        "helper",
        "REJECTED",
        None,
        f"run {child.id} is FAILED: no flour",
    ]


def test_several_children_go_on_at_once_and_are_observed_in_order(start: Start) -> None:
    worker(Script(Finish("{input.n}")))

    def decide(context: Context) -> Decision:
        if context.step_number == 1:
            return DelegateAll(*(Delegate("helper", input={"n": n}) for n in range(3)))
        return Finish([one.result for one in context.observations])

    run = start(decider=decide)
    drive(run)
    for child in reversed(children_of(run)):
        assert run.state == RunState.WAITING
        drive(child)
        drive(run)
    assert run.result == [0, 1, 2]


@pytest.mark.parametrize("moment", [Name.COMMIT_STARTING, Name.COMMIT_DONE], ids=str)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_crash_at_any_commit_starts_one_child(start: Start, moment: Name, nth: int) -> None:
    worker(Script(Finish(1)))
    run = start(decider=delegate(Delegate("helper")))
    with dies_at(moment, nth=nth):
        drive(run)
    expire_lease(run)
    drive(run)
    assert AgentRun.objects.filter(parent=run).count() == 1
    drive(child_of(run))
    drive(run)
    assert run.state == RunState.COMPLETED


def test_a_parent_that_was_not_told_is_found_by_the_sweep(start: Start) -> None:
    worker(Script(Finish(1)))
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    drive(child_of(run))
    change("UPDATE runs_agentrun SET wake_at = NULL, sweep_at = NULL WHERE id = %s", run.id)
    change("UPDATE runs_agentrun SET parent_told_at = NULL WHERE parent_id = %s", run.id)
    assert tell_untold_once() == 1
    assert tell_untold_once() == 0
    drive(run)
    assert run.state == RunState.COMPLETED


# -- Limits --------------------------------------------------------------------


def test_an_agent_that_nobody_knows_is_an_observation(start: Start) -> None:
    run = start(decider=delegate(Delegate("helpr")))
    worker(Script(Finish(1)))
    drive(run)
    kind, agent, status, _, error = run.result
    assert (kind, agent, status) == ("child", "helpr", "CANCELLED")
    assert "Did you mean 'helper'?" in error


def test_a_tree_of_runs_is_only_so_deep(start: Start) -> None:
    worker(delegate(Delegate("helper")))
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    deepest = run
    while (found := AgentRun.objects.filter(parent=deepest).first()) is not None:
        drive(deepest := found)
    assert deepest.depth == DEEPEST
    assert deepest.state == RunState.COMPLETED
    assert "levels" in deepest.result[4]


def test_a_run_starts_only_so_many_others(start: Start) -> None:
    worker(Script(Finish(1)))
    run = start(decider=delegate(*(Delegate("helper") for _ in range(3))))
    drive(run)
    change("INSERT INTO runs_step (run_id, number, closed_at) VALUES (%s, 99, now())", run.id)
    parent = start(decider=delegate(Delegate("helper"), Delegate("helper")))
    _pretend_children(parent, MOST_CHILDREN - 1)
    drive(parent)
    statuses = [one.status for one in parent.operations.filter(step_number=1).order_by("ordinal")]
    assert statuses == ["RUNNING", "CANCELLED"]


def _pretend_children(run: AgentRun, count: int) -> None:
    change("SET session_replication_role = replica")
    change(
        """
        INSERT INTO runs_tooloperation
            (id, run_id, step_id, step_number, ordinal, revision, run_version, status, tool,
             tool_version, arguments_version, effect_type, provider, account, arguments,
             arguments_digest, sensitive,
             intent, idempotency_key, policy_outcome, policy_rule, policy_version, fence_token,
             attempts, look_ups, external_ref, error, never_sent, settled_at)
        SELECT 'op_' || n, %s, 0, 0, n, 0, 1, 'COMMITTED', 'delegate', 'built-in', '', '', '', '',
               '{}', '', '[]', '', 'k' || n, '', '', '', 0, 0, 0, '', '', '', now()
        FROM generate_series(1, %s) AS n
        """,
        run.id,
        count,
    )
    change("SET session_replication_role = origin")


# -- Cancelling ----------------------------------------------------------------


def test_cancelling_the_parent_cancels_its_children_first(start: Start) -> None:
    worker(Script(Sleep(timedelta(hours=1)), Finish(1)))
    run = start(decider=delegate(Delegate("helper"), Delegate("helper")))
    drive(run)
    for child in children_of(run):
        drive(child)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.wake_at) == (RunState.WAITING, None)
    for child in children_of(run):
        assert child.cancel_requested_by == f"run {run.id}"
        drive(child)
        assert child.state == RunState.CANCELLED
    drive(run)
    assert run.state == RunState.CANCELLED
    assert [one.status for one in run.operations.all()] == ["REJECTED", "REJECTED"]


def test_a_cancelled_parent_waits_for_a_childs_unknown_effect(start: Start) -> None:
    scripted_tool(
        ConnectionResetError("lost"), provider=None, effect=EffectType.NON_IDEMPOTENT_WRITE
    )
    worker(Script(ToolCall("pay"), Finish(1)), tools=("pay",))
    run = start(decider=delegate(Delegate("helper")))
    drive(run)
    drive(child_of(run))
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    drive(child := child_of(run))
    assert child.uncertain
    run.refresh_from_db()
    assert run.state == RunState.WAITING


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
