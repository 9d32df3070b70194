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

import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from django.db import (
    DEFAULT_DB_ALIAS,
    InterfaceError,
    OperationalError,
    connection,
    connections,
)

from runs import events
from runs.change import Change
from runs.errors import InsideTransaction, IntentTaken, LeaseLost, SignatureGone
from runs.prepared import fetch_one
from runs.statement import POLICY_GENERATION, Held, build_statement

INTENT_CONSTRAINT: Final = "operation_unique_intent"
# Waits between tries after a broken connection, in seconds: a restart of the server
# fits in, and the whole stays well below a lease, after which somebody else tries.
RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Written:
    """What the database answered: the new version, and what it knows that we may not."""

    version: int
    lease_left: float
    cancel_requested_by: str | None
    cancel_compensates: bool
    is_paused: bool
    step_id: int | None
    attempt_id: int | None
    policy_generation: int


def commit_if_held(held: Held, change: Change) -> Written:
    """Write `change` in one statement.

    Raises `LeaseLost` when the token is not current, `IntentTaken` when a new operation's
    intent is held by another, `SignatureGone` when a signature cannot be spent any more; nothing
    is written then.
    """
    events.emit(events.Name.COMMIT_STARTING, run_id=held.run_id, fence_token=held.fence_token)
    require_no_transaction()
    sql, values = build_statement(held, change)
    broken = False
    for delay in (*RECONNECT_DELAYS, None):
        try:
            written = _execute(sql, values)
            if written is None and broken:
                # An earlier try may have arrived although its answer did not. Nobody
                # else writes under our token, so the next version can only be ours.
                written = _read_back(held)
            break
        except BROKEN:
            connection.close()
            broken = True
            if delay is None:
                raise
            time.sleep(delay)
    if written is None:
        if change.spent_approvals and _is_still_held(held):
            raise SignatureGone(run_id=str(held.run_id))
        raise LeaseLost(run_id=str(held.run_id), fence_token=held.fence_token)
    events.emit(events.Name.COMMIT_DONE, run_id=held.run_id, fence_token=held.fence_token)
    return written


def write_if_held(held: Held, change: Change) -> Written:
    """The same inside the caller's transaction, whose end decides.

    Raises `LeaseLost` or `SignatureGone`.
    """
    events.emit(events.Name.COMMIT_STARTING, run_id=held.run_id, fence_token=held.fence_token)
    written = _execute(*build_statement(held, change))
    if written is None:
        if change.spent_approvals and _is_still_held(held):
            raise SignatureGone(run_id=str(held.run_id))
        raise LeaseLost(run_id=str(held.run_id), fence_token=held.fence_token)
    return written


def read_back(held: Held) -> Written | None:
    """What the commit under `held` wrote, if it arrived; for a caller that lost its answer."""
    for delay in (*RECONNECT_DELAYS, None):
        try:
            return _read_back(held)
        except BROKEN:
            connection.close()
            if delay is None:
                raise
            time.sleep(delay)
    return None


def require_no_transaction() -> None:
    """Raise InsideTransaction where a commit would not be one yet."""
    # The wrapper itself: each attribute of Django's `connection` is looked up by thread anew.
    ours = connections[DEFAULT_DB_ALIAS]
    raw = ours.connection
    begun = raw is not None and (
        not ours.autocommit or raw.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
    )
    if ours.in_atomic_block or begun:
        raise InsideTransaction()


# psycopg's own, and Django's names for them while it connects.
BROKEN: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    OperationalError,
    InterfaceError,
)


def _execute(sql: str, values: dict[str, Any]) -> Written | None:
    try:
        row = fetch_one(sql, values)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != INTENT_CONSTRAINT:
            raise
        raise IntentTaken(run_id=str(values["run"])) from error
    return None if row is None else Written(*row)


def _is_still_held(held: Held) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM runs_agentrun WHERE id = %s AND version = %s AND fence_token = %s",
            [held.run_id, held.version, held.fence_token],
        )
        return cursor.fetchone() is not None


def _read_back(held: Held) -> Written | None:
    """The written change as the rows show it; None when it is not there."""
    with connection.cursor() as cursor:
        cursor.execute(_READ_BACK, [str(held.run_id), held.fence_token])
        row = cursor.fetchone()
    if row is None or row[0] != held.version + 1:
        return None
    return Written(*row)


_READ_BACK = f"""
    SELECT run.version,
           COALESCE(EXTRACT(EPOCH FROM run.lease_expires_at - clock_timestamp()), 0)::float8,
           CASE WHEN run.cancel_requested_at IS NOT NULL THEN run.cancel_requested_by END,
           run.cancel_compensates, run.paused_at IS NOT NULL, step.id, attempt.id,
           {POLICY_GENERATION}
    FROM runs_agentrun run
    LEFT JOIN runs_step step ON step.run_id = run.id AND step.closed_at IS NULL
    LEFT JOIN runs_stepattempt attempt ON attempt.step_id = step.id AND attempt.ended_at IS NULL
    WHERE run.id = %s AND run.fence_token = %s
"""
