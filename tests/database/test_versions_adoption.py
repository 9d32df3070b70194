"""What becomes of a run when another version of its agent is deployed, by the agent's rule."""

from collections.abc import Iterator
from datetime import timedelta

import celery
import pytest

from runs import (
    CallTools,
    Context,
    Decision,
    Delegate,
    Finish,
    Script,
    Sleep,
    ToolCall,
    pinning,
    sweeps,
)
from runs.access import operator
from runs.control import cancel_run
from runs.forking import fork_run
from runs.models import AgentRun, Handoff, ModelDecision
from runs.retrying import retry_run
from runs.unserved import find_unserved
from runs.versions import ALIVE_LEASES
from tests.database.deploying import NAME, adoptions, deploy, drive_once, serve, start, stop
from tests.database.kit import (
    ON_DATABASE,
    drive,
    drive_in_time,
    found,
    let_pass,
    operation_of,
    run_edges,
    scripted_tool,
)
from tests.database.kit import Script as LookUp
from tools import NotSent

pytestmark = ON_DATABASE

NAP = Sleep(for_=timedelta(seconds=1))
PAY = ToolCall("pay", amount=700)
RULES = ("next_step", "rebuild_context", "reapprove")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    pinning.forget_others()
    yield
    pinning.forget_others()
    celery.current_app.control.purge()


def _asleep(*, rule: str = "next_step") -> AgentRun:
    """A run that sleeps under the old version."""
    deploy(Script(NAP, Finish("old")), rule=rule, tools=())
    run = start()
    drive(run)
    assert run.state == "WAITING"
    return run


# -- The next decision --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_the_next_decision_is_the_new_versions_and_the_run_says_so(rule: str) -> None:
    run = _asleep()
    old = run.agent_version
    new = deploy(Script(NAP, Finish("new")), rule=rule, tools=())
    drive_in_time(run)
    assert (run.state, run.result, run.agent_version) == ("COMPLETED", "new", new.version)
    assert adoptions(run) == [("READY", f"{old} → {new.version}, {rule}")]
    decided = ModelDecision.objects.filter(run=run).order_by("recorded_at")
    assert list(decided.values_list("agent_version", flat=True)) == [old, new.version]


def test_what_was_decided_is_carried_out_as_it_was_recorded() -> None:
    tool = scripted_tool(NotSent("busy"), "paid")
    deploy(Script(PAY, Finish("old")))
    run = start()
    drive(run)
    assert run.state == "TOOL_PREPARED"
    deploy(Script(ToolCall("pay", amount=1), Finish("new")))
    drive_in_time(run)
    assert (run.state, run.result) == ("COMPLETED", "new")
    assert [call.arguments["amount"] for call in tool.calls] == [700, 700]
    assert run_edges(run).index("MIGRATE") > run_edges(run).index("COMMIT")


def test_an_unknown_call_is_settled_under_its_id_before_the_new_version_decides() -> None:
    tool = scripted_tool(ConnectionResetError("lost"), look_up=LookUp(found("paid")))
    deploy(Script(PAY, Finish("old")))
    run = start()
    drive(run)
    assert run.state == "TOOL_STATUS_UNKNOWN"
    deploy(Script(PAY, Finish("new")))
    drive_in_time(run)
    assert (run.state, run.result) == ("COMPLETED", "new")
    assert len(tool.calls) == 1


def test_a_run_whose_version_did_not_change_is_not_adopted() -> None:
    run = _asleep()
    deploy(Script(NAP, Finish("old")), rule="rebuild_context", tools=())
    drive_in_time(run)
    assert (run.result, adoptions(run)) == ("old", [])


def test_a_step_whose_decider_failed_is_decided_by_the_new_version() -> None:
    def broken(context: Context) -> Decision:
        raise ValueError("not today")

    deploy(broken, tools=())
    run = start()
    drive(run)
    assert run.state == "DECIDING"
    deploy(Script(Finish("new")), tools=())
    drive_in_time(run)
    assert run.result == "new"
    assert [state for state, _ in adoptions(run)] == ["DECIDING"]


# -- Two versions beside each other -------------------------------------------------------------


def test_an_older_worker_leaves_what_a_living_newer_one_serves() -> None:
    old = Script(NAP, Finish("old"))
    deploy(old, tools=())
    serve("old")
    deploy(Script(NAP, Finish("new")), tools=())
    serve("new")
    run = start()
    drive(run)
    deploy(old, tools=())
    drive_once(run)
    assert (run.state, adoptions(run)) == ("READY", [])
    # It knows by now: it does not even claim it.
    token = run.fence_token
    drive(run)
    assert run.fence_token == token


@pytest.mark.parametrize("ends", ["stopped", "silent"])
def test_after_a_rollback_the_old_version_goes_on_with_what_the_new_one_had(ends: str) -> None:
    old = Script(NAP, Finish("old"))
    deploy(old, tools=())
    serve("old")
    deploy(Script(NAP, Finish("new")), tools=())
    serve("new")
    run = start()
    drive(run)
    deploy(old, tools=())
    drive_once(run)
    assert run.state == "READY"
    if ends == "stopped":
        stop("new")
    else:
        let_pass(seconds=ALIVE_LEASES * 30 + 1)
    pinning.look_around()
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", "old")


def test_a_version_that_was_served_before_is_no_newer_for_being_deployed_again() -> None:
    old, new = Script(NAP, Finish("old")), Script(NAP, Finish("new"))
    for worker, decider in (("first", old), ("second", new), ("third", old)):
        deploy(decider, tools=())
        serve(worker)
    stop("first")
    deploy(new, tools=())
    assert pinning.look_around().left == frozenset()
    deploy(old, tools=())
    assert len(pinning.look_around().left) == 1


