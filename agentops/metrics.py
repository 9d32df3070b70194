"""`/metrics`: what the rows say, for Prometheus.

Guarantees: each figure is read from the database when it is asked for, so that it is the same
whichever web process answers; a label names an agent and nothing else. Where the database does
not answer, the scrape fails, and no old figure is shown as a new one.

Does not hold figures of this process.
"""

from collections.abc import Iterator
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runs.agents import all_agents
from runs.queries import find_runs
from runs.unserved import find_pinned, find_unserved


class Rows(Collector):
    """The figures that the rows give."""

    def collect(self) -> Iterator[Metric]:
        """Read them."""
        yield GaugeMetricFamily(
            "agentops_runs_uncertain",
            "Runs with an external effect that may or may not have happened.",
            value=find_runs(uncertain=True).count(),
        )
        unserved = GaugeMetricFamily(
            "agentops_runs_unserved",
            "Active runs that no living worker goes on with.",
            labels=["agent"],
        )
        for agent, runs in _count_unserved().items():
            unserved.add_metric([agent], runs)
        yield unserved

    def describe(self) -> list[Metric]:
        """Nothing: to register it must not ask the database."""
        return []


def _count_unserved() -> dict[str, int]:
    """By agent. Those without any are there too, so that a series does not end in an alert."""
    counted = dict.fromkeys([agent.name for agent in all_agents()], 0)
    counted |= dict.fromkeys([one.agent for one in find_pinned()], 0)
    for one in find_unserved():
        counted[one.agent] += one.runs
    return counted


_registry: Final = CollectorRegistry()
_registry.register(Rows())


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The figures as text; 503 where the database does not answer."""
    try:
        text = generate_latest(_registry)
    except Exception as error:  # noqa: BLE001  whatever it is, nothing was read
        return HttpResponse(
            f"# no answer from the database ({type(error).__name__})\n",
            status=503,
            content_type="text/plain; charset=utf-8",
        )
    return HttpResponse(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)
