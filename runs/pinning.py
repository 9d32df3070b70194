"""Which runs this process leaves to workers of other versions, and the queues that lead to those.

Three kinds of runs are left alone.
- Those of an agent that is *finished on old* go on with the version they are pinned to and no
  other: they have a *lane*, a queue named after that version, and a worker reads the lanes of
  what it serves.
- Those that are pinned to a *newer* version than ours which a worker serves: what a deployment
  has taken over is not taken back while it is under way. Once nobody serves it any more (it was
  rolled back), it is ours again.
- Those that wait for a signature which such a newer version has given anew (`reapprove`).

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

from runs import versions
from runs.agents import all_agents
from runs.models import Definition

# A hint is worth no more after so long, and a lane that nobody reads is no more after a day.
LANE_SECONDS: Final = 60
FORGET_LANE_SECONDS: Final = 24 * 3600

# The version whose workers alone touch a run; null for a run that has no lane.
LANE: Final = """
    CASE WHEN agent = ANY (%(finishing)s::text[]) AND cancel_requested_at IS NULL
              AND compensating_since IS NULL THEN agent_version END"""
# Whether this process may claim a run.
OURS: Final = f"""(
    ({LANE}) IS NULL OR agent_version = ANY (%(serving)s::text[])
) AND (
    (agent_version <> ALL (%(left)s::text[])
        AND (state <> 'WAITING_FOR_APPROVAL' OR agent <> ALL (%(signed_anew)s::text[])))
    OR cancel_requested_at IS NOT NULL OR compensating_since IS NOT NULL)"""


@dataclass(frozen=True)
class Others:
    """Newer versions of our agents that are served: those versions, and the agents of which such
    a version has signatures given anew."""

    left: frozenset[str] = frozenset()
    signed_anew: frozenset[str] = frozenset()


_others = Others()


def ours() -> dict[str, Any]:
    """The values of `OURS` and `LANE`."""
    finishing = [agent for agent in all_agents() if agent.on_version_change == "finish_on_old"]
    return {
        "finishing": [agent.name for agent in finishing],
        "serving": [agent.version for agent in finishing],
        "left": sorted(_others.left),
        "signed_anew": sorted(_others.signed_anew),
    }


def leaves_any() -> bool:
    """Whether there may be runs that this process leaves alone."""
    values = ours()
    return any(values[name] for name in ("finishing", "left", "signed_anew"))


def look_around() -> Others:
    """See which newer versions of our agents are served; they are left to others from now on."""
    global _others
    mine = {agent.name: agent.version for agent in all_agents()}
    theirs = {
        (name, served)
        for agents in versions.live_releases()
        for name, served in agents.items()
        if served.version != mine.get(name, served.version)
    }
    if not theirs:
        _others = Others()
        return _others
    names = {name for name, _ in theirs}
    known = Definition.objects.filter(kind=Definition.Kind.AGENT, name__in=names)
    seen = {
        (name, version): at
        for name, version, at in known.values_list("name", "version", "first_seen_at")
    }
    newer = [(name, one) for name, one in theirs if _is_newer(seen, name, one.version, mine)]
    _others = Others(
        left=frozenset(served.version for _, served in newer),
        signed_anew=frozenset(name for name, served in newer if served.rule == "reapprove"),
    )
    return _others


def forget_others() -> None:
    """As before the first look: for a process that has other code now."""
    global _others
    _others = Others()


def _is_newer(
    seen: Mapping[tuple[str, str], datetime], name: str, version: str, mine: Mapping[str, str]
) -> bool:
    at, since = seen.get((name, version)), seen.get((name, mine[name]))
    # As long as this process is not on record, it is older than everybody.
    return at is not None and (since is None or at > since)


# -- Lanes ---------------------------------------------------------------------


def own_lanes() -> list[Queue]:
    """The queues, beside the common one, that a worker of this release reads."""
    return [lane(version) for version in ours()["serving"]]


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


def lanes_read() -> dict[str, list[str]]:
    """Of the agents that have lanes, the names and the versions whose lanes somebody reads."""
    finishing = ours()["finishing"]
    return {"finishing": finishing, "read": sorted(_versions_read(finishing))}


def _versions_read(finishing: list[str]) -> Iterable[str]:
    if not finishing:
        return set()
    return {
        agents[name].version
        for agents in versions.live_releases()
        for name in finishing
        if name in agents and agents[name].finishes_on_old
    }
