"""Whether the filled database is one that the kernel could have made."""

from typing import Any

import psycopg

from tests.bench.ours import set_up
from tests.bench.seeded.database import APPS

# An edge that does not leave the state which the edge before it led to.
_BROKEN_CHAINS = """
    SELECT count(*) FROM (
        SELECT from_state, lag(to_state, 1, '') OVER (
            PARTITION BY run_id, operation_id ORDER BY version, id) AS before
        FROM runs_transition) AS edge
    WHERE from_state <> before
"""
_MISLED_RUNS = """
    SELECT count(*) FROM runs_agentrun run WHERE state IS DISTINCT FROM (
        SELECT to_state FROM runs_transition
        WHERE run_id = run.id AND operation_id IS NULL ORDER BY version DESC, id DESC LIMIT 1)
"""
_FOREIGN_KEYS = """
    SELECT conrelid::regclass::text, own.attname, confrelid::regclass::text, theirs.attname
    FROM pg_constraint
    JOIN pg_attribute own ON own.attrelid = conrelid AND own.attnum = conkey[1]
    JOIN pg_attribute theirs ON theirs.attrelid = confrelid AND theirs.attnum = confkey[1]
    WHERE contype = 'f' AND connamespace = 'public'::regnamespace
"""
_DANGLING = """
    SELECT count(*) FROM {table} one WHERE {column} IS NOT NULL
    AND NOT EXISTS (SELECT FROM {other} WHERE {key} = one.{column})
"""


def find_faults(dsn: str) -> dict[str, Any]:
    """What contradicts itself, by a name for it; nothing where all is well."""
    set_up(dsn, apps=APPS)
    from runs.models import AgentRun
    from runs.slo.measures import Measure
    from runs.slo.reading import sum_measures
    from runs.stuck import count_stuck

    with psycopg.connect(dsn, autocommit=True) as connection:

        def count(query: str) -> int:
            row = connection.execute(query).fetchone()
            return row[0] if row else 0

        found: dict[str, Any] = {
            "broken chains": count(_BROKEN_CHAINS),
            "misled runs": count(_MISLED_RUNS),
        }
        for table, column, other, key in connection.execute(_FOREIGN_KEYS).fetchall():
            query = _DANGLING.format(table=table, column=column, other=other, key=key)
            found[f"{table}.{column}"] = count(query)
        found["is large enough"] = int(count("SELECT count(*) FROM runs_transition") < 1_000)
    counted = sum_measures(since=None, measures={Measure.RUNS_COMPLETED, Measure.RUNS_FAILED})
    ended = AgentRun.objects.filter(state__in=("COMPLETED", "FAILED")).count()
    found["runs that were not rolled up"] = ended - sum(one.count for one in counted)
    found |= {f"stuck: {why}": runs for why, runs in count_stuck().items()}
    return {name: what for name, what in found.items() if what}
