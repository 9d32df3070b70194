"""What the database itself refuses of policies, whoever writes.

Guarantees: a version of a policy is never changed or removed; versions of a name are
1, 2, 3 without a gap; writers take turns, so ids become visible in their order, and the
largest id that somebody sees has no smaller one behind it that is still to come.

Does not protect against somebody who owns the table and drops the triggers.
"""

from typing import Final

import pgtrigger

# Any number that nothing else in this database locks by.
POLICY_LOCK: Final = 7_054_113_820_551_004

POLICY_TRIGGERS: Final = [
    # Of the statement, because it is fired before the first id is drawn.
    pgtrigger.Trigger(
        name="policy_writers_take_turns",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Insert,
        func=f"PERFORM pg_advisory_xact_lock({POLICY_LOCK}); RETURN NULL;",
    ),
    pgtrigger.Trigger(
        name="policy_versions_have_no_gap",
        when=pgtrigger.Before,
        operation=pgtrigger.Insert,
        declare=[("newest", "int")],
        func="""
            SELECT version INTO newest FROM tools_toolpolicy
            WHERE name = NEW.name ORDER BY version DESC LIMIT 1;
            IF NEW.version <> coalesce(newest, 0) + 1 THEN
                RAISE EXCEPTION 'policy %: version % does not follow %',
                    NEW.name, NEW.version, coalesce(newest, 0) USING ERRCODE = 'unique_violation';
            END IF;
            RETURN NEW;
        """,
    ),
    pgtrigger.Trigger(
        name="policy_versions_stay",
        when=pgtrigger.Before,
        operation=pgtrigger.Update | pgtrigger.Delete,
        func="""
            RAISE EXCEPTION 'policy % version %: versions are append-only; save a new one',
                OLD.name, OLD.version USING ERRCODE = 'check_violation';
        """,
    ),
]
