"""What the database itself refuses, whoever writes.

Guarantees: the state of a run and the status of an operation move only along
edges that the journal records in the same transaction; fencing tokens and
versions only grow; evidence and journal are append-only while their run exists;
what an operation is (tool, arguments, key) never changes after it was recorded.

Does not protect against somebody who owns the tables and drops the triggers.
"""

from typing import Final

import pgtrigger

from runs.state import OPERATION_EDGES, RUN_EDGES, SETTLED_STATUSES, UNDATED_STATES, edge_names


def check_functions() -> str:
    """The SQL functions behind the CHECK constraints, made from the pure table.

    PL/pgSQL, because its plan is kept; an SQL function would be parsed by every statement.
    """
    return f"""
CREATE OR REPLACE FUNCTION runs_is_legal_edge(
    operation text, from_state text, event text, to_state text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF operation IS NULL THEN
        RETURN (from_state || ' ' || event || ' ' || to_state) IN ({_list(edge_names(RUN_EDGES))});
    END IF;
    RETURN (from_state || ' ' || event || ' ' || to_state) IN (
        {_list(edge_names(OPERATION_EDGES))});
END $$;

CREATE OR REPLACE FUNCTION runs_may_be_undated(state text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN state IN ({_list(sorted(UNDATED_STATES))});
END $$;

-- Volatile, so that it sees what was committed while its statement waited for a lock.
CREATE OR REPLACE FUNCTION runs_policy_generation() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS $$
BEGIN
    RETURN (SELECT COALESCE(max(id), 0) FROM tools_toolpolicy);
END $$;

CREATE OR REPLACE FUNCTION runs_operation_is_dated(
    status text, attempts int, fence_token bigint, first_sent_at timestamptz,
    unknown_since timestamptz, settled_at timestamptz
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF (status IN ({_list(sorted(SETTLED_STATUSES))})) <> (settled_at IS NOT NULL) THEN
        RETURN false;
    END IF;
    IF status IN ('RUNNING', 'UNKNOWN')
        AND (attempts < 1 OR fence_token < 1 OR first_sent_at IS NULL) THEN
        RETURN false;
    END IF;
    RETURN status <> 'UNKNOWN' OR unknown_since IS NOT NULL;
END $$;
"""


