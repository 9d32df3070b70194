"""Objectives are refused where they are written, and time is cut without gaps."""

from datetime import UTC, datetime, timedelta

import pytest

from runs import Agent, Context, Decision, Finish, Objectives
from runs.agents import forget_agents
from runs.slo.objectives import InvalidObjective
from runs.slo.slices import FOLDS, ORIGIN, SLICE, ceil, floor, resolution


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"completion": 99}, "completion=99"),
        ({"completion": 0}, "completion=0"),
        ({"latency": "0.9"}, "latency='0.9'"),
        ({"duplicates": True}, "duplicates=True"),
        ({"latency_seconds": 100}, "latency_seconds=100 is not possible. Use one that is counted"),
        ({"cost_usd": float("inf")}, "cost_usd=inf"),
        ({"cost_usd": None}, "cost_usd=None"),
    ],
)
def test_what_nothing_can_be_held_against_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidObjective, match="Objectives: ") as refused:
        Objectives(**given)  # type: ignore[arg-type]
    assert words in str(refused.value)


def test_another_objective_is_no_other_version_of_an_agent() -> None:
    def decide(context: Context) -> Decision:
        return Finish()

    def version(**given: Objectives) -> str:
        agent = Agent(name="one", decider=decide, **given)

        forget_agents(["one"])
        return agent.version

    assert version() == version(objectives=Objectives(completion=0.5, cost_usd=25))


def test_slices_of_one_length_follow_each_other_and_hold_shorter_ones_whole() -> None:
    at = datetime(2026, 3, 1, 13, 37, 42, tzinfo=UTC)
    assert floor(at) == datetime(2026, 3, 1, 13, 35, tzinfo=UTC)
    assert ceil(at) == floor(at) + SLICE
    assert floor(floor(at)) == ceil(floor(at)) == floor(at)
    for fold in FOLDS:
        assert fold.longer % fold.shorter == timedelta()
        assert (floor(at, fold.longer) - ORIGIN) % fold.shorter == timedelta()
    assert floor(at, timedelta(days=1)) == datetime(2026, 3, 1, tzinfo=UTC)


def test_the_older_the_longer_are_the_slices_that_are_there() -> None:
    ages = (timedelta(hours=24), timedelta(days=7), timedelta(days=400), timedelta(days=500))
    lengths = [resolution(age) for age in ages]
    assert lengths == [SLICE, timedelta(hours=1), timedelta(days=1), timedelta(days=365)]
