"""What is promised of each agent, and how often it was kept, over all time.

Guarantees: the words and the sums of the SLO figures (`runs/slo/indicators.py`). In each series
what was bad and what there was to judge only grow. The bound by which it is judged is one of its
labels: to judge the past by another one begins another series, and no counter jumps.

Does not promise that what was good grows: a second effect may be found long after its send, which
was good until then.
"""

from collections.abc import Collection, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from agentops.metrics.families import PREFIX, counters
from runs.agents import all_agents
from runs.slo.indicators import INDICATORS, Tally, objectives_of, tally
from runs.slo.objectives import Objective
from runs.slo.reading import Sum

LABELS = ("objective", "agent", "bound")


def judge(sums: Collection[Sum]) -> Iterator[Metric]:
    """The figures of these sums, which are of all time and grouped by agent."""
    tallies = {
        _label(indicator.name, agent.name): Tally()
        for indicator in INDICATORS
        for agent in all_agents()
    }
    for agent, found in tally(sums).items():
        tallies |= {_label(objective, agent): one for objective, one in found.items()}
    yield counters(
        "slo_valid",
        "What an objective judges, over all time.",
        labels=LABELS,
        values={labels: one.total for labels, one in tallies.items()},
    )
    yield counters(
        "slo_bad",
        "What of this was not as promised.",
        labels=LABELS,
        values={labels: one.bad for labels, one in tallies.items()},
    )
    yield counters(
        "slo_good",
        "What of this was as promised; falls when a second effect is found of an earlier send.",
        labels=LABELS,
        values={labels: one.good for labels, one in tallies.items()},
    )
    yield _targets()


def _targets() -> Metric:
    """Of the agents that are known here; where nothing is promised there is none."""
    family = GaugeMetricFamily(
        PREFIX + "slo_target", "The part that is promised to be good.", labels=LABELS
    )
    for agent in all_agents():
        for indicator in INDICATORS:
            if (target := agent.objectives.target(indicator.name)) is not None:
                family.add_metric(_label(indicator.name, agent.name), target)
    return family


def _label(objective: Objective, agent: str) -> tuple[str, str, str]:
    bound = objectives_of(agent).bound(objective)
    return objective.value, agent, "" if bound is None else f"{bound:g}"
