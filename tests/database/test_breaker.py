"""Budgets and the breaker in runs: a pause that says why, and never a failure or a hot loop."""

from collections.abc import Callable
from datetime import timedelta
from decimal import InvalidOperation
from typing import Any

import pytest

from runs import Budget, CallTools, Context, Decision, Finish, Script, Sleep, ToolCall
from runs.access import Actor, operator
from runs.breaker import MOST_LOST_ATTEMPTS
from runs.control import pause_run
from runs.engine import advance
from runs.errors import OverBudget
from runs.events import Name
from runs.models import AgentRun, Notice, StepAttempt
from runs.resuming import Raise, resume_run
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    found,
    let_pass,
    operation_of,
    scripted_tool,
)
from tests.database.kit import Script as Answers
from tools import EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
ANN = Actor(name="ann", scopes=frozenset({"runs:write"}))


def resume(run: AgentRun, **more: Any) -> None:
    resume_run(actor=ANN, run_id=run.id, add=Raise(**more))
    run.refresh_from_db()


def is_parked(run: AgentRun) -> bool:
    return run.wake_at is None and run.paused_at is not None and run.lease_owner == ""


def using(tokens: int, cost_usd: str = "0") -> Callable[[Context], Decision]:
    def decide(context: Context) -> Decision:
        context.usage.add(tokens=tokens, cost_usd=cost_usd)
        return Finish("done") if context.step_number == 9 else Sleep(timedelta(0))

    return decide


# -- Budgets -------------------------------------------------------------------


def test_what_deciders_use_is_counted_and_ends_in_a_pause(start: Start) -> None:
    run = start(decider=using(40, "0.25"), budget=Budget(tokens=100))
    drive(run)
    assert is_parked(run)
    assert (run.spent_tokens, run.step_number) == (120, 3)
    assert "120 of 100 tokens" in run.pause_reason
    assert "0.75 USD" in run.pause_reason
    assert Notice.objects.filter(kind=Notice.Kind.RUN_PAUSED, run=run).exists()


def test_money_is_counted_to_the_last_decimal(start: Start) -> None:
    run = start(decider=using(1, "0.1"), budget=Budget(cost_usd="0.3"))
    drive(run)
    assert (is_parked(run), str(run.spent_cost_usd)) == (True, "0.300000")


def test_with_a_reservation_the_limit_is_never_passed(start: Start) -> None:
    run = start(decider=using(30), budget=Budget(tokens=100, step_tokens=40))
    drive(run)
    assert (is_parked(run), run.spent_tokens) == (True, 90)


def test_what_a_failing_decider_used_is_spent_and_stops_its_retries(start: Start) -> None:
    def decide(context: Context) -> Decision:
        context.usage.add(tokens=60)
        raise ValueError("no answer")

    run = start(decider=decide, budget=Budget(tokens=100))
    drive(run)
    assert (run.state, run.spent_tokens) == (RunState.DECIDING, 60)
    drive_when_due(run)
    assert run.spent_tokens == 120
    drive_when_due(run)
    assert (run.state, is_parked(run), run.spent_tokens) == (RunState.DECIDING, True, 120)


def test_a_failing_decider_has_spent_what_was_reserved_for_it(start: Start) -> None:
    def decide(context: Context) -> Decision:
        context.usage.add(tokens=60)
        raise ValueError("asked an llm, and did not say what for")

    budget = Budget(tokens=1_000, step_tokens=400, cost_usd="1", step_cost_usd="0.2")
    run = start(decider=decide, budget=budget)
    drive(run)
    assert (run.spent_tokens, str(run.spent_cost_usd)) == (400, "0.200000")


@pytest.mark.parametrize("moment", [Name.DECIDER_STARTING, Name.DECIDER_DONE], ids=str)
def test_what_a_dead_worker_had_reserved_stays_spent(start: Start, moment: Name) -> None:
    run = start(decider=using(10), budget=Budget(tokens=100, step_tokens=50))
    with dies_at(moment):
        drive(run)
    run.refresh_from_db()
    assert run.spent_tokens == 50
    expire_lease(run)
    with dies_at(moment):
        drive(run)
    expire_lease(run)
    drive(run)
    assert (is_parked(run), run.spent_tokens) == (True, 100)


def test_a_run_over_its_budget_is_resumed_only_with_more(start: Start) -> None:
    run = start(decider=using(0), budget=Budget(steps=2))
    drive(run)
    with pytest.raises(OverBudget, match="2 of 2 steps"):
        resume(run)
    resume(run, steps=3)
    drive(run)
    assert (is_parked(run), run.spent_steps, run.budget["steps"]) == (True, 5, 5)
    resume(run, steps=10)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "done")


def test_time_is_a_budget_and_can_be_added(start: Start) -> None:
    run = start(
        decider=Script(Sleep(timedelta(hours=2)), Finish("done")),
        budget=Budget(duration=timedelta(hours=1)),
    )
    drive(run)
    let_pass(hours=2)
    drive(run)
    assert (run.state, is_parked(run)) == (RunState.READY, True)
    resume(run, seconds=60)
    drive(run)
    assert run.result == "done"


# -- Loops ---------------------------------------------------------------------


def test_the_same_call_with_the_same_answer_again_and_again_is_a_loop(start: Start) -> None:
    script = scripted_tool(*([7] * 99), effect=EffectType.READ)
    run = start(
        decider=lambda context: CallTools(ToolCall("pay")), tools=("pay",), repeats_allowed=4
    )
    drive(run)
    assert (is_parked(run), len(script.calls)) == (True, 4)
    assert run.pause_reason == "loop: the same calls came to the same 4 times in a row"
    resume(run)
    drive(run)
    assert (is_parked(run), len(script.calls)) == (True, 8)


