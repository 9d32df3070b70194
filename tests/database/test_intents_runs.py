"""Intents across runs, and while the first call of an intent is not settled."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from runs import ToolCall
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    call_once,
    change,
    drive,
    drive_when_due,
    found,
    operation_edges,
    operation_of,
    scripted_tool,
)
from tools import Approve, Call, EffectType, NotSent, Rejected

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


PAY = ToolCall("pay", amount=1)


# -- Across runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "sends"), [("run", 2), ("global", 1)])
def test_another_run_may_do_the_same_unless_the_intent_is_everybodys(
    start: Start, scope: str, sends: int
) -> None:
    script = scripted_tool("first", "second", intent_key=("amount",), intent_scope=scope)
    runs = [start(decider=call_once(PAY), tools=("pay",)) for _ in range(2)]
    for run in runs:
        drive(run)
    assert len(script.calls) == sends
    assert [run.result for run in runs] == ["first", "second" if sends == 2 else "first"]
    assert (operation_of(runs[1]).repeats_id == operation_of(runs[0]).id) == (sends == 1)


def test_a_repeat_of_another_runs_call_outlives_that_runs_purge(start: Start) -> None:
    scripted_tool(7, "second", intent_key=("amount",), intent_scope="global")
    first, second = (start(decider=call_once(PAY), tools=("pay",)) for _ in range(2))
    drive(first)
    drive(second)
    _purge(first)
    assert (operation_of(second).status, operation_of(second).result) == ("COMMITTED", 7)


def test_a_repeat_that_still_waits_for_a_purged_call_is_dropped_with_a_word(start: Start) -> None:
    def meanwhile(call: Call) -> str:
        drive(second, owner="worker 2")
        return "done"

    script, first, second = _two_runs(start, meanwhile, "must not be sent by the repeat")
    drive(first)
    _purge(first)
    drive_when_due(second)
    assert (operation_of(second).status, len(script.calls)) == ("CANCELLED", 1)
    assert "purged" in operation_of(second).error


# -- While the first is not settled, or came to nothing -----------------------------------------


def _two_runs(start: Start, *answers: Any, **declared: Any) -> tuple[Script, AgentRun, AgentRun]:
    script = scripted_tool(*answers, intent_key=("amount",), intent_scope="global", **declared)
    first, second = (start(decider=call_once(PAY), tools=("pay",)) for _ in range(2))
    return script, first, second


def _waits_for(second: AgentRun, first: AgentRun) -> None:
    repeat = operation_of(second)
    assert (repeat.status, repeat.attempts) == ("PREPARED", 0)
    assert repeat.repeats_id == operation_of(first).id
    assert (second.lease_owner, second.state) == ("", RunState.DECISION_RECORDED)
    assert second.wake_at is not None


def test_while_the_first_is_unknown_the_second_waits_and_then_gets_its_result(
    start: Start,
) -> None:
    script, first, second = _two_runs(start, LOST, "landed", look_up=Script(found("landed")))
    drive(first)
    for _ in range(3):
        drive_when_due(second)
        _waits_for(second, first)
    drive_when_due(first)
    drive_when_due(second)
    assert (first.result, second.result, len(script.calls)) == ("landed", "landed", 1)


def test_while_the_first_is_under_way_the_second_waits(start: Start) -> None:
    def meanwhile(call: Call) -> str:
        drive(second, owner="worker 2")
        _waits_for(second, first)
        return "done"

    script, first, second = _two_runs(start, meanwhile)
    drive(first)
    drive_when_due(second)
    assert (first.result, second.result, len(script.calls)) == ("done", "done", 1)


def test_while_the_first_waits_for_a_signature_the_second_waits_for_it(start: Start) -> None:
    script, first, second = _two_runs(start, 7, approval_policy=Approve())
    drive(first)
    drive(second)
    assert first.state == RunState.WAITING_FOR_APPROVAL
    _waits_for(second, first)
    assert script.calls == []


def test_while_a_person_is_awaited_for_the_first_the_second_waits(start: Start) -> None:
    script, first, second = _two_runs(
        start, LOST, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false")
    )
    drive(first)
    drive_when_due(first)
    assert first.state == RunState.WAITING_FOR_RESOLUTION
    drive(second)
    _waits_for(second, first)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(first).id,
        outcome="committed",
        evidence="seen on the statement",
        result="by hand",
    )
    drive_when_due(second)
    assert (second.result, len(script.calls)) == ("by hand", 1)


def test_what_the_first_was_refused_the_waiting_second_is_told(start: Start) -> None:
    def refuse(call: Call) -> None:
        drive(second, owner="worker 2")
        raise Rejected("no such order")

    script, first, second = _two_runs(start, refuse, "must not be sent by the repeat")
    drive(first)
    drive_when_due(second)
    assert (first.state, second.state, len(script.calls)) == ("FAILED", "FAILED", 1)
    repeat = operation_of(second)
    assert (repeat.status, repeat.attempts) == ("CANCELLED", 0)
    assert "no such order" in repeat.error
    assert operation_edges(second) == ["INTEND", "REFUSE"]


@pytest.mark.parametrize("ends", ["rejected", "given up", "cancelled", "denied by a person"])
def test_an_intent_that_came_to_nothing_is_free_again(start: Start, ends: str) -> None:
    answers = {
        "rejected": [Rejected("no")],
        "given up": [NotSent("no route")] * 2,
        "cancelled": [NotSent("no route")],
        "denied by a person": [LOST],
    }[ends]
    kind = EffectType.IRREVERSIBLE if "person" in ends else EffectType.IDEMPOTENT_WRITE
    script, first, second = _two_runs(
        start,
        *answers,
        "second",
        max_attempts=2,
        effect=kind,
        approval_policy=Approve(when="false"),
    )
    drive(first)
    if ends == "cancelled":
        cancel_run(actor=operator(), run_id=first.id)
    drive_when_due(first)
    if "person" in ends:
        resolve_operation(
            actor=operator(),
            operation_id=operation_of(first).id,
            outcome="rejected",
            evidence="the bank says no",
        )
    first.refresh_from_db()
    assert operation_of(first).settled_at is not None
    assert operation_of(first).holds_intent is None
    drive(second)
    assert (second.state, second.result) == (RunState.COMPLETED, "second")
    assert operation_of(second).repeats_id is None
    assert len(script.calls) == len(answers) + 1


def test_a_cancelled_run_frees_what_waited_for_a_signature(start: Start) -> None:
    _, first, second = _two_runs(start, 7, approval_policy=Approve())
    drive(first)
    cancel_run(actor=operator(), run_id=first.id)
    drive(first)
    drive(second)
    assert (first.state, second.state) == (RunState.CANCELLED, RunState.WAITING_FOR_APPROVAL)
    assert operation_of(second).repeats_id is None


def test_an_unknown_call_keeps_its_intent_whatever_becomes_of_its_run(start: Start) -> None:
    script, first, second = _two_runs(
        start, LOST, 7, effect=EffectType.IRREVERSIBLE, approval_policy=Approve(when="false")
    )
    drive(first)
    cancel_run(actor=operator(), run_id=first.id)
    drive_when_due(first)
    assert first.state == RunState.WAITING_FOR_RESOLUTION
    drive(second)
    _waits_for(second, first)
    assert len(script.calls) == 1


EVIDENCE = ("transition", "toolobservation", "checkpoint", "modeldecision", "incident")


def _purge(run: AgentRun) -> None:
    """Remove a run with all its rows, as far as it has any, in one transaction."""
    theirs = "repeats_id IN (SELECT id FROM runs_tooloperation WHERE run_id = %s)"
    steps = "SELECT id FROM runs_step WHERE run_id = %s"
    with transaction.atomic():
        change(f"UPDATE runs_tooloperation SET repeats_id = NULL WHERE {theirs}", run.id)
        change("DELETE FROM runs_agentrun WHERE id = %s", run.id)
        for table in (*EVIDENCE, "notice", "approval"):
            change(f"DELETE FROM runs_{table} WHERE run_id = %s", run.id)
        change("DELETE FROM runs_tooloperation WHERE run_id = %s", run.id)
        change(f"DELETE FROM runs_stepattempt WHERE step_id IN ({steps})", run.id)
        change("DELETE FROM runs_step WHERE run_id = %s", run.id)
