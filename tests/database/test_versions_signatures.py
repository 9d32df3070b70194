"""`reapprove`: signatures that another version of the agent asked for are asked for anew."""

from collections.abc import Iterator
from datetime import timedelta

import celery
import pytest

from approvals.errors import Superseded, ToolChanged
from runs import CallTools, Fail, Finish, Script, Sleep, ToolCall, pinning
from runs.adoption import make_signatures_due
from runs.models import AgentRun
from tests.database.approving import person, say
from tests.database.deploying import adoptions, deploy, drive_once, serve, start, stop
from tests.database.gating import request_of, requests_of, sign
from tests.database.kit import Script as LookUp
from tests.database.kit import drive, drive_in_time, found, operation_edges, scripted_tool
from tests.database.redeploying import in_cents, redeployed
from tools import Approve, NotSent, Reconciled
from tools.registry import isolated_registry

# Not only the kernel's own tables: people sign.
pytestmark = pytest.mark.django_db(transaction=True)

NAP = Sleep(for_=timedelta(seconds=1))
PAY = ToolCall("pay", amount=700)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    pinning.forget_others()
    yield
    pinning.forget_others()
    celery.current_app.control.purge()


def _held(*, rule: str = "reapprove") -> AgentRun:
    deploy(Script(PAY, Finish("old")), rule=rule)
    run = start()
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    return run


def test_a_signature_that_is_awaited_is_asked_for_anew() -> None:
    tool = scripted_tool("paid", approval_policy=Approve())
    run = _held()
    asked = request_of(run)
    new = deploy(Script(PAY, Finish("new")), rule="reapprove")
    assert make_signatures_due(left=()) == 1
    drive(run)
    assert requests_of(run) == [("superseded", False), ("pending", False)]
    assert (run.state, run.agent_version) == ("WAITING_FOR_APPROVAL", new.version)
    assert [state for state, _ in adoptions(run)] == ["WAITING_FOR_APPROVAL"]
    assert new.version in request_of(run).asked_because
    with pytest.raises(Superseded):
        say(asked, person())
    # Once is enough.
    assert make_signatures_due(left=()) == 0
    sign(run)
    drive(run)
    assert (run.result, len(tool.calls)) == ("new", 1)


def test_an_older_worker_leaves_signatures_to_the_version_that_has_them_given_anew() -> None:
    scripted_tool("paid", approval_policy=Approve())
    run = _held()
    serve("old")
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    serve("new")
    sign(run)
    deploy(Script(PAY, Finish("old")), rule="reapprove")
    pinning.look_around()
    assert not drive(run).claimed
    stop("new")
    pinning.look_around()
    drive(run)
    assert run.result == "old"


def test_a_signature_on_outdated_arguments_is_asked_for_anew_while_the_old_version_lives() -> None:
    tool = scripted_tool("paid by old", approval_policy=Approve())
    run = _held()
    serve("old")
    with redeployed("paid by new", migrate_arguments=in_cents, approval_policy=Approve()) as new:
        deploy(Script(PAY, Finish("new")), rule="reapprove")
        serve("new")
        pinning.look_around()
        assert make_signatures_due(left=()) == 1
        drive(run)
        assert requests_of(run) == [("superseded", False), ("pending", False)]
        sign(run)
        drive(run)
    assert (run.result, tool.calls) == ("new", [])
    assert [call.arguments for call in new.calls] == [{"cents": 70_000}]


def test_what_nobody_can_migrate_is_asked_for_again_while_the_old_version_lives() -> None:
    scripted_tool("paid by old", approval_policy=Approve())
    run = _held()
    serve("old")
    with redeployed(approval_policy=Approve()):
        deploy(Script(PAY, Finish("new")), rule="reapprove")
        serve("new")
        assert make_signatures_due(left=()) == 1
        drive(run)
        assert "declares no migrate_arguments" in request_of(run).asked_because
        with pytest.raises(ToolChanged):
            sign(run)


