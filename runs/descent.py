"""What a run and the runs that it started have done that is not corrected yet.

Guarantees: one query, however deep the runs go; what a compensation or a person has corrected
is not counted, and neither is a read or a repeat.
"""

from typing import Final

from django.db import connection

# In SQL, because a run's descendants are found by recursion.
_HAS_EFFECTS: Final = """
    WITH RECURSIVE family AS (
        SELECT id FROM runs_agentrun WHERE id = %(run)s::uuid
        UNION
        SELECT child.id FROM runs_agentrun child JOIN family ON child.parent_id = family.id
    )
    SELECT EXISTS (
        SELECT 1
        FROM family JOIN runs_tooloperation effect ON effect.run_id = family.id
        WHERE effect.compensates_id IS NULL
          AND effect.tool_version <> 'built-in'
          AND (effect.status = 'COMMITTED' AND effect.effect_type <> 'READ'
               AND effect.policy_outcome <> 'replay'
               OR effect.status IN ('REJECTED', 'CANCELLED') AND EXISTS (
                   SELECT 1 FROM runs_incident late
                   WHERE late.operation_id = effect.id AND late.kind = 'LATE_COMMIT'))
          AND NOT EXISTS (
              SELECT 1 FROM runs_tooloperation correction
              WHERE correction.compensates_id = effect.id
                AND (correction.status = 'COMMITTED' OR EXISTS (
                    SELECT 1 FROM runs_incident late
                    WHERE late.operation_id = correction.id AND late.kind = 'LATE_COMMIT')))
          AND NOT EXISTS (
              SELECT 1 FROM runs_toolobservation word
              WHERE word.operation_id = effect.id AND word.verdict = 'corrected'))
"""


def has_effects(run_id: str) -> bool:
    """Whether the run, or a run below it, has an effect that is not corrected."""
    with connection.cursor() as cursor:
        cursor.execute(_HAS_EFFECTS, {"run": run_id})
        (found,) = cursor.fetchone() or (False,)
    return bool(found)


# Of a child that came to nothing for its parent, what it took back is its own affair.
_WAS_TAKEN_BACK: Final = """
    WITH RECURSIVE family AS (
        SELECT child.id
        FROM runs_tooloperation begun
        JOIN runs_agentrun child ON child.parent_operation = begun.id
        WHERE begun.run_id = %(run)s::uuid AND begun.step_number <= %(step)s
          AND begun.status = 'COMMITTED'
        UNION
        SELECT child.id
        FROM family
        JOIN runs_tooloperation begun ON begun.run_id = family.id AND begun.status = 'COMMITTED'
        JOIN runs_agentrun child ON child.parent_operation = begun.id
    ), effect AS (
        SELECT id FROM runs_tooloperation WHERE run_id = %(run)s::uuid AND step_number <= %(step)s
        UNION ALL
        SELECT id FROM runs_tooloperation WHERE run_id IN (SELECT id FROM family)
    )
    SELECT EXISTS (
        SELECT 1 FROM effect
        WHERE EXISTS (
                SELECT 1 FROM runs_tooloperation correction
                WHERE correction.compensates_id = effect.id AND correction.status = 'COMMITTED')
           OR EXISTS (
                SELECT 1 FROM runs_toolobservation word
                WHERE word.operation_id = effect.id AND word.verdict = 'corrected'
                  AND word.source = 'person')
    ) OR EXISTS (
        SELECT 1 FROM runs_agentrun child
        WHERE child.id IN (SELECT id FROM family) AND child.compensating_since IS NOT NULL)
"""
_EVERY_STEP: Final = 2**31 - 1


def was_taken_back(run_id: str, *, up_to_step: int = _EVERY_STEP) -> bool:
    """Whether anything that the run has reached by the end of that step was taken back since: by
    a compensation, by a person, or in a run that it started."""
    with connection.cursor() as cursor:
        cursor.execute(_WAS_TAKEN_BACK, {"run": run_id, "step": up_to_step})
        (found,) = cursor.fetchone() or (False,)
    return bool(found)
