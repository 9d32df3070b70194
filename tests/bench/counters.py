"""What the server did for one contender, read from its own counters.

Guarantees whole figures: it waits until every connection to the contender's database is
closed, because a connection hands in its counts when it ends. WAL bytes and writing
commits are the whole server's: run the benchmark where nobody else writes.
"""

import time
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

QUIET_SECONDS = 15.0

COUNT_CLIENTS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = %s AND backend_type = 'client backend'
"""
READ_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
READ_WRITES = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
READ_WAL = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
READ_STATEMENTS = """
SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s
"""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Running totals, or their difference.

    `commits` counts read-only transactions too, as PostgreSQL does; `writes` counts the
    transactions that changed something, which are those that wait for the disk.
    `statements` is None where pg_stat_statements is not loaded.
    """

    commits: float
    writes: float
    wal_bytes: float
    statements: float | None

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters(
            commits=self.commits - earlier.commits,
            writes=self.writes - earlier.writes,
            wal_bytes=self.wal_bytes - earlier.wal_bytes,
            statements=None
            if self.statements is None or earlier.statements is None
            else self.statements - earlier.statements,
        )

    def __truediv__(self, steps: int) -> "Counters":
        return Counters(
            commits=self.commits / steps,
            writes=self.writes / steps,
            wal_bytes=self.wal_bytes / steps,
            statements=None if self.statements is None else self.statements / steps,
        )


class CounterReader:
    """Reads the counters of other databases from one of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        with psycopg.connect(url, autocommit=True) as connection:
            try:
                connection.execute("CREATE EXTENSION pg_stat_statements")
                connection.execute(READ_STATEMENTS, [""])
                self._knows_statements = True
            except psycopg.Error:
                # Not installed, not preloaded or not allowed: that column stays empty.
                self._knows_statements = False

    def read(self, url: str) -> Counters:
        """The totals of the database of `url`, once nobody is connected to it."""
        name = str(conninfo_to_dict(url)["dbname"])
        with psycopg.connect(self._url, autocommit=True) as connection:
            _wait_until_unused(connection, name)
            return Counters(
                commits=_number(connection, READ_COMMITS, name),
                writes=_number(connection, READ_WRITES),
                wal_bytes=_number(connection, READ_WAL),
                statements=_number(connection, READ_STATEMENTS, name)
                if self._knows_statements
                else None,
            )


def _wait_until_unused(connection: psycopg.Connection, name: str) -> None:
    deadline = time.monotonic() + QUIET_SECONDS
    while _number(connection, COUNT_CLIENTS, name) and time.monotonic() < deadline:
        time.sleep(0.05)
    if connection.info.server_version < 150000:
        # Up to 14 the counters travel to a collector process in datagrams.
        time.sleep(1.0)


def _number(connection: psycopg.Connection, query: LiteralString, *values: str) -> int:
    row = connection.execute(query, values).fetchone()
    return int(row[0]) if row else 0
