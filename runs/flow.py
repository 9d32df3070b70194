"""Flow control: how much may go to one place at one time, over all workers.

Terms. *Limit*: a name ("provider payments/acct_main") and a row. *Slot*: one of the
`concurrency` places of a limit, held by a *holder* (an operation's id). *Wait*: seconds
until it is worth to ask again.

Guarantees: in any period of the length `per`, by the database's clock, no more than
`calls` requests are let go, and never do more than `concurrency` holders have a slot. One
statement asks, judges and takes, under the lock of the limit's row: a worker that waited
for the lock sees what those before it took, which a count over other rows would not show
it. A slot ends by itself, so a crashed worker keeps none; one whose function is not back
is kept, by the heartbeat, in the process that waits for it. Who is told to wait is told a
time of its own. The limits are the caller's, so that those changed in code count at once.

Every request counts: reads, writes, repeats and look-ups, because the provider counts
them. The same holder that asks again keeps its slot and counts anew for the rate.

Does not keep the order of those who wait, and does not wait itself: the run is put off.
What was let go need not leave; it has counted all the same.
"""

import threading
import time
from collections.abc import Iterable
from typing import Any, Final

import psycopg
import structlog
from django.db import connection
from django.db.utils import OperationalError

from runs.commit import require_no_transaction
from runs.models import FlowLimit
from tools.declarations import Limits
from tools.execution import in_flight
from tools.spec import ToolSpec
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

# A period is counted in slices. A request counts until its slice is that old, so a limit is
# used up to one part in so many less, and a row needs no more entries than that.
SLICES: Final = 20
# Nobody is told a time further off: things change. Beyond it, they come spread over its half.
FARTHEST_SECONDS: Final = 120.0
# Of the average time that slots are held, this part is what was learned last.
NEWEST_PART: Final = 0.2


def take_for(spec: ToolSpec, *, holder: str, seconds: float) -> float | None:
    """As `take`, for one request of a tool to its provider. Without limits nothing is asked."""
    limits = spec.provider.limits if spec.provider else None
    if spec.provider is None or limits is None:
        return None
    return take(name=spec.provider.limit_name, limits=limits, holder=holder, seconds=seconds)


def give_back_for(spec: ToolSpec, holders: Iterable[str]) -> None:
    """As `give_back`, for requests of a tool. Without slots nothing is asked."""
    if spec.provider is not None and spec.provider.concurrency is not None:
        give_back(holders)


def take(*, name: str, limits: Limits, holder: str, seconds: float) -> float | None:
    """None when one request may leave now; else the seconds after which to ask again.

    A slot, if the limit has them, is held from now on, for `seconds` at most unless it is
    given back before. To be called outside a transaction, which would keep the row locked.
    """
    require_no_transaction()
    rate, concurrency = limits.rate, limits.concurrency
    values = {
        "name": name,
        "holder": holder,
        "seconds": seconds,
        "concurrency": concurrency,
        "calls": rate.calls if rate else None,
        "per": rate.per.total_seconds() if rate else None,
        "slices": SLICES,
        "farthest": FARTHEST_SECONDS,
    }
    try:
        wait = _ask(values)
    except OperationalError as error:
        if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise
        # So many ask at once that the lock did not come in time.
        return FARTHEST_SECONDS / 4
    if wait is None and concurrency is not None:
        _mine.add(holder, seconds=seconds)
    return wait


def give_back(holders: Iterable[str]) -> None:
    """Free the slots of these holders; where a function is not back yet, once it is.

    Never raises: a slot that could not be given back ends by itself.
    """
    back = _mine.remove(holders, flying=in_flight())
    if not back:
        return
    try:
        _free(back)
    except Exception as error:  # noqa: BLE001  what it came to is recorded, and that counts
        log.warning("slots_not_given_back", holders=len(back), error=type(error).__name__)


def keep_in_flight(*, seconds: float) -> None:
    """Push on the slots of functions that are out in this process, past their deadline or not,
    and give back those of functions that came back after it."""
    flying = in_flight()
    if out := _mine.extend(flying, seconds=seconds):
        with connection.cursor() as cursor:
            cursor.execute(_KEEP, {"holders": out, "seconds": seconds})
    if late := _mine.late():
        give_back(late)


class _Mine:
    """The slots that this process took, so that a process without any asks nothing."""

    def __init__(self) -> None:
        # Until when each is held unless it is pushed on, on the monotonic clock.
        self._ends: dict[str, float] = {}
        # To be given back as soon as their functions are.
        self._late: set[str] = set()
        self._lock = threading.Lock()

    def add(self, holder: str, *, seconds: float) -> None:
        with self._lock:
            self._ends[holder] = time.monotonic() + seconds
            self._late.discard(holder)

    def extend(self, flying: frozenset[str], *, seconds: float) -> list[str]:
        """Those whose function is out, in order; what ended by itself is forgotten."""
        now = time.monotonic()
        with self._lock:
            out = sorted(self._ends.keys() & flying)
            self._ends.update((one, max(self._ends[one], now + seconds)) for one in out)
            self._ends = {one: end for one, end in self._ends.items() if end > now}
        return out

    def remove(self, holders: Iterable[str], *, flying: frozenset[str]) -> list[str]:
        """Those that may be given back now."""
        with self._lock:
            given = set(holders)
            self._late = (self._late - given) | (given & flying & self._ends.keys())
            for holder in given - flying:
                self._ends.pop(holder, None)
        return sorted(given - flying)

    def late(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._late)


