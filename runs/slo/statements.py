"""The statements of rolling up and folding.

Guarantees: what is counted of a span comes from one statement, so that all sources tell of one
moment, and two of them may count the same measure: a row is written once.

Does not take the lock, without which two of these might count twice.
"""

from typing import Final

from runs.slo import counting_evidence, counting_operations, counting_people, counting_runs
from runs.slo.measures import DISTRIBUTIONS
from runs.slo.slices import FOLDS, ORIGIN, SLICE

# Whoever has written has an id. Its rows have the time of their statement, so none is older than
# its transaction.
TIMES: Final = """
    SELECT statement_timestamp(), min(xact_start) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_xid IS NOT NULL"""


def _array(bounds: tuple[float, ...]) -> str:
    texts = ("Infinity" if bound == float("inf") else f"{bound:g}" for bound in bounds)
    return "'{" + ",".join(texts) + "}'::float8[]"


_BOUNDS: Final = ", ".join(
    f"('{measure}', {_array(bounds)})" for measure, bounds in DISTRIBUTIONS.items()
)


_THINGS: Final = " UNION ALL ".join(
    f"({source.COUNTED})"
    for source in (counting_runs, counting_operations, counting_people, counting_evidence)
)
# Each value goes into its one bucket.
COUNT: Final = f"""
    INSERT INTO runs_rollup
        (starts_at, seconds, agent, agent_version, tool, measure, le, count, total)
    SELECT starts_at, {SLICE.total_seconds():.0f}, agent, agent_version, tool, measure, le,
           sum(n), sum(total)
    FROM (
        SELECT date_bin('{SLICE.total_seconds():.0f} s', thing.at, '{ORIGIN}') AS starts_at,
               thing.agent, thing.agent_version, thing.tool, thing.measure, thing.n,
               COALESCE(thing.value, 0) AS total,
               COALESCE((SELECT min(bound) FROM unnest(bounds.les) AS bound
                         WHERE bound >= thing.value), 0) AS le
        FROM ({_THINGS}) AS thing
        LEFT JOIN (VALUES {_BOUNDS}) AS bounds (measure, les) USING (measure)
    ) AS placed
    GROUP BY starts_at, agent, agent_version, tool, measure, le"""
FORGET: Final = f"""
    DELETE FROM runs_rollup WHERE seconds = {SLICE.total_seconds():.0f}
      AND starts_at >= %(since)s AND starts_at < %(until)s"""
IS_FOLDED: Final = "SELECT " + " OR ".join(
    f"""EXISTS (SELECT 1 FROM runs_rollup WHERE seconds = {fold.longer.total_seconds():.0f}
        AND starts_at < %(until)s
        AND starts_at > %(since)s::timestamptz - interval '{fold.longer.total_seconds():.0f} s')"""
    for fold in FOLDS[:-1]
)
FOLD: Final = """
    WITH gone AS (
        DELETE FROM runs_rollup WHERE seconds = %(short)s AND starts_at < %(before)s
        RETURNING starts_at, agent, agent_version, tool, measure, le, count, total
    ), folded AS (
        INSERT INTO runs_rollup
            (starts_at, seconds, agent, agent_version, tool, measure, le, count, total)
        SELECT date_bin(make_interval(secs => %(long)s), starts_at, %(origin)s), %(long)s, agent,
               agent_version, tool, measure, le, sum(count), sum(total)
        FROM gone GROUP BY 1, agent, agent_version, tool, measure, le
        ON CONFLICT ON CONSTRAINT rollup_once DO UPDATE
            SET count = runs_rollup.count + EXCLUDED.count,
                total = runs_rollup.total + EXCLUDED.total)
    SELECT count(*) FROM gone"""
