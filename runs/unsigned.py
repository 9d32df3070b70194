"""Finding what left without a signature although its policy asks for one.

The gate spends a signature in the statement that opens a send, and triggers guard the rows; this
looks at what was recorded, from the outside, in case one of them failed or was gone round.

Guarantees: every send of the span, by the journal's time, whose operation's policy asks for a
signature is an incident if none was spent under its token; one per operation. A signature that
another request superseded after it was spent counts. Set-based: one pass over a slice of the
journal.

Cries no wolf: not of a send that provably did not leave, for which its signature was given back;
not of one before a signature was asked for at all, when policy was another; and not of a repeat
under the same key, which is the same use.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection

from runs.judging import NEEDED
from runs.late import open_incident
from runs.models import Incident, ToolOperation

BATCH: Final = 500
# A journal row has the time of its statement, and is seen once its transaction commits.
LATEST_COMMIT: Final = timedelta(hours=1)

_FIND: Final = """
    SELECT operation.id, min(sent.fence_token)
    FROM runs_transition sent
    JOIN runs_tooloperation operation ON operation.id = sent.operation_id
    WHERE sent.at >= %(since)s AND sent.at < %(until)s AND sent.event = 'SEND'
      AND operation.policy_outcome = %(needed)s
      AND NOT EXISTS (
          SELECT 1 FROM runs_approval approval
          WHERE approval.operation_id = operation.id AND approval.spent_under = sent.fence_token)
      AND NOT EXISTS (
          SELECT 1 FROM runs_toolobservation said
          WHERE said.operation_id = operation.id AND said.fence_token = sent.fence_token
            AND said.verdict = 'not_sent')
      AND sent.at >= COALESCE((
          SELECT min(approval.requested_at) FROM runs_approval approval
          WHERE approval.operation_id = operation.id), sent.at)
      AND NOT EXISTS (
          SELECT 1 FROM runs_incident told
          WHERE told.operation_id = operation.id AND told.kind = %(kind)s)
    GROUP BY operation.id ORDER BY min(sent.id) LIMIT %(batch)s
"""


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
    values: dict[str, Any] = {
        "since": since,
        "until": until,
        "needed": NEEDED,
        "kind": Incident.Kind.UNAPPROVED.value,
        "batch": BATCH,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FIND, values)
        return list(cursor.fetchall())
