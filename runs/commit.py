"""The commit door: the one way a lease holder writes.

A `Change` collects, in memory, everything that happens between two remote calls;
`commit_if_held` writes it as **one** SQL statement, so it is one commit and one
round trip however many edges it takes. The statement begins with

    UPDATE runs_agentrun … WHERE id AND version AND fence_token

and every other row is inserted or updated *from* that row: where it is not found
(another worker holds a larger token), nothing at all is written and `LeaseLost`
is raised.

Guarantees: a change is written whole, once, under the token it was planned
under. After a broken connection the row itself is asked whether the commit
arrived, before anything is concluded.

Lock order everywhere: run, then step, then operation. SQL and not the ORM,
because this is the hot path: the ORM's own work costs more than the commit.
"""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final, cast
from uuid import UUID

import psycopg
from django.db import connection

from runs import events
from runs.errors import InsideTransaction, LeaseLost
from runs.models import ToolObservation, ToolOperation

# Waits between tries after a broken connection, in seconds: a restart of the server
# fits in, and the whole stays well below a lease, after which somebody else tries.
RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Edge:
    """One journal row: an edge of the run, or of one of its operations."""

    event: str
    from_state: str
    to_state: str
    reason: str
    step_number: int
    attempt: int
    operation_id: str | None = None


@dataclass(frozen=True)
class NewDecision:
    kind: str
    body: dict[str, Any]
    decider: str
    agent_version: str
    tool_versions: dict[str, str]


@dataclass(frozen=True)
class Release:
    """Give the lease back. A worker is due again after `wake_in` seconds, or never (None).

    Where the run could be cancelled as it stands (`can_cancel`), a request that came in
    meanwhile makes it due at once: the requester found it held and relies on that.
    """

    wake_in: float | None
    can_cancel: bool


@dataclass
class Change:
    """What happened since the last commit, not yet written."""

    edges: list[Edge] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    open_step: int | None = None
    open_attempt: int | None = None
    close_attempt: str = ""
    close_step: bool = False
    decision: NewDecision | None = None
    checkpoint: dict[str, Any] | None = None
    new_operations: list[ToolOperation] = field(default_factory=list)
    moved_operations: list[ToolOperation] = field(default_factory=list)
    observations: list[ToolObservation] = field(default_factory=list)
    lease_seconds: float | None = None
    release: Release | None = None

    def __bool__(self) -> bool:
        return self != Change()

    def touch(self, operation: ToolOperation) -> None:
        """Write this operation's row as it will stand when the change is committed."""
        known = (*self.new_operations, *self.moved_operations)
        if not any(operation is one for one in known):
            self.moved_operations.append(operation)


@dataclass(frozen=True)
class Held:
    """What the statement is guarded by, and who writes."""

    run_id: UUID
    version: int
    fence_token: int
    actor: str
    step_id: int | None
    attempt_id: int | None


@dataclass(frozen=True)
class Written:
    """What the database answered: the new version, and what it knows that we may not."""

    version: int
    lease_left: float
    cancel_requested_by: str | None
    step_id: int | None
    attempt_id: int | None


def commit_if_held(held: Held, change: Change) -> Written:
    """Write `change` in one statement; raises `LeaseLost` when the token is not current."""
    events.emit(events.Name.COMMIT_STARTING, run_id=held.run_id, fence_token=held.fence_token)
    require_no_transaction()
    sql, values = _statement(held, change)
    broken = False
    for delay in (*RECONNECT_DELAYS, None):
        try:
            written = _execute(sql, values)
            if written is None and broken:
                # An earlier try may have arrived although its answer did not. Nobody
                # else writes under our token, so the next version can only be ours.
                written = _read_back(held)
            break
        except (psycopg.OperationalError, psycopg.InterfaceError):
            connection.close()
            broken = True
            if delay is None:
                raise
            time.sleep(delay)
    if written is None:
        raise LeaseLost(run_id=str(held.run_id), fence_token=held.fence_token)
    events.emit(events.Name.COMMIT_DONE, run_id=held.run_id, fence_token=held.fence_token)
    return written


def require_no_transaction() -> None:
    """Raise InsideTransaction where a commit would not be one yet."""
    if connection.in_atomic_block:
        raise InsideTransaction()


