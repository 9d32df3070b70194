"""Watching closed operations for effects that come late.

"Not found" is not proof. An operation that was closed as rejected after its outcome had
been unknown, or sent again, is looked up for a day (or as long as its provider keeps the
key), less and less often. An effect that should not be there is an incident.

Guarantees: a look-up is made outside any transaction and any lease, written down whatever
it says, and moves no state; two watchers of one operation ask once.

Does not stop at the first hit, for there may be another, and does not undo anything.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction

from runs.calls import build_look_up_call
from runs.evidence import observe_look_up
from runs.late import note_late_effect
from runs.models import ToolObservation, ToolOperation
from runs.operations import other_account
from tools.errors import UnknownTool
from tools.execution import look_up
from tools.registry import get_tool

Verdict = ToolObservation.Verdict
BATCH: Final = 100
# The next look-up comes when the operation has been closed half as long again.
GROWTH: Final = 0.5
SHORTEST: Final = timedelta(minutes=1)
# Told to one watcher for this long, which is less than the shortest wait: so a message that
# comes again, during the look-up or after it, finds nothing to do.
HELD_SECONDS: Final = 45.0
# A watcher that dies while it asks is followed by another after this time.
ASKING_SECONDS: Final = 600.0

_FIND_DUE: Final = """
    UPDATE runs_tooloperation
    SET next_watch_at = statement_timestamp() + make_interval(secs => %s)
    WHERE id = ANY (ARRAY(
        SELECT id FROM runs_tooloperation
        WHERE next_watch_at <= statement_timestamp() AND settled_at IS NOT NULL
        ORDER BY next_watch_at LIMIT %s
        FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING id
"""
_CLAIM: Final = """
    UPDATE runs_tooloperation
    SET next_watch_at = statement_timestamp() + make_interval(secs => %s)
    WHERE id = %s AND settled_at IS NOT NULL
      AND next_watch_at <= statement_timestamp() + make_interval(secs => %s)
    RETURNING statement_timestamp()
"""


def find_due() -> list[str]:
    """Operations that are due to be looked at, each told to one caller for a while."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_FIND_DUE, [HELD_SECONDS, BATCH])
        return [operation_id for (operation_id,) in cursor.fetchall()]


def watch(operation_id: str) -> ToolObservation | None:
    """Ask once about a closed operation; None when it is not watched (any more)."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, [ASKING_SECONDS, operation_id, HELD_SECONDS])
        claimed = cursor.fetchone()
    if claimed is None:
        return None
    now: datetime = claimed[0]
    operation = ToolOperation.objects.get(id=operation_id)
    observation = _ask(operation, now=now)
    _date_next(operation, now=now)
    return observation


def _ask(operation: ToolOperation, *, now: datetime) -> ToolObservation | None:
    try:
        spec = get_tool(operation.tool)
    except UnknownTool:
        return None
    # What earlier workers brought since it was closed can be read without asking anybody.
    for seen in operation.observations.filter(verdict=Verdict.COMMITTED).order_by("id"):
        note_late_effect(seen)
    if spec.reconcile_handler is None or other_account(operation, spec):
        return None
    call = build_look_up_call(
        operation,
        fence_token=operation.fence_token,
        now=now,
        seconds=spec.timeout_policy.seconds,
    )
    found = look_up(spec=spec, call=call)
    observation = observe_look_up(operation, found, asked_at=now, fence_token=operation.fence_token)
    observation.save(force_insert=True)
    note_late_effect(observation)
    return observation


def _date_next(operation: ToolOperation, *, now: datetime) -> None:
    """Plan the next look-up, if the watch is not over."""
    closed_for = now - (operation.settled_at or now)
    due = now + max(SHORTEST, closed_for * GROWTH)
    is_over = operation.watch_until is None or now >= operation.watch_until
    if not is_over and operation.watch_until is not None:
        # The last one is made at the very end.
        due = min(due, operation.watch_until)
    ToolOperation.objects.filter(id=operation.id, next_watch_at__isnull=False).update(
        next_watch_at=None if is_over else due
    )
