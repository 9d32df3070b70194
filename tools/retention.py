"""Cleans up what receivers keep: results first, keys much later, idle resources last.

Guarantees: a result goes at the end of its retention and leaves its key behind; a key goes
when it was not seen for as long as its endpoint said; a key in flight or unknown never
goes, because it has no date. Batches of one statement each, over an index, that wait for
nobody; two cleanups at one time do no harm.

Does not tell a key that was forgotten from a new one: its next call is carried out.
"""

from dataclasses import dataclass
from typing import Final

from django.db import connection
from django.db.models.functions import Now

from tools.fencing import FORGET_AFTER
from tools.models import FencedResource, IdempotencyKey

BATCH: Final = 1_000

# The row is judged again once it is locked: a sighting may have moved its date meanwhile.
_DROP_RESULTS: Final = """
    WITH due AS (
        SELECT id FROM tools_idempotencykey
        WHERE keep_until <= statement_timestamp()
        ORDER BY keep_until LIMIT %s
        FOR UPDATE SKIP LOCKED)
    UPDATE tools_idempotencykey AS kept
    SET status = 'EXPIRED', result = NULL, reason = '', keep_until = NULL
    FROM due WHERE kept.id = due.id
"""
_FORGET_KEYS: Final = """
    WITH due AS (
        SELECT id FROM tools_idempotencykey
        WHERE remember_until <= statement_timestamp()
        ORDER BY remember_until LIMIT %s
        FOR UPDATE SKIP LOCKED)
    DELETE FROM tools_idempotencykey AS kept USING due WHERE kept.id = due.id
"""
_FORGET_RESOURCES: Final = """
    WITH due AS (
        SELECT resource FROM tools_fencedresource
        WHERE seen_at <= statement_timestamp() - make_interval(secs => %s)
        ORDER BY seen_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
    DELETE FROM tools_fencedresource AS kept USING due WHERE kept.resource = due.resource
"""


@dataclass(frozen=True)
class Purged:
    """How many rows were, or would be, cleaned; and how many keys stay whatever their age."""

    results_dropped: int
    keys_forgotten: int
    resources_forgotten: int
    keys_open: int


def run(*, batch: int = BATCH) -> Purged:
    """Clean until nothing is due that nobody else holds. Call it outside of a transaction."""
    total = run_once(batch=batch)
    last = total
    while batch in (last.results_dropped, last.keys_forgotten, last.resources_forgotten):
        last = run_once(batch=batch)
        total = Purged(
            results_dropped=total.results_dropped + last.results_dropped,
            keys_forgotten=total.keys_forgotten + last.keys_forgotten,
            resources_forgotten=total.resources_forgotten + last.resources_forgotten,
            keys_open=last.keys_open,
        )
    return total


def run_once(*, batch: int = BATCH) -> Purged:
    """One batch of each kind."""
    return Purged(
        results_dropped=_clean(_DROP_RESULTS, batch),
        keys_forgotten=_clean(_FORGET_KEYS, batch),
        resources_forgotten=_clean(_FORGET_RESOURCES, FORGET_AFTER.total_seconds(), batch),
        keys_open=_open_keys(),
    )


def count_due() -> Purged:
    """What `run` would do now, had it the tables for itself."""
    return Purged(
        results_dropped=IdempotencyKey.objects.filter(keep_until__lte=Now()).count(),
        keys_forgotten=IdempotencyKey.objects.filter(remember_until__lte=Now()).count(),
        resources_forgotten=FencedResource.objects.filter(
            seen_at__lte=Now() - FORGET_AFTER
        ).count(),
        keys_open=_open_keys(),
    )


def _clean(sql: str, *values: float) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def _open_keys() -> int:
    return IdempotencyKey.objects.filter(remember_until__isnull=True).count()
