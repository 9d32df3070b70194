"""Where recovery ends: a call that never comes back, a tool that moved, a fault of our own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest

from runs import events
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun
from runs.state import RunState
from tests.database.kit import (
    KEYED,
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    ask,
    call_once,
    change,
    drive,
    drive_when_due,
    found,
    hear_late,
    incidents,
    let_pass,
    make_due,
    operation_edges,
    operation_of,
    scripted_tool,
)
from tools import Approve, EffectType, NotSent, Reconciled
from tools.execution import wait_until_back
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]

WRITES = [
    EffectType.IDEMPOTENT_WRITE,
    EffectType.NON_IDEMPOTENT_WRITE,
    EffectType.IRREVERSIBLE,
]
UNSIGNED = Approve(when="false")
ELSEWHERE = replace(KEYED, account="acct_2")


# -- A call that never comes back ---------------------------------------------------------------


@contextmanager
def _out(start: Start, *, effect: EffectType, looks_up: bool = False) -> Iterator[AgentRun]:
    """A run whose call is past its deadline and still out, for the time of the block."""
    back = Event()
    scripted_tool(
        lambda call: back.wait(60),
        effect=effect,
        look_up=Script(*[Reconciled.not_found()] * 20) if looks_up else None,
        seconds=0.2,
        approval_policy=UNSIGNED,
    )
    run = start(decider=call_once(), tools=("pay",))
    try:
        drive(run)
        assert run.state == RunState.TOOL_STATUS_UNKNOWN
        yield run
    finally:
        back.set()
        wait_until_back(seconds=10.0)


def _drive_while_it_is_out(run: AgentRun) -> None:
    """Somebody is due, and the process that made the call says that it is not back."""
    make_due(run)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '30 s'")
    drive(run)


@pytest.mark.parametrize("looks_up", [True, False])
@pytest.mark.parametrize("effect", WRITES)
def test_a_write_that_never_comes_back_is_a_persons_after_the_objective_and_not_before(
    effect: EffectType, looks_up: bool, start: Start
) -> None:
    with _out(start, effect=effect, looks_up=looks_up) as run:
        _drive_while_it_is_out(run)
        assert (run.state, incidents(run)) == (RunState.TOOL_STATUS_UNKNOWN, [])
        let_pass(hours=2)
        _drive_while_it_is_out(run)
        assert run.state == RunState.WAITING_FOR_RESOLUTION
        assert incidents(run) == [("OVERDUE", "")]
        assert operation_of(run).attempts == 1


def test_a_read_that_never_comes_back_is_answered_for_after_the_objective_and_not_before(
    start: Start,
) -> None:
    with _out(start, effect=EffectType.READ) as run:
        _drive_while_it_is_out(run)
        assert run.state == RunState.TOOL_STATUS_UNKNOWN
        let_pass(hours=2)
        _drive_while_it_is_out(run)
        assert run.state == RunState.FAILED
        operation = operation_of(run)
        assert (operation.status, operation.attempts) == ("REJECTED", 1)
        assert "has not come back" in operation.error


# -- A tool that moved to another account -------------------------------------------------------


def test_what_was_planned_for_one_account_is_never_sent_from_another(start: Start) -> None:
    scripted_tool(NotSent("no connection"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_PREPARED
    with isolated_registry():
        moved = scripted_tool("sent", provider=ELSEWHERE)
        drive_when_due(run)
    operation = operation_of(run)
    assert (operation.status, moved.calls) == ("CANCELLED", [])
    assert "bank/acct_1" in operation.error
    assert "bank/acct_2" in operation.error
    assert operation_edges(run)[-1] == "GIVE_UP"


@pytest.mark.parametrize("effect", WRITES)
def test_what_is_unknown_in_one_account_is_not_asked_for_nor_sent_in_another(
    effect: EffectType, start: Start
) -> None:
    scripted_tool(LOST, effect=effect, approval_policy=UNSIGNED)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    look_up = Script(found("somebody else's"))
    with isolated_registry():
        moved = scripted_tool(
            "sent", effect=effect, provider=ELSEWHERE, look_up=look_up, approval_policy=UNSIGNED
        )
        drive_when_due(run)
    assert (moved.calls, look_up.calls) == ([], [])
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    assert "bank/acct_2" in operation_of(run).error


def test_what_another_provider_says_is_nothing_to_it_either(start: Start) -> None:
    scripted_tool(LOST)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    look_up = Script(found("somebody else's"))
    with isolated_registry():
        scripted_tool(provider=replace(PLAIN, account="acct_1"), look_up=look_up)
        drive_when_due(run)
    assert look_up.calls == []
    assert run.state == RunState.WAITING_FOR_RESOLUTION


def test_a_read_is_called_again_in_whatever_account_the_tool_uses_now(start: Start) -> None:
    scripted_tool(LOST, effect=EffectType.READ)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    with isolated_registry():
        scripted_tool(7, effect=EffectType.READ, provider=ELSEWHERE)
        drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def test_what_its_own_account_said_is_recorded_although_the_tool_has_moved(start: Start) -> None:
    scripted_tool(LOST)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    hear_late(run, "committed", result="heard late", external_ref="re_1")
    with isolated_registry():
        scripted_tool(provider=ELSEWHERE)
        drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "heard late")


# -- A fault of our own -------------------------------------------------------------------------


def test_a_run_that_was_set_aside_keeps_its_date_although_a_cancel_came_meanwhile(
    start: Start,
) -> None:
    """What fails whenever it is claimed must not be claimed at once for being cancelled."""
    run = start(decider=call_once())
    failed: list[events.Event] = []

    def fail(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and not failed:
            failed.append(event)
            cancel_run(actor=operator(), run_id=run.id)
            raise ZeroDivisionError

    unsubscribe = events.subscribe(fail)
    try:
        with pytest.raises(ZeroDivisionError):
            drive(run)
    finally:
        unsubscribe()
    run.refresh_from_db()
    assert (run.state, run.lease_owner) == (RunState.READY, "")
    assert ask("SELECT wake_at > now() + interval '30 s' FROM runs_agentrun WHERE id = %s", run.id)
    drive_when_due(run)
    assert run.state == RunState.CANCELLED
