"""A change as one SQL statement.

Each part of a change is one WITH query that reads from `held`, the run's row under its
version and token: where that row is not found, no part writes anything. The text
depends only on which parts a change has, so the server plans each of the few shapes
once per connection.

Does not execute anything; `commit.py` does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from uuid import UUID

from runs.change import NEARLY_OVER, Change, Edge, NewDecision
from runs.models import Incident, ToolObservation, ToolOperation
from runs.statement_approvals import (
    RETURN_APPROVALS,
    SPEND_APPROVALS,
    add_approval,
    add_notice,
    ended_approval_part,
    tell_caller,
)
from runs.statement_llm import add_handoff, add_llm_requests, hand_over
from runs.statement_run import run_part
from runs.statement_values import encode_json, text_array
from runs.statement_waits import add_child, add_question, add_wait, end_wait


@dataclass(frozen=True)
class Held:
    """What the statement is guarded by, and who writes."""

    run_id: UUID
    version: int
    fence_token: int
    actor: str
    step_id: int | None
    attempt_id: int | None


def build_statement(held: Held, change: Change) -> tuple[str, dict[str, Any]]:
    """The statement with named parameters, and their values."""
    values: dict[str, Any] = {
        "run": held.run_id,
        "version": held.version,
        "fence": held.fence_token,
        "actor": held.actor,
        "step": held.step_id,
        "attempt": held.attempt_id,
    }
    if change.open_step is not None:
        values["step_number"] = change.open_step
    if change.open_attempt is not None:
        values["attempt_number"] = change.open_attempt
        values["opened_outcome"] = change.opened_outcome
    parts = [run_part(change, values)]
    if change.close_attempt:
        values["attempt_outcome"] = change.close_attempt
        parts.append(_CLOSE_ATTEMPT)
    if change.close_step:
        parts.append(_CLOSE_STEP)
    if change.checkpoint is not None:
        values["checkpoint"] = encode_json(change.checkpoint)
        parts.append(_CHECKPOINT)
    step_from = "NULL::bigint"
    if change.open_step is not None:
        parts.append(_OPEN_STEP if change.close_step else _OPEN_FIRST_STEP)
        step_from = "(SELECT id FROM opened)"
    attempt_from = "NULL::bigint"
    if change.open_attempt is not None:
        if change.open_step is None:
            parts.append(_LOSE_ATTEMPT)
        parts.append(_OPEN_ATTEMPT if change.open_step is not None else _REOPEN_ATTEMPT)
        attempt_from = "(SELECT id FROM attempted)"
    step = "%(step)s::bigint"
    if change.open_step is not None and not change.close_step:
        # Opened and decided in one: where nobody had to be asked in between.
        step = "(SELECT id FROM opened)"
    if change.decision is not None:
        _add_decision(change.decision, parts, values, step=step)
    for n, operation in enumerate(change.moved_operations):
        _add_move(n, operation, parts, values)
    for n, operation in enumerate(change.new_operations):
        _add_operation(n, operation, parts, values, step=step, after=len(change.moved_operations))
    for n, observation in enumerate(change.observations):
        _add_observation(n, observation, parts, values)
    for n, incident in enumerate(change.incidents):
        _add_incident(n, incident, parts, values)
    for n, asked in enumerate(change.new_approvals):
        add_approval(n, asked, parts, values)
    for n, (approval_id, status) in enumerate(change.ended_approvals.items()):
        values[f"ended{n}_id"], values[f"ended{n}_status"] = approval_id, status.value
        parts.append(ended_approval_part(n, approval_id in change.returned_approvals))
    if change.spent_approvals:
        parts.append(SPEND_APPROVALS)
    if returned := change.returned_approvals - change.ended_approvals.keys():
        values["returned"] = text_array(str(one) for one in returned)
        parts.append(RETURN_APPROVALS)
    if change.taken_calls:
        values["taken"] = list(change.taken_calls)
        parts.append(_TAKE_CALLS)
    if change.drops_calls:
        values["kept"] = list(change.taken_calls)
        values["nearly"] = NEARLY_OVER.total_seconds()
        parts.append(_DROP_CALLS)
    if change.new_wait is not None:
        add_wait(change.new_wait, change.ended_wait, parts, values)
    elif change.ended_wait is not None:
        end_wait(change.ended_wait, parts, values)
    if change.new_question is not None:
        add_question(change.new_question, parts, values)
    for n, child in enumerate(change.new_children):
        add_child(n, child, parts, values)
    for n, handoff in enumerate(change.handed_over):
        hand_over(n, handoff, parts, values)
    for n, notice in enumerate(change.notices):
        add_notice(n, notice, parts, values)
    for n, call in enumerate(change.settled_calls):
        tell_caller(n, call, parts, values)
    if change.llm_requests:
        add_llm_requests(change.llm_requests, parts, values)
    if change.new_handoff is not None:
        add_handoff(change.new_handoff, parts, values)
    if change.edges:
        _add_edges(change.edges, parts, values)
    answer = f"""
        SELECT version,
               COALESCE(EXTRACT(EPOCH FROM lease_expires_at - clock_timestamp()), 0)::float8,
               CASE WHEN cancel_requested_at IS NOT NULL THEN cancel_requested_by END,
               cancel_compensates, paused_at IS NOT NULL, {step_from}, {attempt_from},
               {POLICY_GENERATION}
        FROM held"""
    return f"WITH {', '.join(parts)} {answer}", values


# Told by every commit, so that a send never leaves under policies that are not the newest.
POLICY_GENERATION: Final = "runs_policy_generation()"

_CLOSE_ATTEMPT = """closed_attempt AS (
    UPDATE runs_stepattempt SET ended_at = statement_timestamp(),
           outcome = %(attempt_outcome)s::text
    FROM held WHERE runs_stepattempt.id = %(attempt)s::bigint)"""

_CLOSE_STEP = """closed_step AS (
    UPDATE runs_step SET closed_at = statement_timestamp()
    FROM held WHERE runs_step.id = %(step)s::bigint RETURNING runs_step.id)"""

_CHECKPOINT = """checkpoint AS (
    INSERT INTO runs_checkpoint (step_id, run_id, state, fence_token)
    SELECT %(step)s::bigint, held.id, %(checkpoint)s::jsonb, held.fence_token FROM held)"""

# A run has one open step: reading `closed_step` makes the old one close first.
_OPEN_STEP = """opened AS (
    INSERT INTO runs_step (run_id, number)
    SELECT held.id, %(step_number)s::int FROM held, closed_step RETURNING id)"""

_OPEN_FIRST_STEP = """opened AS (
    INSERT INTO runs_step (run_id, number)
    SELECT held.id, %(step_number)s::int FROM held RETURNING id)"""

_ENDING: Final = (
    "%(opened_outcome)s::text, "
    "CASE WHEN %(opened_outcome)s::text <> '' THEN statement_timestamp() END"
)

_OPEN_ATTEMPT = f"""attempted AS (
    INSERT INTO runs_stepattempt (step_id, number, fence_token, worker, outcome, ended_at)
    SELECT opened.id, %(attempt_number)s::int, held.fence_token, %(actor)s::text, {_ENDING}
    FROM held, opened RETURNING id)"""

_LOSE_ATTEMPT = """lost AS (
    UPDATE runs_stepattempt SET ended_at = statement_timestamp(), outcome = 'lost'
    FROM held WHERE step_id = %(step)s::bigint AND ended_at IS NULL RETURNING 1)"""

# Counting `lost` makes the old attempt close first.
_REOPEN_ATTEMPT = f"""attempted AS (
    INSERT INTO runs_stepattempt (step_id, number, fence_token, worker, outcome, ended_at)
    SELECT %(step)s::bigint, %(attempt_number)s::int, held.fence_token, %(actor)s::text, {_ENDING}
    FROM held, (SELECT count(*) FROM lost) AS closed RETURNING id)"""


_TAKE_CALLS = """taken AS (
    UPDATE runs_gatewaycall SET taken_at = statement_timestamp(), arguments = NULL
    FROM held WHERE runs_gatewaycall.id = ANY (%(taken)s::bigint[])
      AND runs_gatewaycall.run_id = held.id AND taken_at IS NULL)"""

_DROP_CALLS = """dropped AS (
    UPDATE runs_gatewaycall SET taken_at = statement_timestamp(), arguments = NULL
    FROM held WHERE runs_gatewaycall.run_id = held.id AND taken_at IS NULL
      AND NOT runs_gatewaycall.id = ANY (%(kept)s::bigint[])
    RETURNING runs_gatewaycall.run_id, operation_id, answer_by),
    told_of_dropped AS (
    INSERT INTO runs_notice (event_id, kind, run_id, operation_id, status)
    SELECT 'operation.settled:' || operation_id, 'operation.settled', run_id, operation_id,
           'CANCELLED'
    FROM dropped WHERE operation_id IS NOT NULL
      AND answer_by <= statement_timestamp() + make_interval(secs => %(nearly)s::float8)
    ON CONFLICT (event_id) DO NOTHING)"""


def _add_decision(
    decision: NewDecision, parts: list[str], values: dict[str, Any], *, step: str
) -> None:
    values |= {
        "decision_kind": decision.kind,
        "decision_body": encode_json(decision.body),
        "decider": decision.decider,
        "agent_version": decision.agent_version,
        "tool_versions": encode_json(decision.tool_versions),
        "prompt_version": decision.prompt_version,
        "llm_version": decision.llm_version,
        "policy_version": decision.policy_version,
    }
    parts.append(f"""decided AS (
        INSERT INTO runs_modeldecision
            (step_id, run_id, fence_token, kind, body, decider, agent_version, tool_versions,
             prompt_version, llm_version, policy_version)
        SELECT {step}, held.id, held.fence_token, %(decision_kind)s::text,
               %(decision_body)s::jsonb, %(decider)s::text, %(agent_version)s::text,
               %(tool_versions)s::jsonb, %(prompt_version)s::text, %(llm_version)s::text,
               %(policy_version)s::text
        FROM held)""")


# What an operation is: written once, then kept by a trigger.
_IDENTITY: Final = {
    "id": "text",
    "step_number": "int",
    "ordinal": "int",
    "revision": "int",
    "tool": "text",
    "tool_version": "text",
    "arguments_version": "text",
    "effect_type": "text",
    "provider": "text",
    "account": "text",
    "arguments": "jsonb",
    "arguments_digest": "text",
    "sensitive": "jsonb",
    "intent": "text",
    "repeats_id": "text",
    "compensates_id": "text",
    "idempotency_key": "text",
}
# How it stands.
_STANDING: Final = {
    "status": "text",
    "policy_outcome": "text",
    "policy_rule": "text",
    "policy_version": "text",
    "approval_id": "uuid",
    "never_sent": "text",
    "key_expires_at": "timestamptz",
    "fence_token": "bigint",
    "attempts": "int",
    "look_ups": "int",
    "first_sent_at": "timestamptz",
    "last_sent_at": "timestamptz",
    "in_flight_until": "timestamptz",
    "settles_at": "timestamptz",
    "unknown_since": "timestamptz",
    "next_reconcile_at": "timestamptz",
    "next_try_at": "timestamptz",
    "needs_person_since": "timestamptz",
    "next_watch_at": "timestamptz",
    "watch_until": "timestamptz",
    "holds_intent": "text",
    "external_ref": "text",
    "result": "jsonb",
    "error": "text",
    "settled_at": "timestamptz",
}
_WHOLE: Final = {**_IDENTITY, **_STANDING}
_JSON_COLUMNS: Final = frozenset({"arguments", "result", "sensitive"})


def _add_operation(
    n: int,
    operation: ToolOperation,
    parts: list[str],
    values: dict[str, Any],
    *,
    step: str,
    after: int,
) -> None:
    _bind(f"new{n}", operation, _WHOLE, values)
    parts.append(_new_operation_part(n, step, after))


@cache
def _new_operation_part(n: int, step: str, after: int) -> str:
    """Reading the moved ones makes them go first: one may let go the intent that this takes."""
    fields = ", ".join(f"%(new{n}_{name})s::{kind}" for name, kind in _WHOLE.items())
    moved = "".join(f", (SELECT count(*) FROM moved{m}) AS before{m}" for m in range(after))
    return f"""new{n} AS (
        INSERT INTO runs_tooloperation (run_id, run_version, step_id, {", ".join(_WHOLE)})
        SELECT held.id, held.version, {step}, {fields} FROM held{moved})"""


def _add_move(n: int, operation: ToolOperation, parts: list[str], values: dict[str, Any]) -> None:
    _bind(f"moved{n}", operation, _STANDING, values)
    values[f"moved{n}_id"] = operation.id
    parts.append(_moved_operation_part(n))


@cache
def _moved_operation_part(n: int) -> str:
    given = {name: f"%(moved{n}_{name})s::{kind}" for name, kind in _STANDING.items()}
    # The heartbeat may have pushed the window's end on since the row was read.
    window = given["in_flight_until"]
    given["in_flight_until"] = (
        f"CASE WHEN {window} IS NOT NULL THEN GREATEST(in_flight_until, {window}) END"
    )
    sets = ", ".join(f"{name} = {value}" for name, value in given.items())
    return f"""moved{n} AS (
        UPDATE runs_tooloperation SET run_version = held.version, {sets}
        FROM held
        WHERE runs_tooloperation.id = %(moved{n}_id)s::text
          AND runs_tooloperation.run_id = held.id
        RETURNING 1)"""


def _bind(
    prefix: str, operation: ToolOperation, names: Iterable[str], values: dict[str, Any]
) -> None:
    for name in names:
        value = getattr(operation, name)
        values[f"{prefix}_{name}"] = encode_json(value) if name in _JSON_COLUMNS else value


def _add_observation(
    n: int, observation: ToolObservation, parts: list[str], values: dict[str, Any]
) -> None:
    for name in ("source", "verdict", "stage", "detail", "external_ref", "attempt", "fence_token"):
        values[f"seen{n}_{name}"] = getattr(observation, name)
    values[f"seen{n}_operation"] = observation.operation_id
    values[f"seen{n}_result"] = encode_json(observation.result)
    values[f"seen{n}_window"] = encode_json(observation.window)
    values[f"seen{n}_also"] = encode_json(observation.also)
    parts.append(f"""seen{n} AS (
        INSERT INTO runs_toolobservation
            (operation_id, run_id, source, verdict, stage, detail, external_ref, attempt,
             fence_token, result, "window", also)
        SELECT %(seen{n}_operation)s::text, held.id, %(seen{n}_source)s::text,
               %(seen{n}_verdict)s::text, %(seen{n}_stage)s::text, %(seen{n}_detail)s::text,
               %(seen{n}_external_ref)s::text, %(seen{n}_attempt)s::int,
               %(seen{n}_fence_token)s::bigint, %(seen{n}_result)s::jsonb,
               %(seen{n}_window)s::jsonb, %(seen{n}_also)s::jsonb
        FROM held)""")


def _add_incident(n: int, incident: Incident, parts: list[str], values: dict[str, Any]) -> None:
    for name in ("kind", "external_ref", "detail"):
        values[f"incident{n}_{name}"] = getattr(incident, name)
    values[f"incident{n}_operation"] = incident.operation_id
    parts.append(f"""incident{n} AS (
        INSERT INTO runs_incident (operation_id, run_id, kind, external_ref, detail)
        SELECT %(incident{n}_operation)s::text, held.id, %(incident{n}_kind)s::text,
               %(incident{n}_external_ref)s::text, %(incident{n}_detail)s::text
        FROM held
        ON CONFLICT ON CONSTRAINT incident_unique_finding DO NOTHING)""")


def _add_edges(edges: list[Edge], parts: list[str], values: dict[str, Any]) -> None:
    values |= {
        "edge_operation": text_array(edge.operation_id for edge in edges),
        "edge_event": text_array(edge.event for edge in edges),
        "edge_from": text_array(edge.from_state for edge in edges),
        "edge_to": text_array(edge.to_state for edge in edges),
        "edge_reason": text_array(edge.reason for edge in edges),
        "edge_step": text_array(str(edge.step_number) for edge in edges),
        "edge_attempt": text_array(str(edge.attempt) for edge in edges),
    }
    parts.append("""journal AS (
        INSERT INTO runs_transition
            (run_id, version, operation_id, event, from_state, to_state, reason, actor,
             fence_token, step_number, attempt)
        SELECT held.id, held.version, edge.operation, edge.event, edge.source, edge.target,
               edge.reason, %(actor)s::text, held.fence_token, edge.step, edge.attempt
        FROM held, unnest(%(edge_operation)s::text[], %(edge_event)s::text[],
                          %(edge_from)s::text[], %(edge_to)s::text[], %(edge_reason)s::text[],
                          %(edge_step)s::int[], %(edge_attempt)s::int[])
             WITH ORDINALITY
             AS edge (operation, event, source, target, reason, step, attempt, place)
        ORDER BY edge.place)""")
