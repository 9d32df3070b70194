"""What people decided, and what was asked of them anew.

`COUNTED` has a row for each thing that happened:
(at, agent, agent_version, tool, measure, value, n).

Guarantees: a request for signatures is counted once, when it is decided or runs out, whatever
becomes of the signature later.

Does not count single signatures of several that a request needs.
"""

from typing import Final

from runs.gate import CHANGED
from runs.slo.counting_operations import TOOL

COUNTED: Final = f"""
    WITH decided AS MATERIALIZED (
        SELECT approval.decided_at AS at, run.agent, run.agent_version, {TOOL} AS tool,
               -- Only a verdict sets it, and nothing takes it away.
               approval.execute_by IS NOT NULL AS is_signed,
               approval.proposed_arguments IS NOT NULL AS is_replaced, approval.status,
               GREATEST(0, EXTRACT(EPOCH FROM approval.decided_at - approval.requested_at))
                   AS seconds
        FROM runs_approval approval
        JOIN runs_tooloperation operation ON operation.id = approval.operation_id
        JOIN runs_agentrun run ON run.id = approval.run_id
        WHERE approval.decided_at >= %(since)s AND approval.decided_at < %(until)s
    )
    SELECT at, agent, agent_version, tool, counted.measure, counted.value, 1 AS n
    FROM decided CROSS JOIN LATERAL (VALUES
        ('approvals_unchanged', is_signed, NULL::numeric),
        ('approvals_changed', is_replaced, NULL),
        ('approvals_denied', status = 'denied', NULL),
        ('approvals_expired', status = 'expired', NULL),
        ('approval_seconds', is_signed OR is_replaced OR status = 'denied', seconds)
    ) AS counted (measure, holds, value)
    WHERE counted.holds
    UNION ALL
    SELECT approval.requested_at, run.agent, run.agent_version, {TOOL}, 'approvals_mismatched',
           NULL, 1
    FROM runs_approval approval
    JOIN runs_tooloperation operation ON operation.id = approval.operation_id
    JOIN runs_agentrun run ON run.id = approval.run_id
    WHERE approval.requested_at >= %(since)s AND approval.requested_at < %(until)s
      AND approval.supersedes_id IS NOT NULL
      AND starts_with(approval.asked_because, '{CHANGED}')
    UNION ALL
    SELECT question.ended_at, run.agent, run.agent_version, '', 'questions_answered', NULL, 1
    FROM runs_question question JOIN runs_agentrun run ON run.id = question.run_id
    WHERE question.status = 'answered'
      AND question.ended_at >= %(since)s AND question.ended_at < %(until)s
"""