def _list(texts: list[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


# The journal rows of a write carry its run version, so the rows that must explain
# a new state are found by one index, however long the journal is.
_WALK_THE_JOURNAL = """
    expected := {before};
    FOR edge IN
        SELECT from_state, to_state FROM runs_transition
        WHERE run_id = {run} AND version = {version}
          AND operation_id IS NOT DISTINCT FROM {operation}
        ORDER BY id
    LOOP
        IF edge.from_state <> expected THEN
            RAISE EXCEPTION 'journal of run % version % leaves % where % was expected',
                {run}, {version}, edge.from_state, expected USING ERRCODE = 'check_violation';
        END IF;
        expected := edge.to_state;
    END LOOP;
    IF expected <> {after} THEN
        RAISE EXCEPTION 'run % version %: no journal row explains % to %',
            {run}, {version}, {before}, {after} USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
"""


def _journaled(
    *, name: str, operation: pgtrigger.Operation, column: str, before: str, run: str, mine: str
) -> pgtrigger.Trigger:
    moved = None
    if operation is pgtrigger.Update:
        moved = pgtrigger.Condition(f"OLD.{column} IS DISTINCT FROM NEW.{column}")
    version = "NEW.version" if mine == "NULL" else "NEW.run_version"
    return pgtrigger.Trigger(
        name=name,
        when=pgtrigger.After,
        operation=operation,
        condition=moved,
        timing=pgtrigger.Deferred,
        declare=[("expected", "text"), ("edge", "record")],
        func=_WALK_THE_JOURNAL.format(
            before=before, after=f"NEW.{column}", run=run, version=version, operation=mine
        ),
    )


def _refusal(
    *, name: str, operation: pgtrigger.Operation, condition: str, message: str, about: str
) -> pgtrigger.Trigger:
    """Refuse a write. The condition is the trigger's own, so a legal write calls no function."""
    return pgtrigger.Trigger(
        name=name,
        when=pgtrigger.Before,
        operation=operation,
        condition=pgtrigger.Condition(condition) if condition else None,
        func=f"RAISE EXCEPTION '{message}', {about} USING ERRCODE = 'check_violation';",
    )


OPERATION_IDENTITY: Final = (
    "id",
    "run_id",
    "step_id",
    "step_number",
    "ordinal",
    "revision",
    "tool",
    "tool_version",
    "arguments_version",
    "effect_type",
    "provider",
    "account",
    "arguments",
    "arguments_digest",
    "sensitive",
    "idempotency_key",
)

RUN_TRIGGERS: Final = [
    _journaled(
        name="run_created_with_journal",
        operation=pgtrigger.Insert,
        column="state",
        before="''",
        run="NEW.id",
        mine="NULL",
    ),
    _journaled(
        name="run_moved_with_journal",
        operation=pgtrigger.Update,
        column="state",
        before="OLD.state",
        run="NEW.id",
        mine="NULL",
    ),
    _refusal(
        name="run_only_grows",
        operation=pgtrigger.Update,
        condition="""
            NEW.fence_token < OLD.fence_token OR NEW.version < OLD.version
            OR (NEW.state <> OLD.state AND NEW.version = OLD.version)
        """,
        message="run %: token and version only grow, and a new state needs a larger version",
        about="OLD.id",
    ),
]

OPERATION_TRIGGERS: Final = [
    _journaled(
        name="operation_created_with_journal",
        operation=pgtrigger.Insert,
        column="status",
        before="''",
        run="NEW.run_id",
        mine="NEW.id",
    ),
    _journaled(
        name="operation_moved_with_journal",
        operation=pgtrigger.Update,
        column="status",
        before="OLD.status",
        run="NEW.run_id",
        mine="NEW.id",
    ),
    # Named columns, so that a write which leaves them alone does not even fire it.
    _refusal(
        name="operation_keeps_identity",
        operation=pgtrigger.UpdateOf(*OPERATION_IDENTITY),  # type: ignore[no-untyped-call]
        condition=" OR ".join(
            f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in OPERATION_IDENTITY
        ),
        message="operation %: what it is cannot change",
        about="OLD.id",
    ),
    _refusal(
        name="operation_token_only_grows",
        operation=pgtrigger.UpdateOf("fence_token"),  # type: ignore[no-untyped-call]
        condition="NEW.fence_token < OLD.fence_token",
        message="operation %: its fencing token only grows",
        about="OLD.id",
    ),
    # The last word on invariant 5, whoever writes: nothing that needs a signature leaves
    # without one that was spent on it. Deferred: the approval is spent by the same statement.
    pgtrigger.Trigger(
        name="operation_sent_as_approved",
        when=pgtrigger.After,
        operation=pgtrigger.Insert | pgtrigger.Update,
        condition=pgtrigger.Condition(
            "NEW.policy_outcome = 'require_approval' AND (NEW.status = 'RUNNING' OR"
            " NEW.status = 'COMMITTED' AND NEW.effect_type = 'TRANSACTIONAL')"
        ),
        timing=pgtrigger.Deferred,
        func="""
            -- A transactional call runs and commits in one statement.
            IF NOT EXISTS (
                SELECT 1 FROM runs_approval
                WHERE id = NEW.approval_id AND operation_id = NEW.id
                  AND status = 'approved' AND spent_at IS NOT NULL
            ) THEN
                RAISE EXCEPTION 'operation %: sent without a signature', NEW.id
                    USING ERRCODE = 'check_violation';
            END IF;
            RETURN NULL;
        """,
    ),
]

APPROVAL_IDENTITY: Final = (
    "id",
    "operation_id",
    "run_id",
    "fingerprint",
    "covered",
    "rule",
    "asked_because",
    "policy_version",
    "resource_version",
    "requester",
    "groups",
    "quorum",
    "escalate_to",
    "execute_within",
    "requested_at",
    "approve_by",
)
# An approval that was signed may still lose its force, and never gains it again.
APPROVAL_EDGES: Final = (
    "pending approved",
    "pending denied",
    "pending expired",
    "pending cancelled",
    "pending superseded",
    "approved cancelled",
    "approved superseded",
)

APPROVAL_TRIGGERS: Final = [
    _refusal(
        name="approval_keeps_what_was_signed",
        operation=pgtrigger.UpdateOf(*APPROVAL_IDENTITY),  # type: ignore[no-untyped-call]
        condition=" OR ".join(
            f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in APPROVAL_IDENTITY
        ),
        message="approval %: what was to be signed cannot change",
        about="OLD.id",
    ),
    _refusal(
        name="approval_moves_forward",
        operation=pgtrigger.UpdateOf("status"),  # type: ignore[no-untyped-call]
        condition=f"""
            NEW.status <> OLD.status
            AND (OLD.status || ' ' || NEW.status) NOT IN ({_list(list(APPROVAL_EDGES))})
        """,
        message="approval %: this verdict is not possible any more",
        about="OLD.id",
    ),
    _refusal(
        name="approval_begins_pending",
        operation=pgtrigger.Insert,
        condition="NEW.status <> 'pending'",
        message="approval %: it is asked for before it is given",
        about="NEW.id",
    ),
    pgtrigger.Trigger(
        name="approval_outlives_nothing_but_its_run",
        when=pgtrigger.Before,
        operation=pgtrigger.Delete,
        func="""
            IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN
                RAISE EXCEPTION 'approvals stay while run % exists', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
            RETURN OLD;
        """,
    ),
]


def never_changes(name: str) -> pgtrigger.Trigger:
    """Rows that are never updated."""
    return _refusal(
        name=f"{name}_never_changes",
        operation=pgtrigger.Update,
        condition="",
        message=f"{name} rows are never changed (row %)",
        about="OLD.id",
    )


def append_only(name: str) -> list[pgtrigger.Trigger]:
    """Rows that are never updated, and removed only after their run is (a purge)."""
    return [
        _refusal(
            name=f"{name}_never_changes",
            operation=pgtrigger.Update,
            condition="",
            message=f"{name} rows are append-only (run %)",
            about="OLD.run_id",
        ),
        pgtrigger.Trigger(
            name=f"{name}_outlives_nothing_but_its_run",
            when=pgtrigger.Before,
            operation=pgtrigger.Delete,
            func=f"""
                IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN
                    RAISE EXCEPTION '{name} rows stay while run % exists', OLD.run_id
                        USING ERRCODE = 'check_violation';
                END IF;
                RETURN OLD;
            """,
        ),
    ]
