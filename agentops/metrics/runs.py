"""Gauges of runs: how many there are, and which of them do not go on.

Guarantees: each statement reads by an index that holds the runs it is about; of the desk's figures
(`runs/desk.py`) none counts beyond its bound.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from django.db import connection
from prometheus_client.metrics_core import Metric

from agentops.metrics.families import gauge, gauges
from runs import desk
from runs.agents import all_agents
from runs.concurrency import HELD, fetch_by_index
from runs.stuck import count_stuck
from runs.unserved import find_unserved


def read() -> Iterator[Metric]:
    """Read them."""
    yield gauge(
        "runs_uncertain",
        "Runs with an external effect that may or may not have happened.",
        desk.count_uncertain(),
    )
    active = _count_active()
    yield gauges("runs_active", "Runs that have not ended.", label="agent", values=active)
    yield gauges(
        "runs_unserved",
        "Active runs that no living worker goes on with.",
        label="agent",
        values=_count_unserved(active),
    )
    yield gauges(
        "runs_stuck",
        "Active runs that nothing moves on and at which nobody is due to look.",
        label="why",
        values=count_stuck(),
    )
    yield gauge("runs_held", "Runs that a process holds under a lease now.", _count_held())
    due = desk.count_due()
    yield gauge("runs_due", "Runs that a worker could take now.", due.count)
    yield gauge(
        "runs_due_oldest_seconds",
        "How long the first of these has been due, in seconds.",
        due.oldest_seconds,
    )


_HELD: Final = f"SELECT COALESCE(sum(held), 0)::int FROM ({HELD}) AS by_agent"  # noqa: S608  ours
_ACTIVE: Final = """
    SELECT agent, count(*) FROM runs_agentrun WHERE finished_at IS NULL GROUP BY agent
"""


def _count_active() -> dict[str, int]:
    """By agent. Those without any are there too, so that a series does not end in an alert."""
    with connection.cursor() as cursor:
        cursor.execute(_ACTIVE)
        return dict.fromkeys([agent.name for agent in all_agents()], 0) | dict(cursor.fetchall())


def _count_held() -> int:
    with connection.cursor() as cursor:
        [(count,)] = fetch_by_index(cursor, _HELD, {})
    return int(count)


def _count_unserved(active: Mapping[str, int]) -> dict[str, int]:
    counted = dict.fromkeys(active, 0)
    for one in find_unserved():
        counted[one.agent] = counted.get(one.agent, 0) + one.runs
    return counted
