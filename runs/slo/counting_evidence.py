"""What should not have happened, what providers list, which workers were lost, what llms cost.

`COUNTED` has a row for each thing that happened, or for `n` of them at once:
(at, agent, agent_version, tool, measure, value, n).

Guarantees: an incident is counted under the time at which it was found. An audit speaks of no
agent.
"""

from typing import Final

from runs.slo.counting_operations import TOOL

COUNTED: Final = f"""
    SELECT incident.at, run.agent, run.agent_version, {TOOL} AS tool,
           CASE incident.kind
               WHEN 'DUPLICATE' THEN 'duplicates' WHEN 'LATE_COMMIT' THEN 'late_commits'
               WHEN 'OVERDUE' THEN 'unknown_over_objective' WHEN 'UNAPPROVED' THEN 'unapproved'
           END AS measure, NULL::numeric AS value, 1 AS n
    FROM runs_incident incident
    JOIN runs_tooloperation operation ON operation.id = incident.operation_id
    JOIN runs_agentrun run ON run.id = incident.run_id
    WHERE incident.at >= %(since)s AND incident.at < %(until)s
    UNION ALL
    SELECT audit.at, '', '', audit.tool, counted.measure, NULL, counted.n
    FROM runs_effectaudit audit CROSS JOIN LATERAL (VALUES
        ('effects_unaccounted', audit.unaccounted), ('effects_missing', audit.missing)
    ) AS counted (measure, n)
    WHERE audit.at >= %(since)s AND audit.at < %(until)s AND counted.n > 0
    UNION ALL
    SELECT attempt.ended_at, run.agent, run.agent_version, '', 'leases_lost', NULL, 1
    FROM runs_stepattempt attempt
    JOIN runs_step step ON step.id = attempt.step_id
    JOIN runs_agentrun run ON run.id = step.run_id
    WHERE attempt.outcome = 'lost'
      AND attempt.ended_at >= %(since)s AND attempt.ended_at < %(until)s
    UNION ALL
    SELECT request.at, run.agent, run.agent_version, '', counted.measure, counted.value, 1
    FROM runs_llmrequest request
    JOIN runs_agentrun run ON run.id = request.run_id
    CROSS JOIN LATERAL (VALUES
        ('llm_requests', true, NULL::numeric),
        ('llm_failures', request.outcome <> 'used', NULL),
        ('llm_seconds', true, request.latency_ms / 1000.0),
        ('llm_tokens', request.input_tokens IS NOT NULL OR request.output_tokens IS NOT NULL,
         COALESCE(request.input_tokens, 0) + COALESCE(request.output_tokens, 0)),
        ('llm_cost_usd', request.cost_usd IS NOT NULL, request.cost_usd)
    ) AS counted (measure, holds, value)
    WHERE request.at >= %(since)s AND request.at < %(until)s AND counted.holds
"""