def test_an_unknown_call_beside_one_that_is_signed_anew_is_not_left_to_the_old_version() -> None:
    scripted_tool(ConnectionResetError("lost"), parallel=True)
    scripted_tool("shipped", name="ship", approval_policy=Approve(), parallel=True)
    both = CallTools(PAY, ToolCall("ship", amount=1))
    deploy(Script(both, Finish("old")), rule="reapprove", tools=("pay", "ship"))
    run = start()
    drive(run)
    assert run.state == "TOOL_STATUS_UNKNOWN"
    serve("old")
    with redeployed(migrate_arguments=in_cents):
        scripted_tool("shipped", name="ship", approval_policy=Approve(), parallel=True)
        deploy(Script(both, Finish("new")), rule="reapprove", tools=("pay", "ship"))
        serve("new")
        drive_once(run)
    assert (run.state, len(adoptions(run))) == ("WAITING_FOR_RESOLUTION", 1)


# -- A newer version without the tool -----------------------------------------------------------


def _deploy_without_pay() -> None:
    deploy(Script(Finish("new")), rule="reapprove", tools=())
    serve("new")
    pinning.look_around()


def test_a_version_without_the_tool_has_nothing_signed_anew() -> None:
    tool = scripted_tool("paid by old", approval_policy=Approve())
    old = Script(PAY, Finish("old"))
    run = _held()
    serve("old")
    with isolated_registry():
        _deploy_without_pay()
        assert make_signatures_due(left=()) == 0
    sign(run)
    deploy(old, rule="reapprove")
    pinning.look_around()
    drive(run)
    assert (run.result, len(tool.calls), requests_of(run)) == ("old", 1, [("approved", True)])


def test_a_version_without_one_of_the_tools_settles_what_is_unknown_and_sends_nothing() -> None:
    look_up = LookUp(found("paid"))
    scripted_tool(ConnectionResetError("lost"), look_up=look_up, parallel=True)
    scripted_tool("shipped", name="ship", approval_policy=Approve(), parallel=True)
    both = CallTools(PAY, ToolCall("ship", amount=1))
    deploy(Script(both, Finish("old")), rule="reapprove", tools=("pay", "ship"))
    run = start()
    drive(run)
    sign(run)
    with isolated_registry():
        scripted_tool("never sent", look_up=look_up, parallel=True)
        deploy(Script(Finish("new")), rule="reapprove", tools=("pay",))
        drive_once(run)
        assert [one.status for one in run.operations.order_by("ordinal")] == [
            "COMMITTED",
            "AWAITING_APPROVAL",
        ]
        assert (requests_of(run), adoptions(run)) == ([("approved", False)], [])


# -- Under other circumstances ------------------------------------------------------------------


def test_a_signature_that_was_not_used_yet_is_asked_for_anew() -> None:
    tool = scripted_tool("paid", approval_policy=Approve())
    run = _held()
    sign(run)
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    drive(run)
    assert requests_of(run) == [("superseded", False), ("pending", False)]
    assert (run.state, tool.calls) == ("WAITING_FOR_APPROVAL", [])
    sign(run)
    drive(run)
    assert (run.result, len(tool.calls)) == ("new", 1)


