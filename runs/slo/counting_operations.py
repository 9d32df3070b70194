"""What operations came to: sent, sent again, settled, repeated, unknown for how long.

`COUNTED` has a row for each thing that happened:
(at, agent, agent_version, tool, measure, value, n).

Guarantees: an edge of the journal is counted once, under its own time. An unknown outcome lasts
from the first edge to UNKNOWN until there is an answer, however often the operation was sent
again in between, and is held against the objective of the tool version that it was sent by.

Does not count requests that leave no row: a key that a caller sends again.
"""

from typing import Final

from runs.slo.counting_runs import listed
from runs.state import SETTLED_STATUSES, OperationEvent, OperationStatus

# An llm may call any name. Of those that no process knew, none is a label.
TOOL: Final = "CASE WHEN operation.tool_version <> '' THEN operation.tool ELSE '' END"

_ANSWERS: Final = listed((OperationEvent.COMMIT, OperationEvent.REJECT, OperationEvent.NOT_SENT))

_EDGE: Final = f"""
    edge AS MATERIALIZED (
        SELECT edge.id, edge.run_id, edge.operation_id, edge.event, edge.to_state, edge.at,
               run.agent, run.agent_version, {TOOL} AS tool, operation.tool_version,
               operation.attempts, operation.repeats_id, operation.compensates_id,
               operation.never_sent
        FROM runs_transition edge
        JOIN runs_tooloperation operation ON operation.id = edge.operation_id
        JOIN runs_agentrun run ON run.id = edge.run_id
        WHERE edge.at >= %(since)s AND edge.at < %(until)s AND edge.operation_id IS NOT NULL
          AND (edge.to_state IN {listed((OperationStatus.RUNNING, *SETTLED_STATUSES))}
               OR edge.event IN {_ANSWERS})
    )"""

# As a worker put a declaration on record: 10 minutes are '0:10:00', and a day '1 day, 0:00:00'.
# Whatever else stands there is no objective, and no error.
_DURATION: Final = (
    r"^([0-9]{1,6} days?, )?([01]?[0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
)
# The last of what `tools.spec.declaration` says of idempotency.
OBJECTIVE: Final = rf"""(
            SELECT CASE WHEN definition.body -> 'idempotency' ->> 4 ~ '{_DURATION}'
                        THEN (definition.body -> 'idempotency' ->> 4)::interval END
            FROM runs_definition definition
            WHERE definition.kind = 'tool' AND definition.name = edge.tool
              AND definition.version = edge.tool_version)"""

_SETTLED: Final = f"""
    settled AS MATERIALIZED (
        SELECT edge.*, GREATEST(0, EXTRACT(EPOCH FROM edge.at - unknown.since)) AS seconds,
               edge.at - unknown.since > {OBJECTIVE} AS is_late,
               EXISTS (
                   SELECT 1 FROM runs_incident incident
                   WHERE incident.operation_id = edge.operation_id AND incident.kind = 'OVERDUE'
                     AND incident.at BETWEEN unknown.since AND edge.at
               ) AS is_known_late,
               (SELECT seen.source FROM runs_toolobservation seen
                WHERE seen.operation_id = edge.operation_id AND seen.observed_at <= edge.at
                ORDER BY seen.id DESC LIMIT 1) AS settled_by
        FROM edge CROSS JOIN LATERAL (
-- A filter is only looked at where there is a row: of a long run, the answers are many.
            SELECT min(lost.at) FILTER (WHERE lost.id > COALESCE((
                SELECT max(answer.id) FROM runs_transition answer
                WHERE answer.run_id = edge.run_id AND answer.operation_id = edge.operation_id
                  AND answer.event = '{OperationEvent.NOT_SENT}' AND answer.id < edge.id
                  AND answer.from_state = '{OperationStatus.UNKNOWN}'), 0)) AS since
            FROM runs_transition lost
            WHERE lost.operation_id = edge.operation_id AND lost.operation_id IS NOT NULL
              AND lost.to_state = '{OperationStatus.UNKNOWN}' AND lost.id < edge.id
        ) AS unknown
        WHERE edge.event IN {_ANSWERS} AND unknown.since IS NOT NULL
    )"""

# A compensation that was replaced, or whose run was cancelled, did not fail.
_NO_FAILURE: Final = "('changed', 'cancelled')"
_WAS_SENT: Final = f"""
             edge.attempts > 1 AND EXISTS (
                 SELECT 1 FROM runs_transition earlier
                 WHERE earlier.run_id = edge.run_id AND earlier.operation_id = edge.operation_id
                   AND earlier.id < edge.id
                   AND earlier.to_state = '{OperationStatus.RUNNING}')"""

COUNTED: Final = f"""
    WITH {_EDGE}, {_SETTLED}
    SELECT edge.at, agent, agent_version, tool, counted.measure, NULL::numeric AS value, 1 AS n
    FROM edge CROSS JOIN LATERAL (VALUES
        ('operations_sent', to_state = '{OperationStatus.RUNNING}'),
        ('operations_resent', to_state = '{OperationStatus.RUNNING}' AND {_WAS_SENT}),
        ('operations_committed', event = '{OperationEvent.COMMIT}'),
        ('operations_rejected', to_state = '{OperationStatus.REJECTED}'),
        ('operations_cancelled', to_state = '{OperationStatus.CANCELLED}'),
        ('repeats_answered', event = '{OperationEvent.REPLAY}'),
        ('repeats_refused', event = '{OperationEvent.REFUSE}' AND repeats_id IS NOT NULL),
        ('compensations_committed',
         event = '{OperationEvent.COMMIT}' AND compensates_id IS NOT NULL),
        ('compensations_failed', compensates_id IS NOT NULL AND (
            to_state = '{OperationStatus.REJECTED}'
            OR to_state = '{OperationStatus.CANCELLED}' AND never_sent NOT IN {_NO_FAILURE}))
    ) AS counted (measure, holds)
    WHERE counted.holds
    UNION ALL
    SELECT settled.at, agent, agent_version, tool, counted.measure, counted.value, 1
    FROM settled CROSS JOIN LATERAL (VALUES
        ('unknown_seconds', true, seconds),
        ('unknown_in_time', is_late IS NOT TRUE AND NOT is_known_late, NULL),
        ('unknown_over_objective', is_late AND NOT is_known_late, NULL),
        ('unknown_settled_by_look_up', settled_by = 'look_up', NULL),
        ('unknown_settled_by_person', settled_by = 'person', NULL)
    ) AS counted (measure, holds, value)
    WHERE counted.holds
    UNION ALL
    SELECT again.received_at, run.agent, run.agent_version, {TOOL}, 'repeats_answered', NULL, 1
    FROM runs_gatewaycall again
    JOIN runs_gatewaycall first ON first.id = again.same_as_id
    JOIN runs_tooloperation operation ON operation.id = first.operation_id
    JOIN runs_agentrun run ON run.id = operation.run_id
    WHERE again.kind = 'again'
      AND again.received_at >= %(since)s AND again.received_at < %(until)s
"""
