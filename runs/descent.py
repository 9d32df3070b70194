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
          AND effect.tool <> 'delegate'
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
