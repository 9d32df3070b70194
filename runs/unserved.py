"""Runs that no living worker goes on with: an alert, and never silence.

Guarantees: a run counts as served only while a worker is alive that serves the version it is
pinned to, or another version of its agent whose rule lets that one adopt it, and workers that
have the tools of its open calls. What is to be cancelled, or corrects what it did, needs those
tools alone. The cost is a few index descents per version that active runs are pinned to and per
tool with calls that wait, and a count of the runs that are unserved.

Does not see a worker that is alive and stands still, nor that the one worker which has the agent
is not the one that has the tool.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from django.db import connection

from runs.built_in import BUILT_IN
from runs.concurrency import fetch_by_index
from runs.versions import Deployed, live_releases


@dataclass(frozen=True)
class Pinned:
    """A version of an agent that active runs are pinned to."""

    agent: str
    version: str


@dataclass(frozen=True)
class Unserved:
    """So many active runs wait for a worker that is not there: for one that serves their version,
    or that has the tool of an open call."""

    agent: str
    version: str
    runs: int
    tool: str = ""


def find_unserved() -> list[Unserved]:
    """The active runs that no living worker goes on with, each once, counted by what they lack."""
    releases = live_releases()
    by_version = _count([one for one in find_pinned() if not is_served(one, releases)])
    # What the kernel itself carries out, every worker has.
    gone = find_tools() - BUILT_IN.union(*(release.tools for release in releases))
    return by_version + _count_tools(gone, but=by_version)


def find_pinned() -> list[Pinned]:
    """The versions that active runs are pinned to."""
    with connection.cursor() as cursor:
        return [Pinned(*row) for row in fetch_by_index(cursor, _PINNED, {})]


def find_tools() -> set[str]:
    """The tools of calls that wait: for a signature, to be sent, or to be asked about."""
    with connection.cursor() as cursor:
        return {tool for (tool,) in fetch_by_index(cursor, _TOOLS, {})}


def is_served(pinned: Pinned, releases: Sequence[Deployed]) -> bool:
    """Whether one of the releases goes on with a run that is pinned so."""
    return any(
        (served := release.agents.get(pinned.agent)) is not None
        and (served.version == pinned.version or not served.finishes_on_old)
        for release in releases
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
    WHERE finished_at IS NULL AND cancel_requested_at IS NULL AND compensating_since IS NULL
    GROUP BY agent, agent_version
    ORDER BY agent, agent_version
"""

# Those that wait are few beside all, and in an index of their own.
_WAITS: Final = "status IN ('AWAITING_APPROVAL', 'PREPARED', 'UNKNOWN')"
_TOOLS: Final = f"""
    WITH RECURSIVE one (tool) AS (
        SELECT min(tool) FROM runs_tooloperation WHERE {_WAITS}
        UNION ALL
        SELECT (SELECT min(tool) FROM runs_tooloperation WHERE {_WAITS} AND tool > one.tool)
        FROM one WHERE tool IS NOT NULL
    )
    SELECT tool FROM one WHERE tool IS NOT NULL
"""  # noqa: S608  ours

_COUNT_TOOLS: Final = f"""
    SELECT agent, agent_version, count(*), tool
    FROM (SELECT run_id, min(tool) AS tool FROM runs_tooloperation
          WHERE tool = ANY (%(tools)s::text[]) AND {_WAITS} GROUP BY run_id) AS gone
    JOIN runs_agentrun run ON run.id = run_id
    WHERE finished_at IS NULL AND NOT EXISTS (
        SELECT FROM unnest(%(agents)s::text[], %(versions)s::text[]) AS one (agent, version)
        WHERE one.agent = run.agent AND one.version = run.agent_version
          AND cancel_requested_at IS NULL AND compensating_since IS NULL)
    GROUP BY agent, agent_version, tool
    ORDER BY agent, agent_version, tool
"""  # noqa: S608  ours


def _count(pinned: Sequence[Pinned]) -> list[Unserved]:
    if not pinned:
        return []
    values = {
        "agents": [one.agent for one in pinned],
        "versions": [one.version for one in pinned],
    }
    with connection.cursor() as cursor:
        return [Unserved(*row) for row in fetch_by_index(cursor, _COUNT, values)]


def _count_tools(tools: AbstractSet[str], *, but: Sequence[Unserved]) -> list[Unserved]:
    """The runs that wait for one of these tools, besides those that are counted already."""
    if not tools:
        return []
    values = {
        "tools": sorted(tools),
        "agents": [one.agent for one in but],
        "versions": [one.version for one in but],
    }
    with connection.cursor() as cursor:
        return [Unserved(*row) for row in fetch_by_index(cursor, _COUNT_TOOLS, values)]