def test_a_call_that_was_signed_and_not_sent_yet_is_signed_anew() -> None:
    tool = scripted_tool(NotSent("busy"), "paid", approval_policy=Approve())
    run = _held()
    sign(run)
    drive(run)
    assert run.state == "TOOL_PREPARED"
    deploy(Script(PAY, Finish("new")), rule="reapprove")
    drive_in_time(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert operation_edges(run)[-1] == "HOLD"
    sign(run)
    drive(run)
    assert (run.result, len(tool.calls)) == ("new", 2)


def test_a_signature_that_was_used_is_not_asked_for_again() -> None:
    tool = scripted_tool("paid", approval_policy=Approve())
    deploy(Script(PAY, NAP, Finish("old")), rule="reapprove")
    run = start()
    drive(run)
    sign(run)
    drive(run)
    deploy(Script(PAY, NAP, Finish("new")), rule="reapprove")
    assert make_signatures_due(left=()) == 0
    drive_in_time(run)
    assert (run.result, len(tool.calls), len(requests_of(run))) == ("new", 1, 1)


def test_a_repeat_that_is_signed_anew_still_says_what_it_repeats() -> None:
    scripted_tool("paid", on_repeated_intent="ask")
    deploy(Script(PAY, PAY, Finish("old")), rule="reapprove")
    run = start()
    drive(run)
    asked = request_of(run)
    assert "has the same intent" in asked.rule
    deploy(Script(PAY, PAY, Finish("new")), rule="reapprove")
    assert make_signatures_due(left=()) == 1
    drive(run)
    assert (request_of(run).supersedes_id, request_of(run).rule) == (asked.id, asked.rule)


def test_a_version_dates_no_run_that_it_leaves_to_a_newer_one() -> None:
    scripted_tool("paid", approval_policy=Approve())
    run = _held()
    deploy(Script(PAY, Finish("other")), rule="reapprove")
    assert make_signatures_due(left={run.agent_version}) == 0
    assert make_signatures_due(left=()) == 1


def test_a_signature_for_a_correction_keeps_its_force() -> None:
    scripted_tool("done", name="do_a", compensation_handler="undo_a")
    scripted_tool("undone", name="undo_a", approval_policy=Approve())
    fails = Script(ToolCall("do_a", amount=1), Fail("no"))
    deploy(fails, rule="reapprove", tools=("do_a",), on_failure="compensate")
    run = start()
    drive_in_time(run)
    assert (run.state, requests_of(run)) == ("WAITING_FOR_APPROVAL", [("pending", False)])
    deploy(Script(Finish("new")), rule="reapprove", tools=("do_a",), on_failure="compensate")
    sign(run)
    drive(run)
    assert (run.state, requests_of(run)) == ("FAILED", [("approved", True)])


@pytest.mark.parametrize("rule", ["next_step", "rebuild_context"])
def test_under_other_rules_a_signature_keeps_its_force(rule: str) -> None:
    tool = scripted_tool("paid", approval_policy=Approve())
    run = _held(rule=rule)
    deploy(Script(PAY, Finish("new")), rule=rule)
    assert make_signatures_due(left=()) == 0
    sign(run)
    drive(run)
    assert (run.result, len(tool.calls), len(requests_of(run))) == ("new", 1, 1)


def test_a_denied_call_is_dropped_and_not_asked_for_anew() -> None:
    tool = scripted_tool("paid", approval_policy=Approve())
    run = _held()
    say(request_of(run), person(), "deny")
    deploy(lambda context: Finish(context.last.never_sent), rule="reapprove")
    drive(run)
    assert (run.result, tool.calls, len(requests_of(run))) == ("denied", [], 1)


def test_a_signature_beside_an_unknown_call_is_asked_for_anew() -> None:
    lost = ConnectionResetError("lost")
    look_up = LookUp(Reconciled.indeterminate("busy"), found("paid"))
    scripted_tool(lost, look_up=look_up)
    ship = scripted_tool("shipped", name="ship", approval_policy=Approve())
    both = CallTools(PAY, ToolCall("ship", amount=1))
    deploy(Script(both, Finish("old")), rule="reapprove", tools=("pay", "ship"))
    run = start()
    drive(run)
    assert run.state == "TOOL_STATUS_UNKNOWN"
    sign(run)
    deploy(Script(both, Finish("new")), rule="reapprove", tools=("pay", "ship"))
    drive_once(run)
    assert requests_of(run) == [("superseded", False), ("pending", False)]
    assert [state for state, _ in adoptions(run)] == ["TOOL_STATUS_UNKNOWN"]
    drive_in_time(run)
    assert (run.state, ship.calls) == ("WAITING_FOR_APPROVAL", [])
    sign(run)
    drive(run)
    assert (run.result, len(ship.calls)) == ("new", 1)
