"""How far a run has come, as a short text that changes when its timeline does: for live refresh.

Guarantees: one query through primary keys and indexes of the run, whatever its length. What leaves
no trace in the run's own row or newest step (an answer to an old step, a child's state) is seen a
minute later at the latest, since the minute is part of the mark.
"""

from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import connection

_NEWEST: Final = """
    SELECT run.version, run.fence_token, run.updated_at, run.paused_at,
           (SELECT max(id) FROM runs_llmrequest WHERE run_id = run.id),
           (SELECT max(id) FROM runs_incident WHERE run_id = run.id),
           (SELECT max(seen.id) FROM runs_tooloperation operation
            JOIN runs_toolobservation seen ON seen.operation_id = operation.id
            WHERE operation.run_id = run.id AND operation.step_number = run.step_number)
    FROM runs_agentrun run WHERE run.id = %(run)s
"""


def read_mark(run_id: UUID, *, now: datetime) -> str:
    """The mark of this moment; empty for a run that is not there."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, {"run": run_id})
        row = cursor.fetchone()
    if row is None:
        return ""
    version, token, updated, paused, *newest = row
    dates = (int(at.timestamp() * 1000) if at else 0 for at in (updated, paused))
    minute = int(now.timestamp()) // 60
    return ".".join(str(part or 0) for part in (version, token, *dates, *newest, minute))
