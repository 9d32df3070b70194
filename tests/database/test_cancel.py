"""Cancelling: a request, honoured as soon as no effect may be under way."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from runs import CallTools, Context, Decision, Fail, Finish, ToolCall
from runs import Script as Plan
from runs.access import Actor, operator
from runs.agents import forget_agents
from runs.commands import cancel_run
from runs.errors import NotPermitted, UnknownRun, WrongState
from runs.events import Name
from runs.lease import claim
from runs.models import AgentRun, Step, StepAttempt
from runs.state import OperationStatus, RunState
from tests.database.kit import (
    ON_DATABASE,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import Approve, Call, EffectType, NotSent, Reconciled, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
ANN = Actor(name="ann", scopes=frozenset({"runs:write"}))
LOST = ConnectionResetError("lost")


def _ask(run: AgentRun) -> None:
    cancel_run(actor=ANN, run_id=run.id)
    run.refresh_from_db()
    assert run.cancel_requested_by == "ann"
    assert ask(
        "SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun WHERE id = %s", run.id
    )


def _is_cancelled(run: AgentRun) -> None:
    run.refresh_from_db()
    assert (run.state, run.wake_at, run.sweep_at) == (RunState.CANCELLED, None, None)
    assert run.finished_at is not None
    assert run.lease_owner == ""
    assert run_edges(run)[-1] == "CANCEL"
    assert "ann" in ask(
        "SELECT reason FROM runs_transition WHERE event = 'CANCEL' AND operation_id IS NULL"
    )
    assert not Step.objects.filter(run=run, closed_at=None).exists()
    assert not StepAttempt.objects.filter(step__run=run, ended_at=None).exists()
    assert not run.operations.filter(settled_at=None).exists()


def test_a_ready_run_is_cancelled_without_asking_the_decider(start: Start) -> None:
    asked: list[Context] = []

    def decide(context: Context) -> Decision:
        asked.append(context)
        return Finish(1)

    run = start(decider=decide)
    _ask(run)
    drive(run)
    _is_cancelled(run)
    assert asked == []


def test_a_run_whose_decider_failed_is_cancelled_before_its_date(start: Start) -> None:
    run = start(decider=lambda context: None)
    drive(run)
    assert run.state == RunState.DECIDING
    _ask(run)
    drive(run)
    _is_cancelled(run)


def test_what_waits_for_a_signature_is_cancelled_and_never_sent(start: Start) -> None:
    script = scripted_tool(7, approval_policy=Approve())
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    _ask(run)
    drive(run)
    _is_cancelled(run)
    assert (operation_edges(run), script.calls) == (["HOLD", "CANCEL"], [])


def test_a_call_that_is_parked_before_its_next_try_is_cancelled(start: Start) -> None:
    script = scripted_tool(NotSent("no route"), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_PREPARED
    _ask(run)
    drive(run)
    _is_cancelled(run)
    assert len(script.calls) == 1
    assert operation_of(run).status == OperationStatus.CANCELLED


@pytest.mark.parametrize("effect", [EffectType.IDEMPOTENT_WRITE, EffectType.NON_IDEMPOTENT_WRITE])
def test_an_unknown_effect_is_settled_first_and_then_the_run_is_cancelled(
    start: Start, effect: EffectType
) -> None:
    look_up = Script(Reconciled.indeterminate("not yet"), found("it happened"))
    script = scripted_tool(LOST, look_up=look_up, effect=effect)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    _ask(run)
    drive(run)
    assert (run.state, run.finished_at) == (RunState.TOOL_STATUS_UNKNOWN, None)
    drive_when_due(run)
    _is_cancelled(run)
    assert (operation_of(run).status, operation_of(run).result) == ("COMMITTED", "it happened")
    assert len(script.calls) == 1


def test_an_unknown_effect_that_a_person_must_settle_is_not_cancelled(start: Start) -> None:
    scripted_tool(LOST, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    _ask(run)
    for _ in range(3):
        drive_when_due(run)
    assert (run.state, run.finished_at) == (RunState.WAITING_FOR_RESOLUTION, None)
    assert operation_of(run).status == OperationStatus.UNKNOWN


@pytest.mark.parametrize(
    ("answer", "status"),
    [(7, "COMMITTED"), (Rejected("no"), "REJECTED"), (NotSent("no route"), "CANCELLED")],
)
def test_a_request_during_the_call_is_honoured_once_its_outcome_is_known(
    start: Start, answer: object, status: str
) -> None:
    def cancel_meanwhile(call: Call) -> object:
        cancel_run(actor=ANN, run_id=run.id)
        if isinstance(answer, Exception):
            raise answer
        return answer

    second = scripted_tool(8, name="second")
    scripted_tool(cancel_meanwhile)
    run = start(decider=call_once(ToolCall("pay"), ToolCall("second")), tools=("pay", "second"))
    for _ in range(2):
        drive_when_due(run)
        second_sends = len(second.calls)
    # The commit that records the outcome is the first to hear of the request; the next call
    # may share that commit, and is settled before the run ends.
    assert second_sends <= 1
    _is_cancelled(run)
    assert operation_of(run).status == status


def test_a_request_during_the_decision_is_not_lost_when_the_run_is_held(start: Start) -> None:
    script = scripted_tool(7, approval_policy=Approve())

    def decide(context: Context) -> Decision:
        cancel_run(actor=ANN, run_id=run.id)
        return CallTools(ToolCall("pay"))

    run = start(decider=decide, tools=("pay",))
    drive(run)
    # Held or cancelled already, but in any case somebody is due.
    if run.state == RunState.WAITING_FOR_APPROVAL:
        assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
        drive(run)
    _is_cancelled(run)
    assert script.calls == []


def test_a_request_during_a_failing_decision_is_honoured_at_once(start: Start) -> None:
    def decide(context: Context) -> Decision:
        cancel_run(actor=ANN, run_id=run.id)
        raise ZeroDivisionError

    run = start(decider=decide)
    drive(run)
    drive(run)
    _is_cancelled(run)


def test_a_run_of_an_agent_that_is_gone_can_be_cancelled(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    forget_agents([run.agent])
    drive(run)
    _ask(run)
    drive(run)
    _is_cancelled(run)


def test_a_request_never_touches_the_state_or_the_lease_of_a_held_run(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    assert claim(run_id=run.id, owner="worker 1") is not None
    run.refresh_from_db()
    before = (run.state, run.version, run.fence_token, run.lease_owner, run.lease_expires_at)
    _ask(run)
    assert before == (
        run.state,
        run.version,
        run.fence_token,
        run.lease_owner,
        run.lease_expires_at,
    )


def test_asking_again_changes_nothing(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    _ask(run)
    first = run.cancel_requested_at
    cancel_run(actor=operator("bob"), run_id=run.id)
    run.refresh_from_db()
    assert (run.cancel_requested_by, run.cancel_requested_at) == ("ann", first)
    drive(run)
    _is_cancelled(run)
    assert cancel_run(actor=ANN, run_id=run.id).state == RunState.CANCELLED


@pytest.mark.parametrize("decision", [Finish(1), Fail("no")])
def test_a_final_run_cannot_be_cancelled(start: Start, decision: Decision) -> None:
    run = start(decider=lambda context: decision)
    drive(run)
    before = AgentRun.objects.values().get(id=run.id)
    with pytest.raises(WrongState, match="cancel"):
        cancel_run(actor=ANN, run_id=run.id)
    assert AgentRun.objects.values().get(id=run.id) == before


def test_a_run_that_ended_before_the_request_was_honoured_stays_as_it_ended(
    start: Start,
) -> None:
    def decide(context: Context) -> Decision:
        cancel_run(actor=ANN, run_id=run.id)
        return Finish("done")

    run = start(decider=decide)
    drive(run)
    assert (run.state, run.result, run.wake_at) == (RunState.COMPLETED, "done", None)


def test_an_unknown_run_and_an_actor_without_the_scope_are_refused(start: Start) -> None:
    with pytest.raises(UnknownRun):
        cancel_run(actor=ANN, run_id=uuid4())
    run = start(decider=lambda context: Finish(1))
    with pytest.raises(NotPermitted):
        cancel_run(actor=Actor(name="reader", scopes=frozenset({"read"})), run_id=run.id)
    run.refresh_from_db()
    assert run.cancel_requested_at is None
    assert change("UPDATE runs_agentrun SET wake_at = wake_at WHERE cancel_requested_by = ''") == 1


@pytest.mark.parametrize("moment", [Name.COMMIT_STARTING, Name.COMMIT_DONE], ids=str)
@pytest.mark.parametrize("nth", range(1, 6))
def test_a_run_is_cancelled_from_whatever_state_a_crash_left_it_in(
    start: Start, moment: Name, nth: int
) -> None:
    looks = Script(found(7), found(8))
    pay = scripted_tool(7, 8, look_up=looks)
    run = start(
        decider=Plan(ToolCall("pay", amount=1), ToolCall("pay", amount=2), Finish()), tools=("pay",)
    )
    with dies_at(moment, nth=nth):
        drive(run)
    expire_lease(run)
    sent = len(pay.calls)
    cancel_run(actor=ANN, run_id=run.id)
    for _ in range(3):
        drive_when_due(run)
    _is_cancelled(run)
    assert len(pay.calls) == sent
