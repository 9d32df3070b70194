"""How runs began and ended, how long that took, and how much of it was a person's.

`COUNTED` has a row for each thing that happened:
(at, agent, agent_version, tool, measure, value, n).

Guarantees: an end is counted under the time of its edge, with the time and the bill of the life
that it ends: what was spent before a retry belongs to the end before it. A person is *waited for*
in the states that only a person leaves, while a question is open, and while the run is paused;
where several are true at once the time counts once.

Not in that time: a child run's wait for a person, which is the child's own; and what a person
does who is not waited for.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from runs.state import FINAL_STATES, PERSON_STATES, RunEvent, RunState


def listed(values: Iterable[StrEnum]) -> str:
    """The values as a list in SQL."""
    return "({})".format(", ".join(f"'{value}'" for value in sorted(values)))


_FINAL: Final = listed(FINAL_STATES)

# One life of a run lasts from its start, or from a person's retry, to an end.
_ENDED: Final = f"""
    edge AS MATERIALIZED (
        SELECT run_id, version, event, from_state, to_state, at
        FROM runs_transition
        WHERE at >= %(since)s AND at < %(until)s AND operation_id IS NULL
          AND (event = '{RunEvent.CREATE}' OR to_state IN {_FINAL})
    ), ended AS MATERIALIZED (
        SELECT edge.run_id, edge.version, edge.at, edge.to_state AS state, run.agent,
               run.agent_version, run.parent_id, COALESCE(before.at, run.created_at) AS began_at,
               GREATEST(0, COALESCE((later.spent ->> 'tokens')::bigint, run.spent_tokens)
                   - COALESCE((before.spent ->> 'tokens')::bigint, 0)) AS spent_tokens,
               GREATEST(0, COALESCE((later.spent ->> 'cost_usd')::numeric, run.spent_cost_usd)
                   - COALESCE((before.spent ->> 'cost_usd')::numeric, 0)) AS spent_cost_usd
        FROM edge JOIN runs_agentrun run ON run.id = edge.run_id
        LEFT JOIN LATERAL (
            SELECT at, details -> 'spent' AS spent FROM runs_controlrequest
            WHERE run_id = run.id AND kind = 'retry' AND at < edge.at
            ORDER BY at DESC, id DESC LIMIT 1
        ) AS before ON true
        LEFT JOIN LATERAL (
            SELECT details -> 'spent' AS spent FROM runs_controlrequest
            WHERE run_id = run.id AND kind = 'retry' AND at >= edge.at
            ORDER BY at, id LIMIT 1
        ) AS later ON true
        WHERE edge.to_state IN {_FINAL} AND NOT (
            edge.from_state = '{RunState.COMPENSATING}' AND EXISTS (
                SELECT 1 FROM runs_transition reopened
                WHERE reopened.run_id = edge.run_id AND reopened.version < edge.version
                  AND reopened.operation_id IS NULL AND reopened.from_state IN {_FINAL}
                  AND reopened.event = '{RunEvent.COMPENSATE}'))
    )"""

# A clock that was set back must not make a range that ends before it begins.
_WAITED: Final = f"""
    stop AS (
        SELECT run_id, version, begins, at,
               COALESCE(
                   lead(at) OVER (PARTITION BY run_id, version ORDER BY at), ended_at
               ) AS until
        FROM (
            SELECT ended.run_id, ended.version, request.kind = 'pause' AS begins, request.at,
                   ended.at AS ended_at
            FROM ended JOIN runs_controlrequest request USING (run_id)
            WHERE request.kind <> 'fork' AND request.at < ended.at
            UNION ALL
            SELECT ended.run_id, ended.version, true, notice.at, ended.at
            FROM ended JOIN runs_notice notice USING (run_id)
            WHERE notice.kind = 'run.paused' AND notice.at < ended.at
        ) AS stops
    ), span AS (
        SELECT run_id, version, at, until FROM stop WHERE begins
        UNION ALL
        SELECT ended.run_id, ended.version, question.asked_at,
               COALESCE(question.ended_at, ended.at)
        FROM ended JOIN runs_question question USING (run_id)
        WHERE question.asked_at < ended.at
        UNION ALL
        SELECT ended.run_id, ended.version, entry.at, leaving.at
        FROM ended
        JOIN runs_transition leaving ON leaving.run_id = ended.run_id
             AND leaving.operation_id IS NULL AND leaving.from_state IN {listed(PERSON_STATES)}
             AND leaving.version <= ended.version
        CROSS JOIN LATERAL (
            SELECT at FROM runs_transition
            WHERE run_id = leaving.run_id AND operation_id IS NULL
              AND (version, id) < (leaving.version, leaving.id)
            ORDER BY version DESC, id DESC LIMIT 1
        ) AS entry
    ), waited AS (
        SELECT run_id, version, range_agg(tstzrange(LEAST(at, until), until)) AS spans
        FROM span GROUP BY run_id, version
    )"""

# What the parent asks of its child is no person's word. A person's word on an operation is an
# observation of it; a signature stands on its request.
_MEASURED: Final = """
    measured AS (
        SELECT ended.at, ended.agent, ended.agent_version, ended.state, ended.spent_tokens,
               ended.spent_cost_usd,
               GREATEST(0, EXTRACT(EPOCH FROM ended.at - ended.began_at)) AS seconds,
               COALESCE((
                   SELECT sum(EXTRACT(EPOCH FROM upper(part) - lower(part)))
                   FROM unnest(waited.spans * tstzmultirange(
                       tstzrange(LEAST(ended.began_at, ended.at), ended.at))) AS part
               ), 0) AS waited_seconds,
               EXISTS (
                   SELECT 1 FROM runs_controlrequest request
                   WHERE request.run_id = ended.run_id AND request.at <= ended.at
                     AND request.kind <> 'fork'
                     AND request.by IS DISTINCT FROM 'run ' || ended.parent_id
               ) OR EXISTS (
                   SELECT 1 FROM runs_approval approval
                   WHERE approval.run_id = ended.run_id AND approval.decided_by <> ''
                     AND approval.decided_at <= ended.at
               ) OR EXISTS (
                   SELECT 1 FROM runs_question question
                   WHERE question.run_id = ended.run_id AND question.status = 'answered'
                     AND question.ended_at <= ended.at
               ) OR EXISTS (
                   SELECT 1 FROM runs_tooloperation operation
                   JOIN runs_toolobservation seen ON seen.operation_id = operation.id
                   WHERE operation.run_id = ended.run_id AND seen.source = 'person'
                     AND seen.observed_at <= ended.at
               ) AS is_touched
        FROM ended LEFT JOIN waited USING (run_id, version)
    )"""

COUNTED: Final = f"""
    WITH {_ENDED}, {_WAITED}, {_MEASURED}
    SELECT edge.at, run.agent, run.agent_version, '' AS tool, 'runs_started' AS measure,
           NULL::numeric AS value, 1 AS n
    FROM edge JOIN runs_agentrun run ON run.id = edge.run_id
    WHERE edge.event = '{RunEvent.CREATE}'
    UNION ALL
    SELECT at, agent, agent_version, '', counted.measure, counted.value, 1
    FROM measured CROSS JOIN LATERAL (VALUES
        ('runs_completed', state = '{RunState.COMPLETED}', NULL),
        ('runs_failed', state = '{RunState.FAILED}', NULL),
        ('runs_cancelled', state = '{RunState.CANCELLED}', NULL),
        ('runs_touched', is_touched, NULL),
        ('run_seconds', state <> '{RunState.CANCELLED}', seconds),
        ('run_working_seconds', state <> '{RunState.CANCELLED}',
         GREATEST(0, seconds - waited_seconds)),
        ('run_cost_usd', state <> '{RunState.CANCELLED}', spent_cost_usd),
        ('run_tokens', state <> '{RunState.CANCELLED}', spent_tokens)
    ) AS counted (measure, holds, value)
    WHERE counted.holds
"""
