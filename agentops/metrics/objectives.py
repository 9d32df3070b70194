"""What is promised of each agent, and how often it was kept, over all time.

Guarantees: the words and the sums of the SLO figures (`runs/slo/indicators.py`). What was bad and
what there was to judge only grow.

Does not promise that what was good grows: a second effect may be found long after its send, which
was good until then. And where another objective is deployed, what was good is judged by that.
"""

from collections.abc import Collection, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from agentops.metrics.families import PREFIX, counters
from runs.agents import all_agents
from runs.slo.indicators import INDICATORS, Tally, tally
from runs.slo.reading import Sum

LABELS = ("objective", "agent")


def judge(sums: Collection[Sum]) -> Iterator[Metric]:
    """The figures of these sums, which are of all time and grouped by agent."""
    tallies = {
        (indicator.name.value, agent.name): Tally()
        for indicator in INDICATORS
        for agent in all_agents()
    }
    for agent, found in tally(sums).items():
        tallies |= {(objective.value, agent): one for objective, one in found.items()}
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
                family.add_metric([indicator.name.value, agent.name], target)
    return family
