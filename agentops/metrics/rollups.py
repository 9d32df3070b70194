"""Counters and histograms of what happened, summed over all time from the rollups.

Guarantees: one grouped query for all of them, and for what objectives judge. Every measure is there
under the name of `runs/slo/measures.py`; each agent and each tool that it may call have a series
from the start, for an alert on the first of something has to see the 0 before it.

Does not count: `runs/slo/rolling.py` does, some seconds after it happened. A histogram's series
begins with its first value.
"""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from math import inf
from typing import Final

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from agentops.metrics import objectives
from agentops.metrics.declared import find_tools, name_tool
from agentops.metrics.families import PREFIX, counters
from agentops.metrics.wording import WHAT
from runs.agents import all_agents
from runs.slo.measures import DISTRIBUTIONS, SUMS, Measure
from runs.slo.reading import Sum, sum_measures
from tools.registry import all_tools

# Measures of runs and of llms. All others are of operations, and say of which tool.
OF_RUNS: Final = frozenset(
    {
        Measure.RUNS_STARTED,
        Measure.RUNS_COMPLETED,
        Measure.RUNS_FAILED,
        Measure.RUNS_CANCELLED,
        Measure.RUNS_TOUCHED,
        Measure.RUN_SECONDS,
        Measure.RUN_WORKING_SECONDS,
        Measure.RUN_COST_USD,
        Measure.RUN_TOKENS,
        Measure.QUESTIONS_ANSWERED,
        Measure.LEASES_LOST,
        Measure.LLM_REQUESTS,
        Measure.LLM_FAILURES,
        Measure.LLM_SECONDS,
        Measure.LLM_TOKENS,
        Measure.LLM_COST_USD,
    }
)
# What a provider lists and nobody knows is of a tool, and of no agent.
OF_PROVIDERS: Final = frozenset({Measure.EFFECTS_UNACCOUNTED, Measure.EFFECTS_MISSING})

# By label values, the rows of one measure.
Series = dict[tuple[str, ...], list[Sum]]


def read() -> Iterator[Metric]:
    """Read them."""
    sums = sum_measures(since=None, by=("agent", "tool"))
    by_measure = _group(sums)
    for measure in Measure:
        series = by_measure[measure]
        labels = _labels(measure)
        if (bounds := DISTRIBUTIONS.get(measure)) is None:
            values = {combination: _add_up(measure, rows) for combination, rows in series.items()}
            yield counters(measure, WHAT[measure], labels=labels, values=values)
        else:
            yield _histogram(measure, labels, bounds, series)
    yield from objectives.judge(sums)


def _group(sums: Iterable[Sum]) -> Mapping[Measure, Series]:
    """The rows by measure and label values, with those of which there are none yet."""
    declared = find_tools()
    grouped = {measure: _begin(measure) for measure in Measure}
    for one in sums:
        combination: tuple[str, ...] = (one.agent,)
        if one.measure not in OF_RUNS:
            combination = (one.agent, name_tool(one.tool, declared))
        grouped[one.measure].setdefault(combination, []).append(one)
    return grouped


def _begin(measure: Measure) -> Series:
    """A series for each agent and tool, and the one of names that nobody declared."""
    if measure in DISTRIBUTIONS:
        return {}
    if measure in OF_RUNS:
        return {(agent.name,): [] for agent in all_agents()}
    if measure in OF_PROVIDERS:
        return {("", tool): [] for tool in ("", *(spec.name for spec in all_tools()))}
    return {(agent.name, tool): [] for agent in all_agents() for tool in ("", *agent.allowed_tools)}


def _labels(measure: Measure) -> tuple[str, ...]:
    return ("agent",) if measure in OF_RUNS else ("agent", "tool")


def _add_up(measure: Measure, rows: Iterable[Sum]) -> float:
    if measure in SUMS:
        return float(sum((one.total for one in rows), Decimal(0)))
    return sum(one.count for one in rows)


def _histogram(
    measure: Measure, labels: tuple[str, ...], bounds: Iterable[float], series: Series
) -> Metric:
    family = HistogramMetricFamily(PREFIX + measure, WHAT[measure], labels=labels)
    for combination, rows in sorted(series.items()):
        # What was counted under other bounds is counted under the next one above.
        buckets = [
            (_spell(bound), sum(one.count for one in rows if one.le <= bound)) for bound in bounds
        ]
        family.add_metric(combination, buckets, float(sum(one.total for one in rows)))
    return family


def _spell(bound: float) -> str:
    return "+Inf" if bound == inf else str(float(bound))
