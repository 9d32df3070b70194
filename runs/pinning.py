"""Which runs this process leaves to workers of other versions, and the queues that lead to those.

Three kinds of runs are left alone.
- Those of an agent that is *finished on old* go on with the version they are pinned to and no
  other: they have a *lane*, a queue named after that version, and a worker reads the lanes of
  all that it serves: the version after it may be the one that has it finish on old. Once nobody
  serves that version, it is *forsaken*: what may be under way is settled by whoever has its tool,
  and nothing else is done.
- Those that are pinned to a *newer* version than ours which a worker serves: what a deployment
  has taken over is not taken back while it is under way. Once nobody serves it any more (it was
  rolled back), it is ours again.
- Those that wait for a signature which such a newer version has given anew (`reapprove`), if it
  has all tools of ours.

Guarantees: a claim sees all of them, in its own statement, at no query more; a run that is to be
cancelled, or corrects what it did, is left to nobody, because neither asks its agent.

Does not know at once what others serve: `look_around` does, three times per lease. Whoever is
about to decide looks again (`adoption.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection
from kombu import Exchange, Queue

from runs.agents import all_agents
from runs.models import Definition
from runs.unserved import find_pinned
from runs.versions import Deployed, live_releases

# A hint is worth no more after so long, and a lane that nobody reads is no more after a day.
LANE_SECONDS: Final = 60
FORGET_LANE_SECONDS: Final = 24 * 3600

# The version whose workers alone touch a run; null for a run that has no lane.
LANE: Final = """
    CASE WHEN agent = ANY (%(finishing)s::text[]) AND cancel_requested_at IS NULL
              AND compensating_since IS NULL
              AND (agent_version <> ALL (%(forsaken)s::text[]) OR state NOT IN (
                  'TOOL_RUNNING', 'TOOL_STATUS_UNKNOWN', 'WAITING_FOR_RESOLUTION'))
         THEN agent_version END"""
# Whether this process may claim a run.
OURS: Final = f"""(
    ({LANE}) IS NULL OR agent_version = ANY (%(serving)s::text[])
) AND (
    (agent_version <> ALL (%(left)s::text[])
        AND (state <> 'WAITING_FOR_APPROVAL' OR agent <> ALL (%(signed_anew)s::text[])))
    OR cancel_requested_at IS NOT NULL OR compensating_since IS NOT NULL)"""


@dataclass(frozen=True)
class Others:
    """What others serve: newer versions of our agents, and the agents of which such a version has
    signatures given anew; and the forsaken versions, which nobody serves."""

    left: frozenset[str] = frozenset()
    signed_anew: frozenset[str] = frozenset()
    forsaken: frozenset[str] = frozenset()


_others = Others()


def ours() -> dict[str, Any]:
    """The values of `OURS` and `LANE`."""
    finishing = _finishing()
    return {
        "finishing": list(finishing),
        "serving": list(finishing.values()),
        "left": sorted(_others.left),
        "signed_anew": sorted(_others.signed_anew),
        "forsaken": sorted(_others.forsaken),
    }


def leaves_any() -> bool:
    """Whether there may be runs that this process leaves alone."""
    values = ours()
    return any(values[name] for name in ("finishing", "left", "signed_anew"))


def look_around() -> Others:
    """See what others serve; newer versions of our agents are left to them from now on."""
    global _others
    releases = live_releases()
    tools = {agent.name: set(agent.allowed_tools) for agent in all_agents()}
    newer = _find_newer(releases)
    _others = Others(
        left=frozenset(release.agents[name].version for name, release in newer),
        signed_anew=frozenset(
            name
            for name, release in newer
            if release.agents[name].rule == "reapprove" and tools[name] <= release.tools
        ),
        forsaken=_find_forsaken(releases),
    )
    return _others


def forget_others() -> None:
    """As before the first look: for a process that has other code now."""
    global _others
    _others = Others()


def _find_newer(releases: Iterable[Deployed]) -> list[tuple[str, Deployed]]:
    """Our agents, each with a release that serves a newer version of it."""
    mine = {agent.name: agent.version for agent in all_agents()}
    theirs = [
        (name, release)
        for release in releases
        for name, served in release.agents.items()
        if served.version != mine.get(name, served.version)
    ]
    if not theirs:
        return []
    names = {name for name, _ in theirs}
    known = Definition.objects.filter(kind=Definition.Kind.AGENT, name__in=names)
    seen = {
        (name, version): at
        for name, version, at in known.values_list("name", "version", "first_seen_at")
    }
    return [
        (name, release)
        for name, release in theirs
        if _is_newer(seen, name, release.agents[name].version, mine)
    ]


def _is_newer(
    seen: Mapping[tuple[str, str], datetime], name: str, version: str, mine: Mapping[str, str]
) -> bool:
    at, since = seen.get((name, version)), seen.get((name, mine[name]))
    # As long as this process is not on record, it is older than everybody.
    return at is not None and (since is None or at > since)


# -- Lanes ---------------------------------------------------------------------


def own_lanes() -> list[Queue]:
    """The queues, beside the common one, that a worker of this release reads."""
    return [lane(version) for version in sorted({agent.version for agent in all_agents()})]


def lane(version: str) -> Queue:
    """The queue that is read by workers that serve this version of an agent."""
    name = f"version-{version}"
    return Queue(
        name,
        exchange=Exchange(name, auto_delete=True),
        routing_key=name,
        # Where the broker knows it: what nobody reads is not kept.
        message_ttl=LANE_SECONDS,
        expires=FORGET_LANE_SECONDS,
    )


def find_lane(run_id: UUID) -> Queue | None:
    """The lane of a run; None for the common queue. Asks nobody where no agent has lanes."""
    values = ours()
    if not values["finishing"]:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_FIND_LANE, values | {"run": run_id})
        found = cursor.fetchone()
    return lane(found[0]) if found is not None and found[0] is not None else None


_FIND_LANE: Final = f"SELECT {LANE} FROM runs_agentrun WHERE id = %(run)s"  # noqa: S608  ours


def see_lanes() -> dict[str, Any]:
    """The values of `LANE` as they are now. Asks nobody where no agent has lanes."""
    return ours() | {"forsaken": sorted(_find_forsaken(live_releases() if _finishing() else ()))}


def _finishing() -> dict[str, str]:
    """The agents that have lanes, with the version that this process serves."""
    return {
        agent.name: agent.version
        for agent in all_agents()
        if agent.on_version_change == "finish_on_old"
    }


def _find_forsaken(releases: Iterable[Deployed]) -> frozenset[str]:
    """Of the agents that have lanes, the versions that have active runs and that nobody serves."""
    if not (finishing := _finishing()):
        return frozenset()
    served = {
        release.agents[name].version
        for release in releases
        for name in finishing
        if name in release.agents
    }
    return frozenset(one.version for one in find_pinned() if one.agent in finishing) - served
