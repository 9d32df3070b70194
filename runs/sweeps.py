"""Sweeps: finding the runs, and the closed operations, that somebody should be looking at.

Guarantees: every run whose date has passed is hinted at, by the order of turns
(`turns.py`), whether it is due, its worker died, or its hint was lost; a run is hinted at
once per `HINT_AGAIN_SECONDS`, however many sweeps run; two sweeps at one time do no harm.
No agent has more than `PER_AGENT` hints of a sweep, nor more than its limit lets it use, and
the agents take turns in the queue. Of a run that only workers of one version touch
(`pinning.py`), those are told, and nobody while there are none. The work is bounded by what is
due, not by how many runs exist.

Does not advance anything and does not touch what a run is (no version, no token).
"""

from dataclasses import dataclass
from typing import Final

from django.db import connection, transaction
from django.db.models.functions import Now

from runs import watch
from runs.concurrency import FREE, HELD, agent_limits, fetch_by_index
from runs.models import Sweep
from runs.pinning import LANE, see_lanes
from runs.turns import PAIRS
from runs.wake import Hint, hint_all, hint_watch

BATCH: Final = 2000
# Hints are turns: with so many of one agent in the queue, no more are needed.
PER_AGENT: Final = 1000
HINT_AGAIN_SECONDS: Final = 10.0
_LOCK: Final = 7_301_001

# `due` sees the first ones of each agent, told or not, so that those already told count
# against its part. A worker that vanished left a lease that has ended, and `sweep_at` with it.
_FIND_DUE: Final = f"""{PAIRS},
    limited AS (
        SELECT agent, most FROM unnest(%(agents)s::text[], %(most)s::int[]) AS one (agent, most)
    ), held AS ({HELD}),
    due AS (
        SELECT first.id, first.wake_at, first.is_told,
               LEAST(%(per_agent)s, limited.most - COALESCE(held.held, 0)) AS part,
               row_number() OVER (
                   PARTITION BY pair.agent
                   ORDER BY pair.priority DESC, first.wake_at, first.id) AS place
        FROM pair LEFT JOIN limited USING (agent) LEFT JOIN held USING (agent),
             LATERAL (SELECT id, wake_at, sweep_at > statement_timestamp() AS is_told
                      FROM runs_agentrun
                      WHERE agent = pair.agent AND priority = pair.priority
                        AND wake_at <= statement_timestamp() AND {FREE}
                        AND (({LANE}) IS NULL OR agent_version <> ALL (%(forsaken)s::text[]))
                      ORDER BY wake_at, id LIMIT %(per_agent)s) AS first
    ), turn AS MATERIALIZED (
        SELECT id, place, wake_at FROM due
        WHERE is_told IS NOT TRUE AND place <= part
        ORDER BY place, wake_at LIMIT %(batch)s
    ), told AS (
        UPDATE runs_agentrun
        SET sweep_at = statement_timestamp() + make_interval(secs => %(again)s)
        WHERE id = ANY (ARRAY(
            SELECT id FROM runs_agentrun
            WHERE id = ANY (ARRAY(SELECT id FROM turn)) AND {FREE}
              AND wake_at <= statement_timestamp()
              AND (sweep_at IS NULL OR sweep_at <= statement_timestamp())
            FOR NO KEY UPDATE SKIP LOCKED))
        RETURNING id, step_number, {LANE} AS lane
    )
    SELECT told.id, told.lane, (
        SELECT operation.id FROM runs_tooloperation operation
        WHERE operation.run_id = told.id AND operation.step_number = told.step_number
          AND operation.status IN ('RUNNING', 'UNKNOWN')
        LIMIT 1)
    FROM told JOIN turn USING (id)
    ORDER BY turn.place, turn.wake_at
"""


@dataclass(frozen=True)
class Swept:
    found: int
    hinted: int


def run_once() -> Swept:
    """One sweep over due runs. Returns how many were found, and hinted at."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return Swept(found=0, hinted=0)
        due = fetch_by_index(cursor, _FIND_DUE, _values())
        Sweep.objects.update_or_create(
            name="due runs", defaults={"last_run_at": Now(), "found": len(due)}
        )
    return Swept(found=len(due), hinted=hint_all([Hint(*row) for row in due]))


def _values() -> dict[str, object]:
    limits = agent_limits()
    return see_lanes() | {
        "agents": list(limits),
        "most": list(limits.values()),
        "per_agent": PER_AGENT,
        "batch": BATCH,
        "again": HINT_AGAIN_SECONDS,
    }


def run_watches_once() -> Swept:
    """One sweep over closed operations that are due to be looked up again."""
    due = watch.find_due()
    hinted = sum(1 for operation_id in due if hint_watch(operation_id))
    return Swept(found=len(due), hinted=hinted)
