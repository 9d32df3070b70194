"""Rolling up: what happened is counted by slices of time, so that no page reads a million rows.

Terms. A slice is *final* once its end lies `MARGIN` in the past and no transaction that may have
written into it is open: none that has written began before that end. The others are *open*, and
counted anew by every sweep.

Guarantees: a slice is replaced whole, in one transaction, so whoever reads sees each slice as it
was counted once, and neither a crash nor two sweeps at one time count anything twice. What is
final is never counted again: sums over all time do not shrink, also when runs are purged later,
and folding short slices into longer ones keeps them. After a pause of any length the sweep goes
on where it ended, gets through empty time quickly and through busy time in small steps.

Does not see what leaves no row. A run that is purged within minutes of its end may be missing.
Does not wait for a transaction longer than `LONGEST_WAIT`, for a prepared one, or for that of
another role whose sessions ours may not see: what those commit late may be missing.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import Min
from django.db.models.functions import Now
from psycopg.errors import QueryCanceled

from runs.models import Rollup, Sweep, Transition
from runs.slo.slices import FOLDS, ORIGIN, SLICE, Fold, ceil, floor
from runs.slo.statements import COUNT, FOLD, FORGET, IS_FOLDED, TIMES

SWEEP: Final = "rollups"
# A statement that has written nothing yet, of those that serve people, ends well before.
MARGIN: Final = timedelta(seconds=60)
# A session that hangs must not stop the counters for ever.
LONGEST_WAIT: Final = timedelta(hours=1)
# A sweep counts one slice first, and twice as much at once as long as that is quick.
QUICK_SECONDS: Final = 0.5
LONGEST_STEP: Final = 1024 * SLICE
# More than what serves people may take. What can be cut into less is given up sooner.
MOST_SECONDS: Final = 60
MOST_SECONDS_OF_SEVERAL: Final = 10
# Short slices that are folded at once, so that one statement stays short.
FOLDED_AT_ONCE: Final = 24
_LOCK: Final = 7_301_005


@dataclass(frozen=True)
class Rolled:
    """What a sweep did. `until` is where what is final ends; None: another one is at it."""

    until: datetime | None = None
    rows: int = 0
    folded: int = 0
    is_behind: bool = False


class AlreadyFolded(Exception):
    """A span of time whose slices are parts of longer ones cannot be counted again."""

    def __init__(self, *, since: datetime, until: datetime) -> None:
        self.since, self.until = since, until
        super().__init__(f"What was counted from {since} to {until} is folded already.")


def run_once(*, seconds: float = 5.0) -> Rolled:
    """Count what is not final yet, fold what is old, and stop after so many seconds."""
    deadline = time.monotonic() + seconds
    rows, step, reached = 0, SLICE, None
    while True:
        began = time.monotonic()
        try:
            counted = _roll_up_next(step, after=reached)
        except OperationalError as error:
            if step == SLICE or not isinstance(error.__cause__, QueryCanceled):
                raise
            step = SLICE
            continue
        if counted is None:
            return Rolled(rows=rows)
        rows, reached = rows + counted.rows, counted.reached
        if counted.is_all or (counted.is_behind and time.monotonic() >= deadline):
            folded = _fold_all(until=counted.done, deadline=deadline)
            return Rolled(until=counted.done, rows=rows, folded=folded, is_behind=counted.is_behind)
        is_quick = time.monotonic() - began < QUICK_SECONDS
        step = min(2 * step, LONGEST_STEP) if is_quick else SLICE


def roll_up(*, since: datetime, until: datetime) -> int:
    """Count every slice of [since, until) anew; returns how many rows that made.

    Both are boundaries of slices. Raises AlreadyFolded. Whoever counts what is final counts what
    was purged meanwhile no more.
    """
    assert since == floor(since), "a slice is counted whole"
    assert until == floor(until), "a slice is counted whole"
    span = {"since": since, "until": until}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        _allow(MOST_SECONDS if until - since <= SLICE else MOST_SECONDS_OF_SEVERAL)
        cursor.execute(IS_FOLDED, span)
        if cursor.fetchone()[0]:
            raise AlreadyFolded(since=since, until=until)
        cursor.execute(FORGET, span)
        cursor.execute(COUNT, span)
        return int(cursor.rowcount)


@dataclass(frozen=True)
class _Counted:
    """What one step did: slices are counted until `reached`, and final until `done`."""

    done: datetime
    reached: datetime
    rows: int
    is_behind: bool
    is_all: bool


def _roll_up_next(step: timedelta, *, after: datetime | None) -> _Counted | None:
    """Count the next `step`, of what is not final and, within one sweep, lies `after` the last."""
    with transaction.atomic():
        if not _try_lock():
            return None
        now, final = _read_times()
        done = _read_watermark() or _find_beginning() or final
        since = max(done, after or done)
        end = max(since, ceil(now))
        until = min(since + step, end)
        rows = roll_up(since=since, until=until)
        # What was counted while it was open is counted once more before it is final.
        if since == done:
            done = max(done, min(until, final))
        Sweep.objects.update_or_create(
            name=SWEEP, defaults={"last_run_at": Now(), "found": rows, "done_until": done}
        )
    return _Counted(
        done=done, reached=until, rows=rows, is_behind=until < final, is_all=until >= end
    )


def _fold_all(*, until: datetime, deadline: float) -> int:
    """Let each fold have its turn, also after one that fails; returns how many rows are gone."""
    folded, errors = 0, []
    for fold in FOLDS:
        try:
            folded += _fold(fold, until=until, deadline=deadline)
        except DatabaseError as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("Not all that is old was folded.", errors)
    return folded


def _fold(fold: Fold, *, until: datetime, deadline: float) -> int:
    """Fold what is old enough and final, oldest first; returns how many rows are gone."""
    folded = 0
    short = int(fold.shorter.total_seconds())
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            if not _try_lock():
                return folded
            now, _ = _read_times()
            before = floor(min(until, now - fold.after), fold.longer)
            oldest = Rollup.objects.filter(seconds=short).aggregate(at=Min("starts_at"))["at"]
            if oldest is None or oldest >= before:
                return folded
            some = oldest + FOLDED_AT_ONCE * fold.shorter
            _allow(MOST_SECONDS)
            values = {"short": short, "long": int(fold.longer.total_seconds())}
            cursor.execute(FOLD, values | {"before": min(before, some), "origin": ORIGIN})
            folded += int(cursor.fetchone()[0])
        if time.monotonic() >= deadline:
            return folded


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _allow(seconds: int) -> None:
    """Give this transaction's statements more time and memory; they are too few to compile."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SET LOCAL statement_timeout = '{seconds}s'; SET LOCAL work_mem = '64MB';"
            " SET LOCAL jit = off"
        )


def _read_times() -> tuple[datetime, datetime]:
    """Now, and where what is final ends."""
    with connection.cursor() as cursor:
        cursor.execute(TIMES)
        now, oldest = cursor.fetchone()
    ended = now - MARGIN if oldest is None else min(now - MARGIN, oldest)
    return now, floor(max(ended, now - LONGEST_WAIT))


def _read_watermark() -> datetime | None:
    return Sweep.objects.filter(name=SWEEP).values_list("done_until", flat=True).first()


def _find_beginning() -> datetime | None:
    """The slice of the oldest row of the journal, which comes in the order of time."""
    oldest = Transition.objects.order_by("id").values_list("at", flat=True).first()
    return None if oldest is None else floor(oldest)