def test_another_answer_is_no_loop(start: Start) -> None:
    script = scripted_tool(*range(9), effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        return Finish() if context.step_number > 9 else CallTools(ToolCall("pay"))

    run = start(decider=decide, tools=("pay",), repeats_allowed=3)
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 9)


def test_polling_with_a_wait_in_between_is_no_loop(start: Start) -> None:
    scripted_tool(*([7] * 9), effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        if context.step_number > 12:
            return Finish()
        if context.step_number % 2:
            return CallTools(ToolCall("pay"))
        return Sleep(timedelta(0))

    run = start(decider=decide, tools=("pay",), repeats_allowed=3)
    drive(run)
    assert run.state == RunState.COMPLETED


# -- Poison --------------------------------------------------------------------


def test_a_step_that_loses_every_worker_is_parked_with_the_reason(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    for _ in range(MOST_LOST_ATTEMPTS):
        with dies_at(Name.DECIDER_STARTING):
            drive(run)
        expire_lease(run)
    drive(run)
    assert (run.state, is_parked(run)) == (RunState.DECIDING, True)
    assert run.pause_reason.startswith(
        f"given up: {MOST_LOST_ATTEMPTS} attempts in a row at step 1"
    )
    resume(run)
    drive(run)
    assert run.state == RunState.COMPLETED


def test_an_error_that_stays_is_parked_too_and_not_retried_for_ever(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    with dies_at(Name.DECIDER_STARTING):
        drive(run)
    expire_lease(run)
    change(
        "INSERT INTO runs_modeldecision (step_id, run_id, fence_token, kind, body, decider,"
        " agent_version, tool_versions) SELECT id, run_id, 1, 'x', '{\"v\": 9}', '', '', '{}'"
        " FROM runs_step"
    )
    for _ in range(MOST_LOST_ATTEMPTS):
        if run.paused_at is None:
            with pytest.raises(Exception, match="cannot be read"):
                advance(run_id=run.id, owner="worker 1")
        run.refresh_from_db()
        change("UPDATE runs_agentrun SET wake_at = now() WHERE paused_at IS NULL")
    assert is_parked(run)
    assert "cannot be read" in run.error


# -- Pausing -------------------------------------------------------------------


def test_a_pause_during_the_decision_lets_nothing_be_sent(start: Start) -> None:
    script = scripted_tool(7)

    def decide(context: Context) -> Decision:
        if context.step_number > 1:
            return Finish("done")
        pause_run(actor=ANN, run_id=run.id, reason="look first")
        return CallTools(ToolCall("pay"))

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert (is_parked(run), script.calls) == (True, [])
    assert (operation_of(run).status, run.pause_reason) == ("PREPARED", "look first")
    resume(run)
    drive(run)
    assert (run.result, len(script.calls)) == ("done", 1)


def test_a_pause_during_the_call_keeps_its_outcome_and_decides_nothing(start: Start) -> None:
    def answer(call: Any) -> int:
        pause_run(actor=ANN, run_id=run.id)
        return 7

    scripted_tool(answer)
    run = start(decider=Script(ToolCall("pay"), Finish("{last}")), tools=("pay",))
    drive(run)
    assert (run.state, is_parked(run)) == (RunState.DECIDING, True)
    assert operation_of(run).status == "COMMITTED"
    resume(run)
    drive(run)
    assert run.result == 7


def test_a_paused_run_still_finds_out_what_happened(start: Start) -> None:
    def lose(call: Any) -> None:
        pause_run(actor=ANN, run_id=run.id)
        raise ConnectionResetError("lost")

    scripted_tool(lose, look_up=Answers(found(5)))
    run = start(decider=Script(ToolCall("pay"), Finish("{last}")), tools=("pay",))
    drive(run)
    assert run.uncertain
    drive_when_due(run)
    assert (operation_of(run).status, run.state) == ("COMMITTED", RunState.READY)
    assert is_parked(run)


def test_a_pause_is_free_of_attempts_left_open(start: Start) -> None:
    run = start(decider=using(0), budget=Budget(steps=2))
    drive(run)
    assert not StepAttempt.objects.filter(ended_at=None).exists()
    pause_run(actor=operator(), run_id=run.id)
    assert is_parked(run)


def test_a_row_that_stops_every_worker_between_steps_is_parked_too(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    change('UPDATE runs_agentrun SET budget = \'{"cost_usd": "much"}\'')
    for _ in range(MOST_LOST_ATTEMPTS):
        with pytest.raises(InvalidOperation):
            advance(run_id=run.id, owner="worker 1")
        change("UPDATE runs_agentrun SET wake_at = now() WHERE paused_at IS NULL")
    run.refresh_from_db()
    assert is_parked(run)
    change("UPDATE runs_agentrun SET budget = NULL")
    resume(run)
    drive(run)
    assert run.state == RunState.COMPLETED


@pytest.mark.parametrize("tokens", [-1, 10**13], ids=str)
def test_a_usage_that_nobody_could_add_up_is_no_decision(start: Start, tokens: int) -> None:
    run = start(decider=using(tokens))
    drive(run)
    assert (run.state, run.failures, run.spent_tokens) == (RunState.DECIDING, 1, 0)
