"""A call that is a run of its own, as one statement: the run, its journal's first row, the call.

Guarantees: all of it is written or nothing, and nothing where the key is known. With an owner the
run is claimed by the very same commit: its first holder then needs no claim of its own, and if
that one dies, the lease ends as every other does.

Does not check what is asked for (`accepting`).
"""

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection

from runs.access import Actor
from runs.agents import Agent
from runs.called import Called
from runs.commit import require_no_transaction
from runs.concurrency import agent_limits
from runs.lease import CLAIMED, lease_seconds, read_claim
from runs.loading import begin
from runs.models import GatewayCall
from runs.pinning import ours
from runs.prepared import fetch_one
from runs.state import RunEvent, RunState
from runs.statement_values import encode_json
from runs.work import Work
from tools.canonical import digest

_NOTHING_ASKED: Final = digest(None)


@dataclass(frozen=True)
class Opened:
    """`work` is the claimed run, for whoever named themselves its owner."""

    call: GatewayCall
    work: Work | None


def may_claim(agent: Agent) -> bool:
    """Whether a new run of the agent may be claimed before anybody looked at it: not where others
    have to be counted first, or it is left to workers of another version."""
    return agent.name not in agent_limits() and agent.version not in ours()["left"]


def open_call(
    call: GatewayCall, *, run_id: UUID, agent: Agent, actor: Actor, wait: float, owner: str | None
) -> Opened | None:
    """Write the call and its run; None, and nothing written, where the call's key is known.

    With `owner` the run is claimed for them; else it is due. Raises IntegrityError.
    """
    if owner is not None:
        require_no_transaction()
    asked_at = time.monotonic()
    values = {
        "run": run_id,
        "agent": agent.name,
        "agent_version": agent.version,
        "state": RunState.READY.value,
        "event": RunEvent.CREATE.value,
        "objective": f"call {call.tool}",
        "priority": agent.priority,
        "actor": actor.name,
        "user": actor.user_id,
        "nothing": _NOTHING_ASKED,
        "traceparent": actor.traceparent,
        "owner": owner,
        "seconds": lease_seconds(),
        "kind": call.kind,
        "scope": call.scope,
        "key": call.key,
        "request_digest": call.request_digest,
        "operation": call.operation_id,
        "tool": call.tool,
        "arguments": encode_json(call.arguments),
        "rationale": call.rationale,
        "door": call.door,
        "address": call.address,
        "wait": wait,
    }
    with connection.wrap_database_errors:
        found = fetch_one(_OPEN, values)
    if found is None:
        return None
    call.pk, call.received_at, call.answer_by, *claimed = found
    call.run_id, call.ends_run = run_id, True
    if owner is None:
        return Opened(call, None)
    work = begin(read_claim(claimed, owner=owner, asked_at=asked_at))
    # Nobody else knows of the run yet.
    work.called = Called(waiting=[call], ends_run=True, heard_at=call.received_at)
    return Opened(call, work)


_UNTIL: Final = """
    CASE WHEN %(owner)s::text IS NOT NULL
         THEN statement_timestamp() + make_interval(secs => %(seconds)s::float8) END"""

_OPEN: Final = f"""
    WITH run AS (
        INSERT INTO runs_agentrun
            (id, agent, agent_version, state, objective, input, labels, error, created_by,
             created_by_user_id, request_digest, version, step_number, failures, fence_token,
             lease_owner, lease_expires_at, wake_at, sweep_at, cancel_requested_by, pause_reason,
             priority, traceparent)
        SELECT %(run)s::uuid, %(agent)s::text, %(agent_version)s::text, %(state)s::text,
               %(objective)s::text, '{{}}'::jsonb, '{{}}'::jsonb, '', %(actor)s::text,
               %(user)s::int, %(nothing)s::text, 1, 0, 0,
               CASE WHEN %(owner)s::text IS NULL THEN 0 ELSE 1 END,
               COALESCE(%(owner)s::text, ''), {_UNTIL}, statement_timestamp(),
               COALESCE({_UNTIL}, statement_timestamp()), '', '', %(priority)s::smallint,
               %(traceparent)s::text
        WHERE NOT EXISTS (
            SELECT FROM runs_gatewaycall WHERE scope = %(scope)s::text AND key = %(key)s::text)
        RETURNING {CLAIMED}),
    journal AS (
        INSERT INTO runs_transition
            (run_id, version, event, from_state, to_state, reason, actor, fence_token,
             step_number, attempt)
        SELECT id, version, %(event)s::text, '', state, '', %(actor)s::text, fence_token, 0, 0
        FROM run),
    called AS (
        INSERT INTO runs_gatewaycall
            (run_id, kind, scope, key, request_digest, operation_id, tool, arguments, rationale,
             ends_run, created_by, door, address, answer_by)
        SELECT id, %(kind)s::text, %(scope)s::text, %(key)s::text, %(request_digest)s::text,
               %(operation)s::text, %(tool)s::text, %(arguments)s::jsonb, %(rationale)s::text,
               true, %(actor)s::text, %(door)s::text, %(address)s::text,
               statement_timestamp() + make_interval(secs => %(wait)s::float8)
        FROM run RETURNING id, received_at, answer_by)
    SELECT called.*, run.* FROM run, called
"""  # noqa: S608  names of columns
