"""How many runs of one agent may be held at one time, over all workers.

Guarantees: of an agent with a limit, no more runs are claimed than it allows, however many
workers claim at once: they go one by one, behind a lock of that agent, and each counts in a
statement that begins after it has the lock, so that it sees every claim before it. A run
that waits holds no lease and is not counted. An agent without a limit pays nothing.

Does not count what a person does to a run, and does not bind a worker that does not know
the agent: such a worker gives the run back at once. A run that may not be claimed stays due.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import psycopg
from django.db import connection, transaction
from django.db.utils import OperationalError

from runs.agents import all_agents

# The first of the two keys of the advisory lock; the second one is the agent's.
_LOCK: Final = 7_301_002

FREE: Final = "(lease_expires_at IS NULL OR lease_expires_at <= statement_timestamp())"

# Counted by the index `run_held`. The lease of a vanished worker is not held any more.
HELD: Final = """
    SELECT agent, count(*) AS held FROM runs_agentrun
    WHERE lease_owner <> '' AND lease_expires_at > statement_timestamp()
    GROUP BY agent
"""

# What is read here is read in the order of an index, a few rows of it. A planner whose
# statistics are behind, as after a burst of starts, would rather read and sort all there are.
_BY_INDEX: Final = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;\n"


def fetch_by_index(cursor: Any, statement: str, values: Any) -> list[tuple[Any, ...]]:
    """The statement's rows, read by indexes alone: one round trip, and one transaction."""
    cursor.execute(_BY_INDEX + statement, values)
    while cursor.nextset():
        pass
    found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def agent_limits() -> dict[str, int]:
    """By name, how many runs of each agent with a limit may be held, as this process knows it."""
    return {
        agent.name: agent.concurrency for agent in all_agents() if agent.concurrency is not None
    }


def claim_within(
    statement: str, values: Mapping[str, Any], *, run_id: UUID, limits: Mapping[str, int]
) -> tuple[Any, ...] | None:
    """What `statement`, a claim of the run, returns; None where its agent is at its limit.

    Or where it is not due, or held, or of an agent without a limit.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_ENTER, [_LOCK, run_id, list(limits)])
            if (found := cursor.fetchone()) is None:
                return None
            agent = found[0]
            [(held,)] = fetch_by_index(cursor, _COUNT, [agent])
            if held >= limits[agent]:
                return None
            cursor.execute(statement, values)
            claimed: tuple[Any, ...] | None = cursor.fetchone()
            return claimed
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            return None
        raise


_ENTER: Final = f"""
    SELECT agent, pg_advisory_xact_lock(%s, hashtext(agent)) FROM runs_agentrun
    WHERE id = %s AND agent = ANY (%s) AND wake_at <= statement_timestamp() AND {FREE}
"""

_COUNT: Final = """
    SELECT count(*) FROM runs_agentrun
    WHERE agent = %s AND lease_owner <> '' AND lease_expires_at > statement_timestamp()
"""
