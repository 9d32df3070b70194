"""The report: its arithmetic with numbers worked out by hand, and what it costs."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Agent, Context, Decision, Finish, Objectives
from runs.errors import InvalidInput
from runs.models import Rollup
from runs.slo.measures import Measure
from runs.slo.objectives import Objective
from runs.slo.report import build_report
from runs.slo.shapes import IndicatorStanding, Levels, Report
from runs.slo.slices import floor
from runs.slo.windows import OFFERED
from tests.database.slo_sums import clock

pytestmark = pytest.mark.django_db

_M = Measure


def finish(context: Context) -> Decision:
    return Finish()


def happened(
    measure: Measure,
    count: int = 1,
    *,
    agent: str = "a",
    version: str = "1",
    tool: str = "",
    le: float = 0,
    total: float = 0,
    ago: timedelta = timedelta(minutes=10),
) -> None:
    """So often, so long ago."""
    Rollup.objects.create(
        starts_at=floor(clock() - ago),
        seconds=300,
        agent=agent,
        agent_version=version,
        tool=tool,
        measure=measure,
        le=le,
        count=count,
        total=total,
    )


def standing(levels: Levels, name: Objective) -> IndicatorStanding:
    return next(one for one in levels.indicators if one.name == name)


def group(report: Report, name: str) -> Levels:
    return next(one for one in report.groups if one.name == name)


def budget(one: IndicatorStanding) -> tuple[Any, ...]:
    """(good, of all, target, what is left of the budget, burn, kept)."""
    left = None if one.budget_left is None else round(one.budget_left, 6)
    burn = None if one.burn is None else round(one.burn, 6)
    target = None if one.target is None else round(one.target, 6)
    return one.good, one.total, target, left, burn, one.is_kept


def test_a_budget_is_what_may_be_bad_and_burns_at_one_where_it_just_lasts() -> None:
    happened(_M.RUNS_COMPLETED, 198)
    happened(_M.RUNS_FAILED, 2)
    # Two of two hundred may fail: one in a hundred.
    one = standing(build_report().all, Objective.COMPLETION)
    assert budget(one) == (198, 200, 0.99, 0, 1, True)
    happened(_M.RUNS_FAILED, 1, version="2")
    one = standing(build_report().all, Objective.COMPLETION)
    assert budget(one) == (198, 201, 0.99, -0.492537, 1.492537, False)
    assert one.ratio == 198 / 201


def test_several_agents_may_spend_together_what_each_may() -> None:
    Agent(name="b", decider=finish, objectives=Objectives(completion=0.9))
    Agent(name="c", decider=finish, objectives=Objectives(completion=None))
    happened(_M.RUNS_COMPLETED, 200, agent="a")
    happened(_M.RUNS_COMPLETED, 8, agent="b")
    happened(_M.RUNS_FAILED, 2, agent="b")
    happened(_M.RUNS_FAILED, 50, agent="c")
    report = build_report(by="agent")
    one = standing(group(report, "a"), Objective.COMPLETION)
    assert budget(one) == (200, 200, 0.99, 1, 0, True)
    one = standing(group(report, "b"), Objective.COMPLETION)
    # One of ten may fail, and two did.
    assert budget(one) == (8, 10, 0.9, -1, 2, False)
    one = standing(group(report, "c"), Objective.COMPLETION)
    assert budget(one) == (0, 50, None, None, None, None)
    # Two and one of 210; of c nothing is promised.
    one = standing(report.all, Objective.COMPLETION)
    assert budget(one) == (208, 260, round(1 - 3 / 210, 6), round(1 - 2 / 3, 6), 0.666667, True)


def test_where_nothing_may_be_bad_the_first_has_spent_the_budget() -> None:
    happened(_M.OPERATIONS_SENT, 1_000, tool="pay")
    one = standing(build_report().all, Objective.DUPLICATES)
    assert budget(one) == (1_000, 1_000, 1, 1, 0, True)
    happened(_M.DUPLICATES, 1, tool="pay")
    one = standing(build_report(by="tool").groups[0], Objective.DUPLICATES)
    assert budget(one) == (999, 1_000, 1, 0, None, False)


def test_a_target_that_is_just_kept_is_kept_whatever_the_floating_point() -> None:
    Agent(name="b", decider=finish, objectives=Objectives(completion=0.9))
    happened(_M.RUNS_COMPLETED, 9, agent="b")
    happened(_M.RUNS_FAILED, 1, agent="b")
    one = standing(build_report().all, Objective.COMPLETION)
    assert (one.burn, one.budget_left, one.is_kept) == (1, 0, True)


def test_each_agent_is_held_against_its_own_bounds() -> None:
    strict = Objectives(latency_seconds=60, cost_usd=0.25)
    Agent(name="b", decider=finish, objectives=strict)
    for agent in "ab":
        for le, count in ((60, 5), (300, 3), (3_600, 1)):
            happened(_M.RUN_WORKING_SECONDS, count, agent=agent, le=le)
        for le, count in ((0.25, 4), (1, 2), (2.5, 1)):
            happened(_M.RUN_COST_USD, count, agent=agent, le=le)
    report = build_report(by="agent")
    latency = {one.name: standing(one, Objective.LATENCY) for one in report.groups}
    assert {name: (one.good, one.total, one.bound) for name, one in latency.items()} == {
        "a": (8, 9, 900),
        "b": (5, 9, 60),
    }
    cost = {one.name: standing(one, Objective.COST) for one in report.groups}
    assert (cost["a"].good, cost["a"].bound) == (6, 1)
    assert (cost["b"].good, cost["b"].bound) == (4, 0.25)
    # Nothing is said of a bound where they differ.
    both = standing(report.all, Objective.LATENCY)
    assert (both.good, both.total, both.bound) == (13, 18, None)
    # The charts judge by the same bounds.
    assert sum(point.good[Objective.LATENCY] for point in report.series) == 13
    assert sum(point.good[Objective.COST] for point in report.series) == 10


def test_the_other_indicators() -> None:
    happened(_M.RUNS_COMPLETED, 6)
    happened(_M.RUNS_FAILED, 2)
    happened(_M.RUNS_CANCELLED, 2)
    happened(_M.RUNS_TOUCHED, 3)
    happened(_M.UNKNOWN_IN_TIME, 97, tool="pay")
    happened(_M.UNKNOWN_OVER_OBJECTIVE, 3, tool="pay")
    happened(_M.APPROVALS_UNCHANGED, 5, tool="pay")
    happened(_M.APPROVALS_CHANGED, 3, tool="pay")
    happened(_M.APPROVALS_DENIED, 2, tool="pay")
    happened(_M.APPROVALS_EXPIRED, 9, tool="pay")
    found = {one.name: budget(one) for one in build_report().all.indicators}
    assert found[Objective.UNATTENDED] == (7, 10, None, None, None, None)
    assert found[Objective.UNKNOWN] == (97, 100, 0.99, -2, 3, False)
    assert found[Objective.APPROVALS] == (5, 10, None, None, None, None)


def test_without_anything_to_judge_there_is_no_ratio_and_nothing_is_spent() -> None:
    report = build_report(by="agent")
    one = standing(report.all, Objective.COMPLETION)
    assert (one.ratio, budget(one)) == (None, (0, 0, 0.99, 1, 0, True))
    assert (report.groups, report.counted_at) == ([], None)


def test_a_percentile_is_the_bound_of_its_bucket() -> None:
    for le, count in ((1, 5), (15, 4), (float("inf"), 1)):
        happened(_M.RUN_SECONDS, count, le=le, total=10 * count)
    spread = build_report().all.distributions[_M.RUN_SECONDS]
    assert (spread.count, spread.total, spread.mean) == (10, 100, 10)
    assert (spread.p50_at_most, spread.p95_at_most) == (1, None)
    assert [one.count for one in spread.buckets] == [5, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]


def test_it_looks_back_over_its_window_alone() -> None:
    for hours in (0.5, 3, 20, 100, 24 * 20, 24 * 60, 24 * 200):
        happened(_M.RUNS_COMPLETED, ago=timedelta(hours=hours))
    found = {
        window: build_report(window=window).all.counts[_M.RUNS_COMPLETED]
        for window in (*OFFERED, "400d")
    }
    assert list(found.values()) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("window", [*OFFERED, "36h", "45d", "400d"])
def test_a_chart_has_at_most_a_hundred_points_that_hold_the_whole_window(window: str) -> None:
    for hours in (0, 0.5, 3, 20, 100, 24 * 20, 24 * 60, 24 * 200):
        happened(_M.RUNS_COMPLETED, ago=timedelta(hours=hours))
    report = build_report(window=window)
    total = [point.total[Objective.COMPLETION] for point in report.series]
    assert sum(total) == report.all.counts[_M.RUNS_COMPLETED] > 0
    assert 10 <= len(report.series) <= 101
    steps = {later.at - one.at for one, later in pairwise(report.series)}
    assert steps == {timedelta(seconds=report.point_seconds)}
    assert report.series[0].at == report.since
    assert report.series[-1].at <= report.until


def test_one_agent_and_one_tool() -> None:
    for agent in "ab":
        happened(_M.RUNS_COMPLETED, agent=agent)
        for tool in ("pay", "ship"):
            happened(_M.OPERATIONS_SENT, 2, agent=agent, tool=tool)
    assert build_report(agent="a").all.counts[_M.RUNS_COMPLETED] == 1
    of_tool = build_report(tool="pay")
    assert of_tool.all.counts[_M.OPERATIONS_SENT] == 4
    assert [one.name for one in of_tool.all.indicators] == ["duplicates", "unknown", "approvals"]
    both = build_report(agent="a", tool="pay", by="version")
    assert [(one.agent, one.name) for one in both.groups] == [("a", "1")]
    assert both.groups[0].counts[_M.OPERATIONS_SENT] == 2


def test_by_tool_are_its_operations_and_what_is_of_no_tool_is_no_group() -> None:
    happened(_M.RUNS_COMPLETED)
    happened(_M.OPERATIONS_SENT, tool="pay")
    happened(_M.OPERATIONS_CANCELLED, tool="")
    assert [one.name for one in build_report(by="tool").groups] == ["pay"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"window": "soon"}, ["window", "'soon'", "24h", "400d"]),
        ({"window": "0h"}, ["window", "'0h'"]),
        ({"window": "401d"}, ["window", "'401d'", "400d"]),
        ({"window": "9" * 60 + "d"}, ["window"]),
        ({"window": "٣d"}, ["window"]),
        ({"by": "llm"}, ["by", "'llm'", "agent, tool, version"]),
        ({"agent": "nobody"}, ["agent", "'nobody'", "external"]),
        ({"agent": "a\0"}, ["agent"]),
        ({"tool": "x"}, ["tool", "'x'", "read_result"]),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(given: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        build_report(**given)
    assert all(word in str(refused.value) for word in words), str(refused.value)
    assert len(str(refused.value)) < 500


def test_an_agent_that_is_gone_is_still_known_by_what_it_did() -> None:
    happened(_M.RUNS_COMPLETED, agent="gone")
    assert build_report(agent="gone").all.counts[_M.RUNS_COMPLETED] == 1


def test_it_costs_the_same_few_statements_however_much_there_is() -> None:
    def statements(build: Callable[[], Report]) -> int:
        with CaptureQueriesContext(connection) as asked:
            build()
        return len(asked)

    few = statements(lambda: build_report(by="version"))
    for agent in range(30):
        for version in "123":
            happened(_M.RUNS_COMPLETED, agent=f"agent {agent}", version=version)
    assert statements(lambda: build_report(by="version")) == few == 3
    assert len(build_report(by="version").groups) == 90