_mine: Final = _Mine()
reset_after_fork(_mine.__init__)  # type: ignore[misc]


def _ask(values: dict[str, Any]) -> float | None:
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, values)
        if (row := cursor.fetchone()) is None:
            # The first question ever about this limit.
            FlowLimit.objects.bulk_create([FlowLimit(name=values["name"])], ignore_conflicts=True)
            cursor.execute(_TAKE, values)
            row = cursor.fetchone()
    assert row is not None, "limits are never removed"
    return None if row[0] is None else float(row[0])


# The order is the point: `held` waits for the lock, and reads the row as the holder before it
# left it; `asked` looks at the clock after that. Whatever is read elsewhere would be as old as
# the statement.
_TAKE: Final = """
    WITH held AS (
        SELECT * FROM runs_flowlimit WHERE name = %(name)s FOR NO KEY UPDATE
    ), asked AS MATERIALIZED (
        SELECT *, EXTRACT(EPOCH FROM clock_timestamp())::float8 AS now FROM held
    ), counted AS (
        SELECT asked.name, asked.now, asked.told_until,
               COALESCE(sent.entries, '{}') AS recent, sent.calls, sent.oldest,
               COALESCE(taken.entries, '{}') AS slots,
               asked.hold_seconds / %(concurrency)s::int AS next_slot,
               COALESCE(taken.others, 0) >= %(concurrency)s::int AS is_full
        FROM asked,
             LATERAL (SELECT jsonb_object_agg(key, value) AS entries,
                             COALESCE(sum(value::int), 0) AS calls, min(key::float8) AS oldest
                      FROM jsonb_each(asked.recent)
                      WHERE key::float8 > asked.now - %(per)s::float8) AS sent,
             LATERAL (SELECT jsonb_object_agg(key, value) AS entries,
                             count(*) FILTER (WHERE key <> %(holder)s) AS others
                      FROM jsonb_each(asked.slots)
                      WHERE (value->>1)::float8 > asked.now) AS taken
    ), judged AS MATERIALIZED (
        SELECT *,
               CASE WHEN calls >= %(calls)s::int
                    THEN COALESCE(oldest + %(per)s::float8, now) END AS room_at,
               CASE WHEN is_full THEN now + next_slot END AS slot_at,
               GREATEST(%(per)s::float8 / NULLIF(%(calls)s::int, 0), next_slot) AS apart
        FROM counted
    ), answered AS MATERIALIZED (
        SELECT *, GREATEST(room_at, slot_at, told_until + apart) AS told
        FROM judged
    ), written AS (
        UPDATE runs_flowlimit SET
            recent = CASE
                WHEN %(calls)s::int IS NULL THEN '{}'
                WHEN refused OR slice IS NULL THEN answer.recent
                ELSE answer.recent || jsonb_build_object(
                    slice, COALESCE((answer.recent->>slice)::int, 0) + 1) END,
            slots = CASE
                WHEN refused OR %(concurrency)s::int IS NULL THEN answer.slots
                ELSE answer.slots || jsonb_build_object(%(holder)s::text, jsonb_build_array(
                    now, now + %(seconds)s::float8)) END,
            told_until = CASE
                WHEN refused AND told - now <= %(farthest)s THEN told
                ELSE answer.told_until END
        FROM (
            SELECT *, COALESCE(room_at, slot_at) IS NOT NULL AS refused,
                   (ceil(now / (%(per)s::float8 / %(slices)s)) * (%(per)s::float8 / %(slices)s)
                   )::text AS slice
            FROM answered) AS answer
        WHERE runs_flowlimit.name = answer.name
        RETURNING CASE
            WHEN NOT refused THEN NULL
            WHEN told - now <= %(farthest)s THEN GREATEST(told - now, 0)
            ELSE %(farthest)s * (0.5 + 0.5 * random()) END::float8
    )
    SELECT * FROM written
"""

# A row at a time and in the order of their names: two of these never wait for each other.
_FREE: Final = f"""
    WITH held AS (
        SELECT name FROM runs_flowlimit WHERE slots ?| %(holders)s
        ORDER BY name FOR NO KEY UPDATE
    )
    UPDATE runs_flowlimit SET
        slots = slots - %(holders)s::text[],
        hold_seconds = COALESCE({1 - NEWEST_PART} * hold_seconds + {NEWEST_PART} * (
            SELECT avg(EXTRACT(EPOCH FROM clock_timestamp())::float8 - (value->>0)::float8)
            FROM jsonb_each(slots) WHERE key = ANY (%(holders)s)), hold_seconds)
    FROM held WHERE runs_flowlimit.name = held.name
"""

_KEEP: Final = """
    WITH held AS (
        SELECT name FROM runs_flowlimit WHERE slots ?| %(holders)s
        ORDER BY name FOR NO KEY UPDATE
    )
    UPDATE runs_flowlimit SET slots = (
        SELECT jsonb_object_agg(key, CASE
            WHEN key = ANY (%(holders)s) THEN jsonb_set(value, '{1}', to_jsonb(GREATEST(
                (value->>1)::float8,
                EXTRACT(EPOCH FROM statement_timestamp())::float8 + %(seconds)s::float8)))
            ELSE value END)
        FROM jsonb_each(slots))
    FROM held WHERE runs_flowlimit.name = held.name
"""


def _free(holders: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_FREE, {"holders": holders})
