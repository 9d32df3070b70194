"""A run whose agent or tool no worker here knows: nothing of it is silent, or stuck."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from runs import ToolCall, events
from runs.access import operator
from runs.agents import forget_agents
from runs.commands import cancel_run, reconcile_now
from runs.models import AgentRun, StepAttempt, ToolOperation, Transition
from runs.resolution import resolve_operation
from runs.serving import FORSAKEN
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    ask,
    call_once,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    incidents,
    let_pass,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import Approve, EffectType, NotSent, Reconciled
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# A worker that has the agent, but none of its tools.
_without_tools = isolated_registry


def _pay(*answers: Any, **declared: Any) -> Script:
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    return scripted_tool(*answers, **declared)


def _vanished(start: Start, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose worker died in its call."""
    script = _pay("never heard", **declared)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run)
    expire_lease(run)
    return run, script


def _lost(start: Start, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose call brought no answer."""
    script = _pay(LOST, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    return run, script


def _say(run: AgentRun, outcome: str, **more: Any) -> None:
    resolve_operation(
        actor=operator("ann"),
        operation_id=operation_of(run).id,
        outcome=outcome,  # type: ignore[arg-type]
        evidence="seen on the statement",
        **more,
    )
    run.refresh_from_db()


def _written() -> tuple[int, int]:
    """How much there is of what grows."""
    return Transition.objects.count(), StepAttempt.objects.count()


# -- The agent is gone, its tool is known ---------------------------------------------------------


def test_what_a_vanished_worker_sent_is_taken_over_without_its_agent(start: Start) -> None:
    run, script = _vanished(start)
    forget_agents([run.agent])
    drive(run, owner="worker 2")
    assert (operation_of(run).status, run.uncertain) == ("UNKNOWN", True)
    assert "TAKE_OVER" in run_edges(run)
    drive_when_due(run, owner="worker 2")
    assert (run.state, len(script.calls)) == (RunState.WAITING_FOR_RESOLUTION, 1)


def test_what_is_unknown_is_looked_up_and_recorded_without_its_agent(start: Start) -> None:
    run, script = _lost(start, look_up=Script(found("it is there", "re_1")))
    forget_agents([run.agent])
    drive_when_due(run)
    operation = operation_of(run)
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_1")
    assert (len(script.calls), run.uncertain) == (1, False)
    # And only then it waits for a worker that can go on.
    assert (run.state, run.finished_at, run.lease_owner) == (RunState.READY, None, "")
    assert run.wake_at > ask("SELECT statement_timestamp() + interval '5 s'")


def test_what_stands_beside_it_and_was_not_sent_waits_for_its_agent(start: Start) -> None:
    _pay(LOST, look_up=Script(found()), parallel=True)
    ship = _pay(NotSent("busy"), name="ship", parallel=True)
    both = call_once(ToolCall("pay"), ToolCall("ship"))
    run = start(decider=both, tools=("pay", "ship"))
    drive(run)
    forget_agents([run.agent])
    let_pass(minutes=1)
    drive(run)
    assert [one.status for one in run.operations.order_by("ordinal")] == ["COMMITTED", "PREPARED"]
    assert len(ship.calls) == 1


def test_no_answer_about_it_is_overdue_and_a_persons_also_without_its_agent(start: Start) -> None:
    cannot_say = Script(*[TimeoutError("no answer")] * 9)
    run, _ = _lost(start, look_up=cannot_say)
    forget_agents([run.agent])
    drive_when_due(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    let_pass(hours=2)
    drive_when_due(run)
    assert (run.state, len(cannot_say.calls)) == (RunState.WAITING_FOR_RESOLUTION, 2)
    assert incidents(run) == [("OVERDUE", "")]


# -- The tool is gone -----------------------------------------------------------------------------


def test_what_was_sent_by_a_tool_that_is_gone_is_unknown_and_not_running(start: Start) -> None:
    run, _ = _vanished(start)
    with _without_tools():
        drive(run, owner="worker 2")
        assert (run.state, run.uncertain) == (RunState.TOOL_STATUS_UNKNOWN, True)
        assert operation_of(run).status == "UNKNOWN"
        assert reconcile_now(actor=operator(), operation_id=operation_of(run).id)


def test_what_nobody_asks_about_for_long_is_overdue_and_a_persons(start: Start) -> None:
    run, _ = _lost(start)
    with _without_tools():
        let_pass(seconds=FORSAKEN.total_seconds() - 60)
        drive_when_due(run)
        assert (run.state, incidents(run)) == (RunState.TOOL_STATUS_UNKNOWN, [])
        let_pass(minutes=2)
        drive_when_due(run)
    assert (run.state, run.lease_owner) == (RunState.WAITING_FOR_RESOLUTION, "")
    assert incidents(run) == [("OVERDUE", "")]
    assert "no worker that knows its tool, pay" in operation_of(run).error


def test_what_others_still_ask_about_is_left_to_them_however_old_it_is(start: Start) -> None:
    run, _ = _lost(
        start, look_up=Script(Reconciled.indeterminate("busy")), reconcile_within=timedelta(days=9)
    )
    let_pass(seconds=2 * FORSAKEN.total_seconds())
    drive_when_due(run, owner="a worker that has the tool")
    with _without_tools():
        drive_when_due(run)
    assert (run.state, incidents(run)) == (RunState.TOOL_STATUS_UNKNOWN, [])


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_person_may_say_what_became_of_it_asked_or_not(start: Start, is_asked: bool) -> None:
    run, script = _lost(start)
    with _without_tools():
        if is_asked:
            let_pass(seconds=FORSAKEN.total_seconds() + 60)
        drive_when_due(run)
        assert (run.state == RunState.WAITING_FOR_RESOLUTION) == is_asked
        _say(run, "committed", result="by hand", external_ref="re_1")
        assert operation_of(run).status == "COMMITTED"
        drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "by hand", 1)


@pytest.mark.parametrize("outcome", ["not_committed", "rejected"])
def test_and_may_say_that_there_is_no_effect(start: Start, outcome: str) -> None:
    run, script = _lost(start)
    script.answers.append("second")
    with _without_tools():
        drive_when_due(run)
        _say(run, outcome)
    drive_when_due(run)
    is_sent_again = outcome == "not_committed"
    assert run.state == (RunState.COMPLETED if is_sent_again else RunState.FAILED)
    assert len(script.calls) == 1 + is_sent_again


def test_a_worker_that_has_the_tool_again_goes_on_with_it(start: Start) -> None:
    run, script = _lost(start, look_up=Script(found("it is there", "re_1")))
    with _without_tools():
        for _ in range(3):
            drive_when_due(run)
    drive_when_due(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "it is there", 1)


# -- What waiting costs ---------------------------------------------------------------------------


def _parked(start: Start) -> AgentRun:
    _pay(NotSent("no route"), "sent")
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_PREPARED
    return run


def _unknown(start: Start) -> AgentRun:
    return _lost(start)[0]


@pytest.mark.parametrize("begin", [_parked, _unknown])
def test_a_run_whose_tool_is_gone_waits_without_a_row_of_the_journal(
    start: Start, begin: Callable[[Start], AgentRun]
) -> None:
    run = begin(start)
    with _without_tools():
        before = _written()
        for _ in range(5):
            drive_when_due(run)
            assert run.wake_at > ask("SELECT statement_timestamp() + interval '5 s'")
        assert _written() == before


def test_a_call_that_waits_for_its_tool_says_so(start: Start) -> None:
    run = _parked(start)
    with _without_tools():
        drive_when_due(run)
    assert operation_of(run).error == (
        "not sent yet: the worker that looked at it last has no tool pay"
    )


def test_a_run_whose_agent_is_gone_waits_without_a_row_of_the_journal(start: Start) -> None:
    run = _parked(start)
    forget_agents([run.agent])
    before = _written()
    for _ in range(5):
        drive_when_due(run)
        assert run.wake_at > ask("SELECT statement_timestamp() + interval '5 s'")
    assert _written() == before


# -- Cancelling -----------------------------------------------------------------------------------


def test_a_call_that_waits_for_its_tool_can_be_cancelled(start: Start) -> None:
    run = _parked(start)
    with _without_tools():
        drive_when_due(run)
        cancel_run(actor=operator(), run_id=run.id)
        drive(run)
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, "CANCELLED")


def test_what_waits_for_a_signature_can_be_cancelled_without_agent_or_tool(start: Start) -> None:
    _pay("signed", approval_policy=Approve())
    run = start(decider=call_once(ToolCall("pay")), tools=("pay",))
    drive(run)
    forget_agents([run.agent])
    with _without_tools():
        cancel_run(actor=operator(), run_id=run.id)
        drive(run)
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, "CANCELLED")


@pytest.mark.parametrize("is_vanished", [False, True])
def test_what_is_unknown_is_settled_first_and_then_the_run_is_cancelled(
    start: Start, is_vanished: bool
) -> None:
    run, script = (_vanished if is_vanished else _lost)(start, look_up=Script(found()))
    forget_agents([run.agent])
    cancel_run(actor=operator(), run_id=run.id)
    for _ in range(2):
        drive_when_due(run, owner="worker 2")
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, "COMMITTED")
    assert len(script.calls) == 1


def test_what_is_unknown_by_a_tool_that_is_gone_is_a_persons_and_then_the_run_is_cancelled(
    start: Start,
) -> None:
    run, script = _lost(start)
    forget_agents([run.agent])
    cancel_run(actor=operator(), run_id=run.id)
    with _without_tools():
        drive_when_due(run)
        assert (run.finished_at, ToolOperation.objects.get(run=run).status) == (None, "UNKNOWN")
        _say(run, "committed", external_ref="re_1")
        drive(run)
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, "COMMITTED")
    assert len(script.calls) == 1
