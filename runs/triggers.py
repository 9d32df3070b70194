"""What the database itself refuses, whoever writes.

Guarantees: the state of a run and the status of an operation move only along
edges that the journal records in the same transaction; fencing tokens and
versions only grow; evidence and journal are append-only while their run exists;
what an operation is (tool, arguments, key) never changes after it was recorded.

Does not protect against somebody who owns the tables and drops the triggers.
"""

from typing import Final

import pgtrigger

# The journal rows of a write carry its run version, so the rows that must explain
# a new state are found by one index, however long the journal is.
_WALK_THE_JOURNAL = """
    expected := {before};
    FOR edge IN
        SELECT from_state, to_state FROM runs_transition
        WHERE run_id = {run} AND version = {version} AND operation_id IS NOT DISTINCT FROM {operation}
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
    pgtrigger.Trigger(
        name="run_only_grows",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        func="""
            IF NEW.fence_token < OLD.fence_token THEN
                RAISE EXCEPTION 'run %: fencing token % would shrink to %',
                    OLD.id, OLD.fence_token, NEW.fence_token USING ERRCODE = 'check_violation';
            END IF;
            IF NEW.version < OLD.version
                OR (NEW.state <> OLD.state AND NEW.version = OLD.version) THEN
                RAISE EXCEPTION 'run %: a new state needs a larger version than %',
                    OLD.id, OLD.version USING ERRCODE = 'check_violation';
            END IF;
            RETURN NEW;
        """,
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
    pgtrigger.Trigger(
        name="operation_keeps_identity",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        func="""
            IF (NEW.id, NEW.run_id, NEW.step_number, NEW.ordinal, NEW.tool, NEW.arguments,
                NEW.arguments_digest, NEW.idempotency_key) IS DISTINCT FROM
               (OLD.id, OLD.run_id, OLD.step_number, OLD.ordinal, OLD.tool, OLD.arguments,
                OLD.arguments_digest, OLD.idempotency_key) THEN
                RAISE EXCEPTION 'operation %: what it is cannot change', OLD.id
                    USING ERRCODE = 'check_violation';
            END IF;
            IF NEW.fence_token < OLD.fence_token THEN
                RAISE EXCEPTION 'operation %: fencing token % would shrink to %',
                    OLD.id, OLD.fence_token, NEW.fence_token USING ERRCODE = 'check_violation';
            END IF;
            RETURN NEW;
        """,
    ),
]


def append_only(name: str) -> list[pgtrigger.Trigger]:
    """Rows that are never updated, and removed only after their run is (a purge)."""
    return [
        pgtrigger.Trigger(
            name=f"{name}_never_changes",
            when=pgtrigger.Before,
            operation=pgtrigger.Update,
            func=f"""
                RAISE EXCEPTION '{name} rows are append-only (run %)', OLD.run_id
                    USING ERRCODE = 'check_violation';
            """,
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
