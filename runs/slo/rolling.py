"""Rolling up: what happened is counted by slices of time, so that no page reads a million rows.

Terms. A slice is *final* once its end lies `MARGIN` in the past: by then every transaction that
wrote into it has ended, for no statement lasts longer than 10 s and none idles for 15 s. The
others are *open*, and counted anew by every sweep.

Guarantees: a slice is replaced whole, in one transaction, so whoever reads sees each slice as it
was counted once, and neither a crash nor two sweeps at one time count anything twice. What is
final is never counted again: sums over all time do not shrink, also when runs are purged later,
and folding short slices into longer ones keeps them. After a pause of any length the sweep goes
on where it ended, and gets through empty time quickly.

Does not see what leaves no row. A run that is purged within minutes of its end may be missing.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Min
from django.db.models.functions import Now

from runs.models import Rollup, Sweep, Transition
from runs.slo import counting_evidence, counting_operations, counting_people, counting_runs
from runs.slo.measures import DISTRIBUTIONS
from runs.slo.slices import FOLDS, ORIGIN, SLICE, Fold, ceil, floor

SWEEP: Final = "rollups"
MARGIN: Final = timedelta(seconds=60)
# A sweep counts one slice first, and twice as much at once as long as that is quick.
QUICK_SECONDS: Final = 0.5
LONGEST_STEP: Final = timedelta(days=4)
# Of slices that are folded at once, so that one statement stays short.
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
    rows, step = 0, SLICE
    while True:
        began = time.monotonic()
        rolled = _roll_up_next(step)
        if rolled.until is None:
            return Rolled(rows=rows)
        rows += rolled.rows
        if not rolled.is_behind or time.monotonic() >= deadline:
            folded = sum(_fold(fold, until=rolled.until, deadline=deadline) for fold in FOLDS)
            return Rolled(until=rolled.until, rows=rows, folded=folded, is_behind=rolled.is_behind)
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
        cursor.execute(_SETTINGS)
        cursor.execute(_IS_FOLDED, span)
        if cursor.fetchone()[0]:
            raise AlreadyFolded(since=since, until=until)
        cursor.execute(_FORGET, span)
        rows = 0
        for statement in _STATEMENTS:
            cursor.execute(statement, span)
            rows += int(cursor.rowcount)
    return rows


def _roll_up_next(step: timedelta) -> Rolled:
    """Count the next `step` of what is not final; all that is left, once that is less."""
    with transaction.atomic():
        if not _try_lock():
            return Rolled()
        now = _read_clock()
        final = floor(now - MARGIN)
        since = _read_watermark() or _find_beginning() or final
        is_behind = since + step < final
        until = since + step if is_behind else max(since, ceil(now))
        rows = roll_up(since=since, until=until)
        done = max(since, min(until, final))
        Sweep.objects.update_or_create(
            name=SWEEP, defaults={"last_run_at": Now(), "found": rows, "done_until": done}
        )
    return Rolled(until=done, rows=rows, is_behind=is_behind)


def _fold(fold: Fold, *, until: datetime, deadline: float) -> int:
    """Fold what is old enough and final, oldest first; returns how many rows are gone."""
    folded = 0
    short = int(fold.shorter.total_seconds())
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            if not _try_lock():
                return folded
            before = floor(min(until, _read_clock() - fold.after), fold.longer)
            oldest = Rollup.objects.filter(seconds=short).aggregate(at=Min("starts_at"))["at"]
            if oldest is None or oldest >= before:
                return folded
            some = floor(oldest, fold.longer) + FOLDED_AT_ONCE * fold.longer
            values = {"short": short, "long": int(fold.longer.total_seconds())}
            cursor.execute(_FOLD, values | {"before": min(before, some), "origin": ORIGIN})
            folded += int(cursor.fetchone()[0])
        if time.monotonic() >= deadline:
            return folded


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _read_clock() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def _read_watermark() -> datetime | None:
    return Sweep.objects.filter(name=SWEEP).values_list("done_until", flat=True).first()


def _find_beginning() -> datetime | None:
    """The slice of the oldest row of the journal, which comes in the order of time."""
    oldest = Transition.objects.order_by("id").values_list("at", flat=True).first()
    return None if oldest is None else floor(oldest)


# -- Statements ----------------------------------------------------------------

# More time and memory than what serves people may take; too seldom to be worth compiling.
_SETTINGS: Final = """
    SET LOCAL statement_timeout = '60s'; SET LOCAL work_mem = '64MB'; SET LOCAL jit = off"""


def _array(bounds: tuple[float, ...]) -> str:
    texts = ("Infinity" if bound == float("inf") else f"{bound:g}" for bound in bounds)
    return "'{" + ",".join(texts) + "}'::float8[]"


_BOUNDS: Final = ", ".join(
    f"('{measure}', {_array(bounds)})" for measure, bounds in DISTRIBUTIONS.items()
)


def _count(counted: str) -> str:
    """Put these things into the rows of their slices, each value in its one bucket."""
    return f"""
    INSERT INTO runs_rollup
        (starts_at, seconds, agent, agent_version, tool, measure, le, count, total)
    SELECT starts_at, {SLICE.total_seconds():.0f}, agent, agent_version, tool, measure, le,
           sum(n), sum(total)
    FROM (
        SELECT date_bin('{SLICE.total_seconds():.0f} s', thing.at, '{ORIGIN}') AS starts_at,
               thing.agent, thing.agent_version, thing.tool, thing.measure, thing.n,
               COALESCE(thing.value, 0) AS total,
               COALESCE((SELECT min(bound) FROM unnest(bounds.les) AS bound
                         WHERE bound >= thing.value), 0) AS le
        FROM ({counted}) AS thing
        LEFT JOIN (VALUES {_BOUNDS}) AS bounds (measure, les) USING (measure)
    ) AS placed
    GROUP BY starts_at, agent, agent_version, tool, measure, le"""


_STATEMENTS: Final = tuple(
    _count(source.COUNTED)
    for source in (counting_runs, counting_operations, counting_people, counting_evidence)
)
_FORGET: Final = f"""
    DELETE FROM runs_rollup WHERE seconds = {SLICE.total_seconds():.0f}
      AND starts_at >= %(since)s AND starts_at < %(until)s"""
_IS_FOLDED: Final = "SELECT " + " OR ".join(
    f"""EXISTS (SELECT 1 FROM runs_rollup WHERE seconds = {fold.longer.total_seconds():.0f}
        AND starts_at < %(until)s
        AND starts_at > %(since)s::timestamptz - interval '{fold.longer.total_seconds():.0f} s')"""
    for fold in FOLDS[:-1]
)
_FOLD: Final = """
    WITH gone AS (
        DELETE FROM runs_rollup WHERE seconds = %(short)s AND starts_at < %(before)s
        RETURNING starts_at, agent, agent_version, tool, measure, le, count, total
    ), folded AS (
        INSERT INTO runs_rollup
            (starts_at, seconds, agent, agent_version, tool, measure, le, count, total)
        SELECT date_bin(make_interval(secs => %(long)s), starts_at, %(origin)s), %(long)s, agent,
               agent_version, tool, measure, le, sum(count), sum(total)
        FROM gone GROUP BY 1, agent, agent_version, tool, measure, le
        ON CONFLICT ON CONSTRAINT rollup_once DO UPDATE
            SET count = runs_rollup.count + EXCLUDED.count,
                total = runs_rollup.total + EXCLUDED.total)
    SELECT count(*) FROM gone"""
