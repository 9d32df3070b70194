"""Sweeps: finding the runs, and the closed operations, that somebody should be looking at.

Guarantees: every run whose date has passed is hinted at, oldest first, whether it
is due, its worker died, or its hint was lost; a run is hinted at once per
`HINT_AGAIN_SECONDS`, however many sweeps run; two sweeps at one time do no harm.
The work is bounded by what is due, not by how many runs exist.

Does not advance anything and does not touch what a run is (no version, no token).
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from runs import watch
from runs.models import Sweep
from runs.wake import hint, hint_watch

BATCH: Final = 500
HINT_AGAIN_SECONDS: Final = 10.0
_LOCK: Final = 7_301_001

# A lease that ended moved `sweep_at` with it, so vanished workers are found here too.
_FIND_DUE: Final = """
    UPDATE runs_agentrun
    SET sweep_at = statement_timestamp() + make_interval(secs => %s)
    WHERE id IN (
        SELECT id FROM runs_agentrun
        WHERE sweep_at <= statement_timestamp()
        ORDER BY sweep_at LIMIT %s
        FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id, (
        SELECT operation.id FROM runs_tooloperation operation
        WHERE operation.run_id = runs_agentrun.id
          AND operation.step_number = runs_agentrun.step_number
          AND operation.status IN ('RUNNING', 'UNKNOWN')
        LIMIT 1)
"""


@dataclass(frozen=True)
class Swept:
    found: int
    hinted: int


def run_once() -> Swept:
    """One sweep over due runs. Returns how many were found, and hinted at."""
    due: list[tuple[UUID, str | None]] = []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return Swept(found=0, hinted=0)
        cursor.execute(_FIND_DUE, [HINT_AGAIN_SECONDS, BATCH])
        due = cursor.fetchall()
        Sweep.objects.update_or_create(
            name="due runs", defaults={"last_run_at": Now(), "found": len(due)}
        )
    hinted = 0
    for run_id, operation_id in due:
        if not hint(run_id, operation_id=operation_id):
            # The broker is away: the rest would only wait for it too.
            break
        hinted += 1
    return Swept(found=len(due), hinted=hinted)


def run_watches_once() -> Swept:
    """One sweep over closed operations that are due to be looked up again."""
    due = watch.find_due()
    hinted = sum(1 for operation_id in due if hint_watch(operation_id))
    return Swept(found=len(due), hinted=hinted)