# -- rebuild_context ----------------------------------------------------------------------------


def test_the_context_of_an_adopted_run_is_rebuilt_from_rows() -> None:
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        return Finish("new")

    scripted_tool("paid")
    deploy(Script(PAY, NAP, Finish("old")))
    run = start()
    drive(run)
    deploy(decide, rule="rebuild_context")
    drive_in_time(run)
    handoff = Handoff.objects.get(run=run)
    assert (handoff.reason, handoff.through_step, handoff.written_by) == ("version", 2, "rows")
    assert operation_of(run).id in str(handoff.body)
    [context] = seen
    assert context.handoff is not None


def test_what_was_just_settled_is_settled_in_the_rebuilt_context() -> None:
    scripted_tool(NotSent("busy"), "paid")
    deploy(Script(PAY, Finish("old")))
    run = start()
    drive(run)
    deploy(Script(PAY, Finish("new")), rule="rebuild_context")
    drive_in_time(run)
    assert (run.result, len(adoptions(run))) == ("new", 1)
    handoff = Handoff.objects.get(run=run)
    assert (handoff.through_step, handoff.body["open_items"]) == (1, [])
    assert [fact["operation"] for fact in handoff.body["facts"]] == [operation_of(run).id]


# -- finish_on_old ------------------------------------------------------------------------------


def test_a_run_that_finishes_on_old_workers_is_never_claimed_by_a_new_one() -> None:
    old = Script(NAP, Finish("old"))
    deploy(old, rule="finish_on_old", tools=())
    run = start()
    drive(run)
    deploy(Script(NAP, Finish("new")), rule="finish_on_old", tools=())
    token = run.fence_token
    assert not drive_once(run).claimed
    assert run.fence_token == token
    deploy(old, rule="finish_on_old", tools=())
    drive(run)
    assert (run.result, adoptions(run)) == ("old", [])


def test_a_run_that_finishes_on_old_workers_is_cancelled_by_anybody() -> None:
    run = _asleep(rule="finish_on_old")
    deploy(Script(NAP, Finish("new")), rule="finish_on_old", tools=())
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == "CANCELLED"


def _unknown_on_old(*calls: ToolCall, look_up: LookUp) -> AgentRun:
    """A run that finishes on old workers, with an unknown call; a new version is served."""
    scripted_tool(ConnectionResetError("lost"), look_up=look_up, parallel=True)
    scripted_tool(NotSent("busy"), name="ship", parallel=True)
    rule, tools = "finish_on_old", ("pay", "ship")
    deploy(Script(CallTools(*calls), Finish("old")), rule=rule, tools=tools)
    serve("old")
    run = start()
    drive(run)
    assert run.state == "TOOL_STATUS_UNKNOWN"
    deploy(Script(Finish("new")), rule=rule, tools=tools)
    serve("new")
    return run


def test_what_is_unknown_is_settled_by_a_new_worker_once_no_old_one_is_alive() -> None:
    look_up = LookUp(found("paid"))
    run = _unknown_on_old(PAY, look_up=look_up)
    pinning.look_around()
    assert not drive_once(run).claimed
    stop("old")
    pinning.look_around()
    assert sweeps.run_once().hinted == 1
    drive(run)
    assert (operation_of(run).status, run.uncertain, len(look_up.calls)) == ("COMMITTED", False, 1)
    # And nothing is decided for it.
    assert (run.state, adoptions(run)) == ("READY", [])
    assert not drive_once(run).claimed
    assert [one.runs for one in find_unserved()] == [1]


def test_what_stands_beside_it_and_was_not_sent_is_left_to_old_workers() -> None:
    run = _unknown_on_old(PAY, ToolCall("ship", amount=1), look_up=LookUp(found("paid")))
    stop("old")
    pinning.look_around()
    let_pass(minutes=1)
    drive(run)
    pay, ship = run.operations.order_by("ordinal")
    assert (pay.status, ship.status, ship.attempts) == ("COMMITTED", "PREPARED", 1)


# -- Relatives ----------------------------------------------------------------------------------


def test_a_child_is_pinned_to_the_version_of_its_own_agent() -> None:
    deploy(Script(Finish("child")), name="child", tools=())
    deploy(Script(Delegate("child"), Finish("parent")), tools=())
    run = start()
    drive(run)
    new = deploy(Script(Finish("new child")), name="child", tools=())
    child = AgentRun.objects.get(parent=run)
    drive(child)
    assert (child.result, child.agent_version) == ("new child", new.version)
    run.refresh_from_db()
    assert adoptions(run) == []


def test_a_retried_run_is_adopted_by_its_rule() -> None:
    def broken(context: Context) -> Decision:
        raise ValueError("never")

    deploy(broken, tools=())
    run = start()
    for _ in range(3):
        drive_in_time(run)
    assert run.state == "FAILED"
    deploy(Script(Finish("new")), tools=())
    retry_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.result, len(adoptions(run))) == ("new", 1)


def test_a_fork_is_pinned_to_the_version_of_the_day_it_is_made() -> None:
    run = _asleep(rule="finish_on_old")
    new = deploy(Script(NAP, Finish("new")), rule="finish_on_old", tools=())
    fork = fork_run(actor=operator(), run_id=run.id, step=0).run
    assert (fork.agent, fork.agent_version) == (NAME, new.version)
    drive(fork)
    assert fork.state == "WAITING"
