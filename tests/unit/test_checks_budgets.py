"""Budgets that could not be reckoned with are refused when the project starts."""

from datetime import timedelta
from typing import Any

import pytest

from runs import Budget, Finish, LlmLimits
from runs.agents import Agent
from runs.checks_budgets import check_budgets
from tools import Rate


def _declare(**declared: Any) -> list[str]:
    Agent(name="spender", decider=lambda context: Finish(1), **declared)
    ours = ("agent spender", "provider llm big/")
    messages = [one for one in check_budgets() if one.obj in ours]
    assert all(message.hint for message in messages)
    return [str(message.id) for message in messages]


def test_sound_budgets_are_passed_in_silence() -> None:
    budget = Budget(
        steps=1, tokens=1, cost_usd="0.5", duration=timedelta(1), step_tokens=0, step_cost_usd="0"
    )
    llm = LlmLimits("big", rate=Rate(1, per=timedelta(minutes=1)), concurrency=1)
    assert _declare(budget=budget, repeats_allowed=2, llm_limits=llm) == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"budget": Budget(steps=0)}, "runs.E012"),
        ({"budget": Budget(tokens=-1)}, "runs.E012"),
        ({"budget": Budget(steps=True)}, "runs.E012"),
        ({"budget": Budget(step_tokens=-1)}, "runs.E012"),
        ({"budget": Budget(cost_usd="much")}, "runs.E013"),
        ({"budget": Budget(cost_usd="NaN")}, "runs.E013"),
        ({"budget": Budget(cost_usd=1.5)}, "runs.E013"),  # type: ignore[arg-type]
        ({"budget": Budget(step_cost_usd="-1")}, "runs.E013"),
        ({"budget": Budget(duration=timedelta(0))}, "runs.E014"),
        ({"repeats_allowed": 1}, "runs.E015"),
        ({"llm_limits": LlmLimits("big", concurrency=0)}, "tools.E030"),
    ],
    ids=str,
)
def test_what_cannot_be_counted_is_refused(declared: dict[str, Any], said: str) -> None:
    assert _declare(**declared) == [said]
