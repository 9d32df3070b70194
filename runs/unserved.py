"""Runs that no living worker goes on with: an alert, and never silence.

Guarantees: a run counts as served only while a worker is alive that serves the version it is
pinned to, or another version of its agent whose rule lets that one adopt it. The cost is a few
index descents per version that active runs are pinned to, and a count of those that are unserved.

Does not look at tools, and does not see a worker that is alive and stands still.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.db import connection

from runs.concurrency import fetch_by_index
from runs.versions import Agents, live_releases


@dataclass(frozen=True)
class Pinned:
    """A version of an agent that active runs are pinned to."""

    agent: str
    version: str


@dataclass(frozen=True)
class Unserved:
    """So many active runs wait for a worker that is not there."""

    agent: str
    version: str
    runs: int


def find_unserved() -> list[Unserved]:
    """The active runs that no living worker goes on with, counted by agent and version."""
    releases = live_releases()
    return _count([one for one in find_pinned() if not is_served(one, releases)])


def find_pinned() -> list[Pinned]:
    """The versions that active runs are pinned to."""
    with connection.cursor() as cursor:
        return [Pinned(*row) for row in fetch_by_index(cursor, _PINNED, {})]


def is_served(pinned: Pinned, releases: Sequence[Agents]) -> bool:
    """Whether one of the releases goes on with a run that is pinned so."""
    return any(
        (served := agents.get(pinned.agent)) is not None
        and (served.version == pinned.version or not served.finishes_on_old)
        for agents in releases
    )


# From one pair to the next by the index `run_active`, past the runs between them.
_PINNED: Final = """
    WITH RECURSIVE pair (agent, agent_version) AS (
        (SELECT agent, agent_version FROM runs_agentrun WHERE finished_at IS NULL
         ORDER BY agent, agent_version LIMIT 1)
        UNION ALL
        SELECT next.agent, next.agent_version FROM pair, LATERAL (
            SELECT agent, agent_version FROM runs_agentrun
            WHERE finished_at IS NULL
              AND (agent, agent_version) > (pair.agent, pair.agent_version)
            ORDER BY agent, agent_version LIMIT 1) AS next
    )
    SELECT agent, agent_version FROM pair
"""

_COUNT: Final = """
    SELECT agent, agent_version, count(*)
    FROM unnest(%(agents)s::text[], %(versions)s::text[]) AS one (agent, agent_version)
    JOIN runs_agentrun USING (agent, agent_version)
    WHERE finished_at IS NULL
    GROUP BY agent, agent_version
    ORDER BY agent, agent_version
"""


def _count(pinned: Sequence[Pinned]) -> list[Unserved]:
    if not pinned:
        return []
    values = {
        "agents": [one.agent for one in pinned],
        "versions": [one.version for one in pinned],
    }
    with connection.cursor() as cursor:
        return [Unserved(*row) for row in fetch_by_index(cursor, _COUNT, values)]
