"""Fills a database with copies of the stories, by COPY from one connection into another.

Guarantees: copies lie in the order of time, spread over the whole span, so tables and their
indexes are as they would have grown; triggers and foreign keys look away meanwhile, checks and
unique constraints do not. The stories themselves stay, at the end of the span.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.bench.seeded.cloning import SEED_RUN, Table, counted_tables, find_tables
from tests.bench.seeded.stories import OF, SHARES, Told

DAY: Final = timedelta(days=1)
# So many copies are written table by table before the next ones.
AT_ONCE: Final = 20_000

# The stories alone, however large the tables grow; which of them a copy tells; when it began.
_PLAN: Final = """
    DROP SCHEMA IF EXISTS seed CASCADE;
    CREATE SCHEMA seed;
    CREATE TABLE seed.story (slot int, run_id uuid, began timestamptz, PRIMARY KEY (slot, run_id));
"""
# What is copied, which copy it is, and how much later than its story it happens.
_COPIES: Final = """
    WITH copy AS MATERIALIZED (
        SELECT n, at, run_id, at - began AS later
        FROM (SELECT n, timestamptz '{end}' - interval '{span} seconds'
                        + n * (interval '{span} seconds' / {copies}) AS at
              FROM generate_series({first}::bigint, {last}) AS n) AS one
        JOIN seed.story ON slot = (n * {step}) % {of})
    SELECT {select} FROM copy JOIN {source}
"""


def fill(dsn: str, told: Sequence[Told], *, copies: int, span: timedelta, console: Console) -> None:
    """Copy the stories `copies` times, each as often as its share."""
    with (
        psycopg.connect(dsn, autocommit=True) as reader,
        psycopg.connect(dsn, autocommit=True) as writer,
    ):
        for connection in (reader, writer):
            connection.execute("SET statement_timeout = 0")
            # One commit of thousands of rows more or less does not matter here.
            connection.execute("SET synchronous_commit = off")
        writer.execute("SET session_replication_role = replica")
        reader.execute("SET jit = off")
        reader.execute(SEED_RUN)
        tables = find_tables(apart=_plan(reader, told))
        end = datetime.now(UTC)
        with _progress(console, "copying runs") as progress:
            bar = progress.add_task("runs", total=copies)
            for first in range(1, copies + 1, AT_ONCE):
                last = min(first + AT_ONCE - 1, copies)
                for table in tables:
                    query = _query(table, span=span, end=end, first=first, last=last, copies=copies)
                    _copy(reader, writer, table, query)
                progress.update(bar, completed=last)
        for table in tables:
            if table.counted:
                _move_sequence(writer, table.name, table.counted)
        console.print("pages: vacuum and analyze")
        writer.execute("VACUUM (ANALYZE)")


def _plan(reader: psycopg.Connection[Any], told: Sequence[Told]) -> dict[str, int]:
    """Put the stories aside, with which of them each of `OF` copies in a row tells.

    Returns by table how far the numbers of one copy's rows lie from those of the next.
    """
    by_story = {one.story: one for one in told}
    slots = [story for story, share in SHARES.items() for _ in range(share)]
    slots += [told[0].story] * (OF - len(slots))
    reader.execute(_PLAN)
    with reader.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO seed.story SELECT %s, %s, created_at FROM runs_agentrun WHERE id = %s",
            [
                (slot, run, by_story[story].runs[0])
                for slot, story in enumerate(slots)
                for run in by_story[story].runs
            ],
        )
    for table in find_tables(apart={}):
        reader.execute(f"CREATE TABLE seed.{table.name} AS SELECT * FROM {table.name}")
    apart = {}
    for table, column in counted_tables():
        found = reader.execute(f"SELECT max({column}) - min({column}) + 1 FROM {table}").fetchone()
        apart[table] = (found and found[0]) or 1
    return apart


def _query(
    table: Table, *, span: timedelta, end: datetime, first: int, last: int, copies: int
) -> str:
    return _COPIES.format(
        end=end.isoformat(),
        span=span.total_seconds(),
        copies=copies,
        first=first,
        last=last,
        # A prime, so that the stories are mixed and not told one after the other.
        step=911,
        of=OF,
        select=table.select,
        source=table.source,
    )


def _copy(
    reader: psycopg.Connection[Any], writer: psycopg.Connection[Any], table: Table, query: str
) -> None:
    columns = ", ".join(f'"{name}"' for name in table.columns)
    with (
        reader.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as source,
        writer.cursor().copy(f"COPY {table.name} ({columns}) FROM STDIN (FORMAT binary)") as sink,
    ):
        for block in source:
            sink.write(block)


def _move_sequence(writer: psycopg.Connection[Any], table: str, column: str) -> None:
    writer.execute(
        f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
        f" (SELECT COALESCE(max({column}), 1) FROM {table}))"
    )


def roll_up_all(*, span: timedelta, console: Console) -> None:
    """Let the sweep count the whole span, as after a long pause, and fold what is old."""
    from runs.models import Sweep
    from runs.slo.rolling import SWEEP, run_once
    from runs.slo.slices import floor

    end = datetime.now(UTC)
    # The first rows of the journal are the stories', which are the newest.
    begin = floor(end - span - DAY)
    Sweep.objects.update_or_create(name=SWEEP, defaults={"done_until": begin})
    with _progress(console, "rolling up days") as progress:
        bar = progress.add_task("", total=span // DAY)
        while (rolled := run_once(seconds=20.0)).is_behind or rolled.folded:
            assert rolled.until is not None, "nobody else sweeps this database"
            progress.update(bar, completed=span // DAY - (end - rolled.until) // DAY)


def _progress(console: Console, what: str) -> Progress:
    return Progress(
        TextColumn(f"pages: {what}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    )
