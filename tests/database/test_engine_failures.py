"""The engine where things do not go on: nobody to serve a run, deciders that fail, limits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from runs import Agent, Budget, CallTools, Context, Decision, Fail, Finish, ToolCall, events
from runs.access import operator
from runs.agents import forget_agents
from runs.change import Change, Edge, NewDecision, Release
from runs.commands import cancel_run
from runs.commit import commit_if_held
from runs.decisions import MOST_CALLS
from runs.errors import UndecodableDecision
from runs.lease import claim
from runs.models import AgentRun, StepAttempt
from runs.state import RunState
from runs.statement import Held
from runs.undecided import MAX_FAILURES
from tests.database.kit import (
    ON_DATABASE,
    ask,
    call_once,
    change,
    drive,
    drive_when_due,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import EffectType
from tools.registry import isolated_registry

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- What this worker cannot serve --------------------------------------------------------------


def test_a_run_of_an_agent_that_is_not_here_is_left_to_others(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    forget_agents([run.agent])
    for _ in range(3):
        drive_when_due(run)
    assert run.state == RunState.READY
    assert run_edges(run) == ["CREATE"]
    assert 10 < _due_in(run) <= 15
    Agent(name=run.agent, decider=lambda context: Finish(2))
    drive_when_due(run)
    assert run.result == 2


def test_an_operation_of_a_tool_that_is_not_here_is_left_to_others(start: Start) -> None:
    scripted_tool(ValueError("lost"))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    with isolated_registry():
        drive_when_due(run)
    assert (run.state, run.lease_owner) == (RunState.TOOL_STATUS_UNKNOWN, "")
    assert 10 < _due_in(run) <= 15


# -- Deciders that fail -------------------------------------------------------------------------


def _raise(context: Context) -> Decision:
    raise ZeroDivisionError("by design")


def test_a_decider_that_fails_is_asked_later_and_later_then_the_run_fails(start: Start) -> None:
    run = start(decider=_raise)
    waits = []
    for _ in range(MAX_FAILURES - 1):
        drive_when_due(run)
        assert (run.state, run.lease_owner) == (RunState.DECIDING, "")
        waits.append(round(_due_in(run)))
    drive_when_due(run)
    assert waits == [2, 4]
    assert (run.state, run.failures) == (RunState.FAILED, MAX_FAILURES)
    assert "ZeroDivisionError: by design" in run.error
    outcomes = StepAttempt.objects.filter(step__run=run).order_by("number")
    assert list(outcomes.values_list("outcome", flat=True)) == ["failed", "failed", "done"]
    assert run_edges(run).count("DECIDER_FAILED") == MAX_FAILURES - 1


def test_a_usable_decision_forgives_what_failed_before(start: Start) -> None:
    scripted_tool(7, 8, 9, effect=EffectType.READ)
    answers = iter([None, ToolCall("pay"), None, ToolCall("pay"), None, Finish("done")])
    run = start(decider=lambda context: next(answers), tools=("pay",))
    for _ in range(4):
        drive_when_due(run)
    assert (run.state, run.result, run.failures) == (RunState.COMPLETED, "done", 0)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        CallTools(),
        CallTools(*[ToolCall("pay")] * (MOST_CALLS + 1)),
        Finish(float("nan")),
        Finish("nul \0"),
        Finish("\ud800"),
        Finish(2**60),
        Finish("x" * 300_000),
        Finish(object()),
        Fail(7),  # type: ignore[arg-type]
    ],
    ids=lambda answer: str(answer)[:20].encode("ascii", "replace").decode(),
)
def test_a_decision_that_cannot_be_used_is_no_decision(start: Start, answer: Any) -> None:
    script = scripted_tool(7)
    run = start(decider=lambda context: answer, tools=("pay",))
    for _ in range(MAX_FAILURES):
        drive_when_due(run)
    assert run.state == RunState.FAILED
    assert "no decision in 3 tries" in run.error
    assert script.calls == []
    assert ask("SELECT count(*) FROM runs_modeldecision") == 0


def test_decisions_whose_calls_cannot_be_made_are_bounded(start: Start) -> None:
    run = start(decider=lambda context: CallTools(ToolCall("nothing")))
    drive(run)
    assert (run.state, run.step_number) == (RunState.FAILED, MAX_FAILURES)
    assert "calls that cannot be made" in run.error


def test_good_calls_beside_bad_ones_are_made_and_the_bound_still_holds(start: Start) -> None:
    script = scripted_tool(*range(9), effect=EffectType.READ)
    run = start(
        decider=lambda context: CallTools(ToolCall("pay"), ToolCall("nothing")), tools=("pay",)
    )
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, MAX_FAILURES)


# -- Limits -------------------------------------------------------------------------------------


def test_a_run_pauses_at_its_budget_of_steps_and_says_what_was_spent(start: Start) -> None:
    script = scripted_tool(*range(9), effect=EffectType.READ)
    run = start(
        decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",), budget=Budget(steps=3)
    )
    drive(run)
    assert (run.state, run.wake_at, len(script.calls)) == (RunState.READY, None, 3)
    assert run.pause_reason == ("budget: 3 of 3 steps used; spent so far: 3 steps, 0 tokens, 0 USD")
    assert operation_of(run).status == "COMMITTED"


def test_a_run_pauses_at_its_budget_of_time(start: Start) -> None:
    asked: list[Context] = []

    def decide(context: Context) -> Decision:
        asked.append(context)
        return Finish(1)

    run = start(decider=decide, budget=Budget(duration=timedelta(hours=1)))
    change("UPDATE runs_agentrun SET created_at = now() - interval '2 hours'")
    drive(run)
    assert (run.state, run.wake_at, asked) == (RunState.READY, None, [])
    assert "its time, which ended" in run.pause_reason


# -- Rows that cannot be read -------------------------------------------------------------------


def test_a_decision_that_cannot_be_read_stops_the_run_loudly_and_names_itself(
    start: Start,
) -> None:
    run = start(decider=lambda context: Finish(1))
    _record(run, body={"v": 99, "kind": "from the future"})
    with pytest.raises(UndecodableDecision):
        drive(run)
    run.refresh_from_db()
    assert str(run.id) in run.error
    assert "from the future" in run.error
    assert (run.state, run.lease_owner) == (RunState.DECISION_RECORDED, "")
    assert 30 < _due_in(run) <= 60


def test_a_run_that_cannot_be_read_can_be_cancelled(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    _record(run, body={"v": 99, "kind": "from the future"})
    with pytest.raises(UndecodableDecision):
        drive(run)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert (run.state, run.lease_owner, run.wake_at) == (RunState.CANCELLED, "", None)
    assert run_edges(run)[-1] == "CANCEL"


def test_a_run_that_fails_again_and_again_is_no_hot_loop_for_being_cancelled(start: Start) -> None:
    """What cannot be cancelled either must wait like anything else that is set aside."""
    run = start(decider=lambda context: Finish(1))
    _record(run, body={"v": 99, "kind": "from the future"})
    cancel_run(actor=operator(), run_id=run.id)
    with _fault_of_ours(), pytest.raises(ZeroDivisionError):
        drive(run)
    run.refresh_from_db()
    assert (run.state, run.lease_owner) == (RunState.DECISION_RECORDED, "")
    assert _due_in(run) > 30


@contextmanager
def _fault_of_ours() -> Iterator[None]:
    """The first commit fails before it begins."""
    seen: list[events.Event] = []

    def fail(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and not seen:
            seen.append(event)
            raise ZeroDivisionError

    unsubscribe = events.subscribe(fail)
    try:
        yield
    finally:
        unsubscribe()


def _record(run: AgentRun, *, body: dict[str, Any]) -> None:
    taken = claim(run_id=run.id, owner="another version")
    assert taken is not None
    opened = commit_if_held(
        Held(run.id, taken.row["version"], 1, "w", None, None),
        Change(
            edges=[Edge("OPEN_STEP", "READY", "DECIDING", "", 1, 1)],
            run={"state": "DECIDING", "step_number": 1},
            open_step=1,
            open_attempt=1,
        ),
    )
    commit_if_held(
        Held(run.id, opened.version, 1, "w", opened.step_id, opened.attempt_id),
        Change(
            edges=[Edge("RECORD_DECISION", "DECIDING", "DECISION_RECORDED", "", 1, 1)],
            run={"state": "DECISION_RECORDED"},
            decision=NewDecision("?", body, "test", "1", {}),
            close_attempt="parked",
            release=Release(wake_in=0.0, can_cancel=True),
        ),
    )


def _due_in(run: AgentRun) -> float:
    return float(
        ask("SELECT EXTRACT(EPOCH FROM wake_at - now()) FROM runs_agentrun WHERE id = %s", run.id)
    )
