"""What the database itself refuses to do to a signature, whoever writes.

Guarantees: a verdict never changes and is removed only after its run is; the one exception
is a user who is deleted, whose name stays.

Does not protect against somebody who owns the tables and drops the triggers.
"""

from typing import Final

import pgtrigger

_SIGNED: Final = (
    "id",
    "approval_id",
    "run_id",
    "name",
    "verdict",
    "reason",
    "fingerprint",
    "groups",
    "event_id",
    "via",
    "at",
)
_CHANGED: Final = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in _SIGNED)

VERDICT_TRIGGERS: Final = [
    pgtrigger.Trigger(
        name="verdict_never_changes",
        when=pgtrigger.Before,
        operation=pgtrigger.Update,
        condition=pgtrigger.Condition(
            f"{_CHANGED} OR (NEW.user_id IS NOT NULL AND NEW.user_id IS DISTINCT FROM OLD.user_id)"
        ),
        func="""
            RAISE EXCEPTION 'verdict %: what was signed cannot change', OLD.id
                USING ERRCODE = 'check_violation';
        """,
    ),
    pgtrigger.Trigger(
        name="verdict_outlives_nothing_but_its_run",
        when=pgtrigger.Before,
        operation=pgtrigger.Delete,
        func="""
            IF EXISTS (SELECT 1 FROM runs_agentrun WHERE id = OLD.run_id) THEN
                RAISE EXCEPTION 'verdicts stay while run % exists', OLD.run_id
                    USING ERRCODE = 'check_violation';
            END IF;
            RETURN OLD;
        """,
    ),
]