def _execute(sql: str, values: dict[str, Any]) -> Written | None:
    connection.ensure_connection()
    raw = cast("psycopg.Connection[Any]", connection.connection)
    text, names = _numbered(sql)
    with psycopg.RawCursor(raw) as cursor:
        cursor.execute(text, [values[name] for name in names], prepare=True)
        row = cursor.fetchone()
    return None if row is None else Written(*row)


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, list[str]]:
    """The statement with $1, $2 … and the names behind them.

    Once per shape: psycopg keeps the parsed form of short statements only.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAMED.sub(number, sql).encode(), names


_NAMED: Final = re.compile(r"%\((\w+)\)s")


def _read_back(held: Held) -> Written | None:
    """The written change as the rows show it; None when it is not there."""
    with connection.cursor() as cursor:
        cursor.execute(_READ_BACK, [str(held.run_id), held.fence_token])
        row = cursor.fetchone()
    if row is None or row[0] != held.version + 1:
        return None
    return Written(*row)


_READ_BACK = """
    SELECT run.version,
           COALESCE(EXTRACT(EPOCH FROM run.lease_expires_at - clock_timestamp()), 0)::float8,
           CASE WHEN run.cancel_requested_at IS NOT NULL THEN run.cancel_requested_by END,
           step.id, attempt.id
    FROM runs_agentrun run
    LEFT JOIN runs_step step ON step.run_id = run.id AND step.closed_at IS NULL
    LEFT JOIN runs_stepattempt attempt ON attempt.step_id = step.id AND attempt.ended_at IS NULL
    WHERE run.id = %s AND run.fence_token = %s
"""


# -- The statement ------------------------------------------------------------------
# Each part is one WITH query that reads from `held`. The text depends only on which
# parts a change has, so the server plans each of the few shapes once per connection.


def _statement(held: Held, change: Change) -> tuple[str, dict[str, Any]]:
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
    parts = [_run_part(change, values)]
    if change.close_attempt:
        values["attempt_outcome"] = change.close_attempt
        parts.append(_CLOSE_ATTEMPT)
    if change.close_step:
        parts.append(_CLOSE_STEP)
    if change.checkpoint is not None:
        values["checkpoint"] = _json(change.checkpoint)
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
    if change.decision is not None:
        _add_decision(change.decision, parts, values)
    for n, operation in enumerate(change.new_operations):
        _add_operation(n, operation, parts, values)
    for n, operation in enumerate(change.moved_operations):
        _add_move(n, operation, parts, values)
    for n, observation in enumerate(change.observations):
        _add_observation(n, observation, parts, values)
    if change.edges:
        _add_edges(change.edges, parts, values)
    answer = f"""
        SELECT version,
               COALESCE(EXTRACT(EPOCH FROM lease_expires_at - clock_timestamp()), 0)::float8,
               CASE WHEN cancel_requested_at IS NOT NULL THEN cancel_requested_by END,
               {step_from}, {attempt_from}
        FROM held"""
    return f"WITH {', '.join(parts)} {answer}", values


def _run_part(change: Change, values: dict[str, Any]) -> str:
    sets = ["version = version + 1", "updated_at = statement_timestamp()"]
    for name, value in change.run.items():
        values[f"run_{name}"] = _json(value) if name == "result" else value
        sets.append(f"{name} = %(run_{name})s::{_RUN_TYPES[name]}")
    match change.release:
        case Release(wake_in=wake_in, can_cancel=can_cancel):
            due = "NULL"
            if wake_in is not None:
                values["wake_in"] = wake_in
                due = "statement_timestamp() + make_interval(secs => %(wake_in)s::float8)"
            if can_cancel:
                due = f"""CASE WHEN cancel_requested_at IS NULL THEN {due}
                               ELSE statement_timestamp() END"""
            sets += ["lease_owner = ''", "lease_expires_at = NULL"]
            sets += [f"wake_at = {due}", f"sweep_at = {due}"]
        case None if change.lease_seconds is not None:
            # Only ever longer; unchanged most of the time, which keeps the update heap-only.
            values["lease_seconds"] = change.lease_seconds
            until = "statement_timestamp() + make_interval(secs => %(lease_seconds)s::float8)"
            sets += [
                f"lease_expires_at = GREATEST(lease_expires_at, {until})",
                f"sweep_at = GREATEST(sweep_at, {until})",
            ]
        case None:
            pass
    return f"""held AS (
        UPDATE runs_agentrun SET {", ".join(sets)}
        WHERE id = %(run)s::uuid AND version = %(version)s::bigint
          AND fence_token = %(fence)s::bigint
        RETURNING id, version, fence_token, lease_expires_at,
                  cancel_requested_at, cancel_requested_by)"""


_RUN_TYPES: Final = {
    "state": "text",
    "step_number": "int",
    "failures": "int",
    "result": "jsonb",
    "error": "text",
    "finished_at": "timestamptz",
}

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

_OPEN_ATTEMPT = """attempted AS (
    INSERT INTO runs_stepattempt (step_id, number, fence_token, worker, outcome)
    SELECT opened.id, %(attempt_number)s::int, held.fence_token, %(actor)s::text, ''
    FROM held, opened RETURNING id)"""

_LOSE_ATTEMPT = """lost AS (
    UPDATE runs_stepattempt SET ended_at = statement_timestamp(), outcome = 'lost'
    FROM held WHERE step_id = %(step)s::bigint AND ended_at IS NULL RETURNING 1)"""

# Counting `lost` makes the old attempt close first.
_REOPEN_ATTEMPT = """attempted AS (
    INSERT INTO runs_stepattempt (step_id, number, fence_token, worker, outcome)
    SELECT %(step)s::bigint, %(attempt_number)s::int, held.fence_token, %(actor)s::text, ''
    FROM held, (SELECT count(*) FROM lost) AS closed RETURNING id)"""


def _add_decision(decision: NewDecision, parts: list[str], values: dict[str, Any]) -> None:
    values |= {
        "decision_kind": decision.kind,
        "decision_body": _json(decision.body),
        "decider": decision.decider,
        "agent_version": decision.agent_version,
        "tool_versions": _json(decision.tool_versions),
    }
    parts.append("""decided AS (
        INSERT INTO runs_modeldecision
            (step_id, run_id, fence_token, kind, body, decider, agent_version, tool_versions)
        SELECT %(step)s::bigint, held.id, held.fence_token, %(decision_kind)s::text,
               %(decision_body)s::jsonb, %(decider)s::text, %(agent_version)s::text,
               %(tool_versions)s::jsonb
        FROM held)""")


# What an operation is: written once, then kept by a trigger.
_IDENTITY: Final = {
    "id": "text",
    "step_id": "bigint",
    "step_number": "int",
    "ordinal": "int",
    "tool": "text",
    "tool_version": "text",
    "effect_type": "text",
    "provider": "text",
    "account": "text",
    "arguments": "jsonb",
    "arguments_digest": "text",
    "sensitive": "jsonb",
    "intent": "text",
    "idempotency_key": "text",
    "policy_outcome": "text",
    "policy_rule": "text",
    "policy_version": "text",
}
# How it stands.
_STANDING: Final = {
    "status": "text",
    "key_expires_at": "timestamptz",
    "fence_token": "bigint",
    "attempts": "int",
    "look_ups": "int",
    "first_sent_at": "timestamptz",
    "last_sent_at": "timestamptz",
    "in_flight_until": "timestamptz",
    "unknown_since": "timestamptz",
    "next_reconcile_at": "timestamptz",
    "external_ref": "text",
    "result": "jsonb",
    "error": "text",
    "settled_at": "timestamptz",
}
_WHOLE: Final = {**_IDENTITY, **_STANDING}
_JSON_COLUMNS: Final = frozenset({"arguments", "result", "sensitive"})


def _add_operation(
    n: int, operation: ToolOperation, parts: list[str], values: dict[str, Any]
) -> None:
    _bind(f"new{n}", operation, _WHOLE, values)
    parts.append(_new_operation_part(n))


@cache
def _new_operation_part(n: int) -> str:
    fields = ", ".join(f"%(new{n}_{name})s::{kind}" for name, kind in _WHOLE.items())
    return f"""new{n} AS (
        INSERT INTO runs_tooloperation (run_id, run_version, {", ".join(_WHOLE)})
        SELECT held.id, held.version, {fields} FROM held)"""


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
          AND runs_tooloperation.run_id = held.id)"""


