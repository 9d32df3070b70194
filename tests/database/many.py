"""Many rows, written at once: what a stack looks like after a year.

Triggers and foreign keys look away meanwhile: nothing is journaled, and nothing belongs
to anything.
"""

from django.db import connection

_ADD_RUNS = """
    INSERT INTO runs_agentrun (
        id, agent, agent_version, state, objective, input, labels, error, created_by,
        request_digest, version, step_number, failures, fence_token, lease_owner,
        cancel_requested_by, pause_reason, priority, wake_at, sweep_at)
    SELECT gen_random_uuid(), %(agent)s, '1', 'READY', '', %(given)s, '{}', '', 'many', '',
           1, 0, 0, 0, '', '', '', %(priority)s, due, due
    FROM (SELECT now() + make_interval(secs => %(due_in)s + %(spread)s * n / %(count)s::float8)
          AS due FROM generate_series(1, %(count)s) AS n) AS dates
"""

_ADD_APPROVALS = """
    INSERT INTO runs_approval (
        id, operation_id, run_id, status, fingerprint, covered, rule, policy_version,
        asked_because, resource_version, requester, groups, quorum, escalate_to, approve_by,
        execute_within, remind_at, escalate_at, decided_by, reason, proposed_by)
    SELECT gen_random_uuid(), 'asked' || gen_random_uuid(), gen_random_uuid(), 'pending', '', '{}',
           '', '', '', '', 'many', '[]', 1, '[]', now() + interval '1 day' + n * interval '1 s',
           interval '1 hour', now() + interval '1 h', now() + interval '2 h', '', '', ''
    FROM generate_series(1, %(count)s) AS n
"""

_ADD_WATCHED = """
    INSERT INTO runs_tooloperation (
        id, run_id, step_id, step_number, ordinal, revision, tool, tool_version, effect_type,
        arguments_version, provider, account, arguments, arguments_digest, sensitive, intent,
        idempotency_key,
        status, policy_outcome, policy_rule, policy_version, never_sent, attempts, look_ups,
        external_ref, error, fence_token, run_version, holds_intent, settled_at, next_watch_at)
    SELECT 'watched' || gen_random_uuid(), gen_random_uuid(), (random() * 1e15)::bigint, 1, 0, 0,
           'pay', '1', 'IDEMPOTENT_WRITE', '', 'bank', '', '{}', '', '[]', '', 'watched' || n,
           'REJECTED', '', '', '', '', 1, 0,
           '', '', 1, 1, NULL, now(), now() + interval '1 h' + make_interval(secs => n)
    FROM generate_series(1, %(count)s) AS n
"""


def add_runs(
    count: int,
    *,
    agent: str,
    due_in: float,
    priority: int = 0,
    spread: float = 0,
    given: str = "{}",
) -> None:
    """So many runs of an agent, READY and dated `due_in` seconds from now, the last of them
    `spread` seconds later; `given` is their input as JSON."""
    _add(
        _ADD_RUNS,
        count=count,
        agent=agent,
        due_in=due_in,
        priority=priority,
        spread=spread,
        given=given,
    )


def add_approvals(count: int) -> None:
    """So many that are pending, and due in hours."""
    _add(_ADD_APPROVALS, count=count)


def add_watched(count: int) -> None:
    """So many closed operations that are to be looked up again, in an hour and later."""
    _add(_ADD_WATCHED, count=count)


def _add(statement: str, **values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica; SET statement_timeout = 0")
        try:
            cursor.execute(statement, values)
        finally:
            cursor.execute("RESET session_replication_role; RESET statement_timeout")
