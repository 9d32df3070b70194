"""Turns: which of the due runs a worker drives next.

Hints are messages in a queue, first in, first out: taken by their word, one agent's 10,000
due runs would stand before another agent's only one. So a hint is a *turn*: it says that
there is something to do, and which run made that so; the worker that gets it looks at the
rows and drives the run whose turn it is:

1. of the agents that have a due run, the one with the fewest runs held now; among equals,
   the one whose last turn in this process is longest ago, because by age alone the 10,000 would
   be first again. An agent that is at its limit (`concurrency.py`) is left out;
2. of that agent, the run with the highest priority; among equals, the one that waits longest.

As many turns are taken as hints were given, so what one hint passed over another one brings;
what went wrong with a turn (its worker died, the agent was at its limit) the sweep repairs.

Guarantees: an agent that has a due run and none held is passed over by a process at most
once per other such agent, however many runs those have. A choice costs a few index
descents per agent and priority that have dated runs, and reads no run that sleeps, though it
passes over due runs that are left to workers of another version (`pinning.py`); the hint of such
a run goes back to the sweep. A hint of an agent that this worker does not know is taken by its
word, because such runs are given back for others, and must not come before all that it knows.

Does not order what is already held, and is no promise between two moments: several workers
that choose at once meet at the same run, one claims it, and the others go to the next.
"""

import itertools
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection

from runs import engine
from runs.agents import all_agents
from runs.concurrency import FREE, HELD, agent_limits, fetch_by_index
from runs.pinning import OURS, leaves_any, ours
from runs.wake import hint

# Of each agent, so many are looked at: workers that choose at once go on to the next.
PER_AGENT: Final = 3
MOST_CANDIDATES: Final = 6
# So often a worker looks again after others were faster at everything it found.
ROUNDS: Final = 3
NO_LIMIT: Final = 2**31 - 1

_turns: Final = itertools.count(1)
# Of each agent, the number of the last turn that this process gave it.
_last_turns: Final[dict[str, int]] = {}


@dataclass(frozen=True)
class Candidate:
    run_id: UUID
    agent: str


def take_turn(*, hinted: UUID, owner: str) -> engine.Progress:
    """Drive the run whose turn it is, once; `hinted` is the run whose hint gave the turn."""
    give_hint_back(hinted)
    for _ in range(ROUNDS):
        candidates = choose(hinted)
        for candidate in candidates:
            try:
                # From its beginning: another thread may choose meanwhile.
                _last_turns[candidate.agent] = next(_turns)
                progress = engine.advance(run_id=candidate.run_id, owner=owner)
            except Exception:
                pass_on(candidate.agent)
                raise
            if progress.yielded:
                hint(candidate.run_id)
            elif progress.claimed:
                pass_on(candidate.agent)
            if progress.claimed:
                return progress
        if not candidates:
            break
    return engine.Progress()


def choose(hinted: UUID) -> list[Candidate]:
    """The due runs to try, in this order, until one is claimed. Empty when nothing is due."""
    limits = agent_limits()
    known = [agent.name for agent in all_agents()]
    return _find(hinted, known, [limits.get(name, NO_LIMIT) for name in known])


def pass_on(agent: str) -> None:
    """A run of the agent was let go: if that made room below its limit, hint at the next one."""
    if (most := agent_limits().get(agent)) is None:
        return
    for candidate in _find(None, [agent], [most])[:1]:
        hint(candidate.run_id)


def give_hint_back(hinted: UUID) -> None:
    """Have the sweep tell somebody else of a run that is left to workers of another version."""
    if not leaves_any():
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"""UPDATE runs_agentrun SET sweep_at = statement_timestamp()
                WHERE id = %(hinted)s AND wake_at <= statement_timestamp() AND {FREE}
                  AND NOT ({OURS})""",
            ours() | {"hinted": hinted},
        )


# The agents and priorities of dated runs: from one to the next by the index `run_due`, past
# the runs between them.
PAIRS: Final = """
    WITH RECURSIVE pair (agent, priority) AS (
        (SELECT agent, priority FROM runs_agentrun WHERE wake_at IS NOT NULL
         ORDER BY agent, priority DESC LIMIT 1)
        UNION ALL
        SELECT next.agent, next.priority FROM pair, LATERAL (
            (SELECT agent, priority FROM runs_agentrun
             WHERE wake_at IS NOT NULL AND agent = pair.agent AND priority < pair.priority
             ORDER BY agent, priority DESC LIMIT 1)
            UNION ALL
            (SELECT agent, priority FROM runs_agentrun
             WHERE wake_at IS NOT NULL AND agent > pair.agent
             ORDER BY agent, priority DESC LIMIT 1)
            LIMIT 1) AS next
    )"""

_FIND: Final = f"""{PAIRS},
    served AS (
        SELECT agent, most, last_turn
        FROM unnest(%(agents)s::text[], %(most)s::int[], %(last_turns)s::bigint[])
             AS one (agent, most, last_turn)
    ), held AS ({HELD}),
    due AS (
        SELECT first.id, pair.agent, first.wake_at, last_turn, COALESCE(held.held, 0) AS held,
               row_number() OVER (
                   PARTITION BY pair.agent
                   ORDER BY pair.priority DESC, first.wake_at, first.id) AS place
        FROM pair JOIN served USING (agent) LEFT JOIN held USING (agent),
             LATERAL (SELECT id, wake_at FROM runs_agentrun
                      WHERE agent = pair.agent AND priority = pair.priority
                        AND wake_at <= statement_timestamp() AND {FREE} AND {OURS}
                      ORDER BY wake_at, id LIMIT %(per_agent)s) AS first
        WHERE COALESCE(held.held, 0) < served.most
    )
    (SELECT id, agent FROM runs_agentrun
     WHERE id = %(hinted)s AND agent <> ALL (%(agents)s::text[]))
    UNION ALL
    (SELECT id, agent FROM due
     ORDER BY place, held, last_turn, wake_at LIMIT %(candidates)s)
    UNION ALL
    (SELECT id, agent FROM runs_agentrun JOIN served USING (agent) LEFT JOIN held USING (agent)
     WHERE id = %(hinted)s AND COALESCE(held.held, 0) < served.most
       AND wake_at <= statement_timestamp() AND {FREE} AND {OURS}
       AND NOT EXISTS (SELECT 1 FROM due WHERE due.id = %(hinted)s))
"""


def _find(hinted: UUID | None, agents: list[str], most: list[int]) -> list[Candidate]:
    values = ours() | {
        "hinted": hinted,
        "agents": agents,
        "most": most,
        "last_turns": [_last_turns.get(name, 0) for name in agents],
        "per_agent": PER_AGENT,
        "candidates": MOST_CANDIDATES,
    }
    with connection.cursor() as cursor:
        found = fetch_by_index(cursor, _FIND, values)
    return [Candidate(run_id=run_id, agent=agent) for run_id, agent in found]