def _bind(
    prefix: str, operation: ToolOperation, names: Iterable[str], values: dict[str, Any]
) -> None:
    for name in names:
        value = getattr(operation, name)
        values[f"{prefix}_{name}"] = _json(value) if name in _JSON_COLUMNS else value


def _add_observation(
    n: int, observation: ToolObservation, parts: list[str], values: dict[str, Any]
) -> None:
    for name in ("source", "verdict", "stage", "detail", "external_ref", "attempt", "fence_token"):
        values[f"seen{n}_{name}"] = getattr(observation, name)
    values[f"seen{n}_operation"] = observation.operation_id
    values[f"seen{n}_result"] = _json(observation.result)
    parts.append(f"""seen{n} AS (
        INSERT INTO runs_toolobservation
            (operation_id, run_id, source, verdict, stage, detail, external_ref, attempt,
             fence_token, result)
        SELECT %(seen{n}_operation)s::text, held.id, %(seen{n}_source)s::text,
               %(seen{n}_verdict)s::text, %(seen{n}_stage)s::text, %(seen{n}_detail)s::text,
               %(seen{n}_external_ref)s::text, %(seen{n}_attempt)s::int,
               %(seen{n}_fence_token)s::bigint, %(seen{n}_result)s::jsonb
        FROM held)""")


def _add_edges(edges: list[Edge], parts: list[str], values: dict[str, Any]) -> None:
    # One JSON value, whatever the number of edges: an array per column costs more to encode.
    values["edges"] = json.dumps(
        [
            [edge.operation_id, edge.event, edge.from_state, edge.to_state, edge.reason,
             edge.step_number, edge.attempt]
            for edge in edges
        ]
    )  # fmt: skip
    parts.append("""journal AS (
        INSERT INTO runs_transition
            (run_id, version, operation_id, event, from_state, to_state, reason, actor,
             fence_token, step_number, attempt)
        SELECT held.id, held.version, edge->>0, edge->>1, edge->>2, edge->>3, edge->>4,
               %(actor)s::text, held.fence_token, (edge->>5)::int, (edge->>6)::int
        FROM held, json_array_elements(%(edges)s::json) WITH ORDINALITY AS listed (edge, place)
        ORDER BY place)""")


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))
