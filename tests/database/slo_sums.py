"""What the tests of service levels share: rolling up what just happened, and reading it."""

from collections.abc import Callable
from typing import Any

from runs.models import AgentRun
from runs.slo.measures import DISTRIBUTIONS, Measure
from runs.slo.reading import Sum, sum_measures
from runs.slo.rolling import run_once

Start = Callable[..., AgentRun]


def counts(**wanted: Any) -> dict[str, int]:
    """How often everything happened by now, by name: what never did is left out."""
    run_once()
    found: dict[str, int] = {}
    for one in sum_measures(since=None, **wanted):
        found[one.measure.value] = found.get(one.measure.value, 0) + one.count
    return found


def total(measure: Measure, **wanted: Any) -> float:
    """The sum of a measure's values by now."""
    run_once()
    return float(sum(one.total for one in sum_measures(since=None, measures=[measure], **wanted)))


def plain(found: dict[str, int]) -> dict[str, int]:
    """Without the distributions, and what is counted for every run."""
    left_out = {*DISTRIBUTIONS, Measure.RUNS_STARTED, Measure.RUN_TOKENS}
    return {name: count for name, count in found.items() if name not in left_out}


def labels(one: Sum) -> tuple[str, str, str]:
    return one.agent, one.agent_version, one.tool
