"""Finding what left without a signature although its policy asks for one.

The gate spends a signature in the statement that opens a send, and triggers guard the rows; this
looks at what was recorded, from the outside, in case one of them failed or was gone round.

Guarantees: every send of the span, by the journal's time, whose operation's policy asks for a
signature is an incident if none was spent under its token; one per operation. A signature that
another request superseded after it was spent counts. The sweep looks at every moment, from a day
before it first ran. What a look costs grows with the sends of its slice, not with what there is.

Cries no wolf: not of a send that provably did not leave, for which its signature was given back;
not of one before a signature was asked for at all, when policy was another; and not of a repeat
under the same key, which is the same use.

Does not tell such a policy from a gate that failed and asked within the hour for the next send:
what policy said of a send is not kept once it says otherwise.
"""

import time
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from runs.judging import NEEDED
from runs.late import open_incident
from runs.models import Incident, ToolOperation
from runs.watermarks import move_if_there, read_watermark

BATCH: Final = 500
# A journal row has the time of its statement, and is seen once its transaction commits.
LATEST_COMMIT: Final = timedelta(hours=1)

# Of the journal, in one look. The first sweep begins a day ago.
SLICE: Final = timedelta(hours=1)
FIRST: Final = timedelta(days=1)
SWEEP: Final = "unsigned effects"
# After it no look is begun.
SECONDS: Final = 120.0

# Driven by the slice: `OFFSET 0` keeps the planner from joining it to all operations at once.
FIND: Final = """
    WITH sent AS MATERIALIZED (
        SELECT id, operation_id, fence_token, at FROM runs_transition
        WHERE at >= %(since)s AND at < %(until)s AND event = 'SEND'
    )
    SELECT sent.operation_id, min(sent.fence_token)
    FROM sent CROSS JOIN LATERAL (
        SELECT FROM runs_tooloperation operation
        WHERE operation.id = sent.operation_id AND operation.policy_outcome = %(needed)s
          AND NOT EXISTS (
              SELECT FROM runs_approval approval
              WHERE approval.operation_id = operation.id
                AND approval.spent_under = sent.fence_token)
          AND NOT EXISTS (
              SELECT FROM runs_toolobservation said
              WHERE said.operation_id = operation.id AND said.fence_token = sent.fence_token
                AND said.verdict = 'not_sent')
          AND sent.at >= COALESCE((
              SELECT min(approval.requested_at) FROM runs_approval approval
              WHERE approval.operation_id = operation.id), sent.at)
          AND NOT EXISTS (
              SELECT FROM runs_incident told
              WHERE told.operation_id = operation.id AND told.kind = %(kind)s)
        OFFSET 0
    ) AS unsigned
    GROUP BY sent.operation_id ORDER BY min(sent.id) LIMIT %(batch)s
"""


def run_once(*, seconds: float = SECONDS) -> int:
    """Look at the sends since the last sweep, as far as the time allows; returns what is new."""
    deadline = time.monotonic() + seconds
    now, since = read_watermark(SWEEP, first=FIRST)
    found = 0
    while since < now:
        end = min(since + SLICE, now)
        found += note_unsigned(since=since, until=end)
        if not move_if_there(SWEEP, since=since, until=end, found=found):
            break
        since = end
        if time.monotonic() >= deadline:
            break
    return found


def note_unsigned(*, since: datetime, until: datetime) -> int:
    """Open an incident for each operation sent unsigned in the span; returns how many are new."""
    opened = 0
    while found := _find(since=since - LATEST_COMMIT, until=until):
        for operation_id, token in found:
            opened += open_incident(
                ToolOperation.objects.only("id", "run_id").get(id=operation_id),
                kind=Incident.Kind.UNAPPROVED,
                external_ref="",
                detail=f"sent under token {token}, and no signature was spent on it",
            )
        if len(found) < BATCH:
            break
    return opened


def _find(*, since: datetime, until: datetime) -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute(FIND, values_of(since=since, until=until))
        return list(cursor.fetchall())


def values_of(*, since: datetime, until: datetime) -> dict[str, Any]:
    """What `FIND` is asked with."""
    return {
        "since": since,
        "until": until,
        "needed": NEEDED,
        "kind": Incident.Kind.UNAPPROVED.value,
        "batch": BATCH,
    }
