"""Limits of agents that limit or order nothing are refused when the project starts."""

from typing import Any

import pytest

from runs import Finish
from runs.agents import Agent
from runs.checks_flow import check_agent_limits


def _declare(**declared: Any) -> list[str]:
    agent = Agent(name="limited", decider=lambda context: Finish(1), **declared)
    messages = [one for one in check_agent_limits() if one.obj == f"agent {agent.name}"]
    assert all(message.hint for message in messages)
    return [str(message.id) for message in messages]


def test_sound_limits_are_passed_in_silence() -> None:
    assert _declare(concurrency=1, priority=-100) == []


@pytest.mark.parametrize("given", [0, -1, 1.5, "3", True], ids=repr)
def test_a_concurrency_that_is_no_number_of_runs_is_refused(given: Any) -> None:
    assert _declare(concurrency=given) == ["runs.E010"]


@pytest.mark.parametrize("given", [101, -101, 0.5, "high", None, False], ids=repr)
def test_a_priority_that_is_none_is_refused(given: Any) -> None:
    assert _declare(priority=given) == ["runs.E011"]
