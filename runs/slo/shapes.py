"""A report as callers read it: one class per thing, for the API, the command and the page alike.

Guarantees: the published schema is made from these classes. A percentile is the upper bound of
the bucket that it lies in, and says so: what is counted in buckets is not known more exactly.

Does not read anything; `report.py` does.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Literal

from pydantic import Field

from runs.shapes import Shape
from runs.slo.measures import DISTRIBUTIONS, SUMS, Measure
from runs.slo.objectives import Objective
from runs.slo.reading import Sum

By = Literal["agent", "version", "tool"]


class Bucket(Shape):
    """How many values were at most so large, and larger than what the bucket before holds."""

    at_most: float | None = Field(description="null: without a bound")
    count: int


class Distribution(Shape):
    """How values are spread. A median of `at_most` 15 lies in the bucket up to 15."""

    count: int
    total: float
    mean: float | None = Field(description="null: there is no value")
    p50_at_most: float | None = Field(description="null: no value, or beyond the last bound")
    p95_at_most: float | None = Field(description="null: no value, or beyond the last bound")
    buckets: list[Bucket]


class IndicatorStanding(Shape):
    """How one objective is kept: what of `total` is `good`, and what was promised.

    `burn` is how fast the error budget is spent: at 1 it lasts just as long as the window. Where
    nothing may be bad, it is null as soon as something is.
    """

    name: Objective
    title: str
    good: int
    total: int
    ratio: float | None = Field(description="null: there was nothing to judge")
    target: float | None = Field(description="null: nothing is promised")
    bound: float | None = Field(description="what a value may be at most, in its unit")
    budget_left: float | None = Field(description="the part that is left; below 0: overspent")
    burn: float | None
    is_kept: bool | None = Field(description="null: nothing is promised")


class Levels(Shape):
    """What was counted of one agent, version or tool, or of all. `name` is empty for all.

    A tool's are those of its operations alone.
    """

    name: str
    agent: str = Field(description="whose version it is; empty where it is no version")
    indicators: list[IndicatorStanding]
    counts: dict[Measure, int]
    sums: dict[Measure, float] = Field(description="of tokens and US dollars")
    distributions: dict[Measure, Distribution]


class Point(Shape):
    """One point in time of the charts, by indicator."""

    at: datetime
    good: dict[Objective, int]
    total: dict[Objective, int]


class Report(Shape):
    """Service levels over a window, as they were counted last."""

    window: str
    since: datetime
    until: datetime
    counted_at: datetime | None = Field(description="null: nothing was counted yet")
    by: By | None
    agent: str | None
    tool: str | None
    all: Levels
    groups: list[Levels]
    point_seconds: int = Field(description="how long each point of the series is")
    series: list[Point]


def spread(sums: Iterable[Sum]) -> dict[Measure, Distribution]:
    """Every distribution of some sums, over all their labels."""
    counted: dict[Measure, dict[float, int]] = {one: {} for one in DISTRIBUTIONS}
    totals = dict.fromkeys(DISTRIBUTIONS, 0.0)
    for one in sums:
        if one.measure in counted:
            into = counted[one.measure]
            into[one.le] = into.get(one.le, 0) + one.count
            totals[one.measure] += float(one.total)
    return {
        measure: _distribution(bounds, counted[measure], total=totals[measure])
        for measure, bounds in DISTRIBUTIONS.items()
    }


def count(sums: Iterable[Sum]) -> tuple[dict[Measure, int], dict[Measure, float]]:
    """Every plain measure of some sums: how often, and of what is summed the sum."""
    counts = {one: 0 for one in Measure if one not in DISTRIBUTIONS and one not in SUMS}
    totals = dict.fromkeys(sorted(SUMS), 0.0)
    for one in sums:
        if one.measure in counts:
            counts[one.measure] += one.count
        elif one.measure in totals:
            totals[one.measure] += float(one.total)
    return counts, totals


def _distribution(
    bounds: tuple[float, ...], counted: Mapping[float, int], *, total: float
) -> Distribution:
    number = sum(counted.values())
    return Distribution(
        count=number,
        total=total,
        mean=total / number if number else None,
        p50_at_most=_quantile(counted, 0.5),
        p95_at_most=_quantile(counted, 0.95),
        buckets=[Bucket(at_most=_finite(one), count=counted.get(one, 0)) for one in bounds],
    )


def _quantile(counted: Mapping[float, int], part: float) -> float | None:
    rest = part * sum(counted.values())
    for bound, number in sorted(counted.items()):
        rest -= number
        if rest <= 0 and number:
            return _finite(bound)
    return None


def _finite(bound: float) -> float | None:
    return None if bound == inf else bound
