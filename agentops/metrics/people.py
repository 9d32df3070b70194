"""Gauges of what waits for a person.

Guarantees: the same figures as on the desk (`runs/desk.py`), each kind, also with 0.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from agentops.metrics.families import gauges
from runs import desk


def read() -> Iterator[Metric]:
    """Read them."""
    waiting = desk.count_waiting()
    yield gauges(
        "waiting_for_person",
        "What waits for a person: signatures, questions, unknown operations, paused runs.",
        label="what",
        values={what: one.count for what, one in waiting.items()},
    )
    yield gauges(
        "waiting_for_person_oldest_seconds",
        "For how long the first of these has waited, in seconds.",
        label="what",
        values={what: one.oldest_seconds for what, one in waiting.items()},
    )
