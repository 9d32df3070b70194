"""The provider's books on disk: what it did, what it answered for a key, what it was asked.

Guarantees: a row is on disk before the call that wrote it returns, so SIGKILL loses nothing that
was answered. An effect and the answer kept for its key are written together or not at all, and a
key has one answer per account until it is told to forget, also when two processes share the file.

Does not: forget by itself, judge a refund, or know which keys are being worked on.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS effects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    refund_id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    order_id TEXT NOT NULL,
    cents INTEGER NOT NULL CHECK (cents > 0),
    operation_id TEXT NOT NULL,
    key TEXT,
    fence_token TEXT,
    committed_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS bookings (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    booking_id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    book TEXT NOT NULL,
    order_id TEXT NOT NULL,
    units INTEGER NOT NULL CHECK (units <> 0),
    operation_id TEXT NOT NULL,
    key TEXT,
    fence_token TEXT,
    committed_at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS effects_by_operation ON effects (operation_id);
CREATE TABLE IF NOT EXISTS answers (
    account TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (account, key)
);
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    query TEXT NOT NULL,
    key TEXT,
    fence_token TEXT,
    seen_at TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'pending',
    status INTEGER,
    fault TEXT
);
CREATE INDEX IF NOT EXISTS requests_by_path ON requests (path, method);
"""
EFFECT = "refund_id, account, order_id, cents, operation_id, key, fence_token, committed_at"
BOOKING = "booking_id, account, book, order_id, units, operation_id, key, fence_token, committed_at"
SEEN = "seq, method, path, query, key, fence_token, seen_at, outcome, status, fault"


class LedgerNotUsable(Exception):
    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"the ledger {path} cannot be used: {why}")


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Money that moved. `cents` is the amount in hundredths; times are UTC, ISO 8601."""

    refund_id: str
    account: str
    order_id: str
    cents: int
    operation_id: str
    key: str | None
    fence_token: str | None
    committed_at: str


@dataclass(frozen=True, kw_only=True)
class Booking:
    """Items, hundredths or parcels that were booked for an order; taken back where negative."""

    booking_id: str
    account: str
    book: str
    order_id: str
    units: int
    operation_id: str
    key: str | None
    fence_token: str | None
    committed_at: str


@dataclass(frozen=True, kw_only=True)
class KeptAnswer:
    """What a key is answered from now on, and the digest of the body it was first used with."""

    account: str
    key: str
    digest: str
    status: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """A request for orders, refunds or bookings.

    `outcome` is `pending`, `answered`, `replayed` or `closed` (no answer was given), `status` the
    HTTP status if there was one, `fault` the kind of fault that it met. What was answered is
    noted before it is sent: it need not have reached anybody.
    """

    seq: int
    method: str
    path: str
    query: str
    key: str | None
    fence_token: str | None
    seen_at: str
    outcome: str
    status: int | None
    fault: str | None


class Ledger:
    """One file, one connection, one writer at a time; safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        """Opens the file at `path`, made if missing. Raises `LedgerNotUsable`."""
        self._turn = threading.Condition()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = FULL")
            self._rows.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise LedgerNotUsable(path, str(error)) from error

    def record(
        self, *, effect: Effect | Booking | None, kept: KeptAnswer | None
    ) -> KeptAnswer | None:
        """Writes both and returns None, or writes nothing and returns the key's earlier answer."""
        with self._transaction() as rows:
            if kept is not None:
                found = rows.execute(
                    "SELECT account, key, digest, status, body FROM answers"
                    " WHERE account = ? AND key = ?",
                    (kept.account, kept.key),
                ).fetchone()
                if found is not None:
                    account, key, digest, status, body = found
                    return KeptAnswer(
                        account=account, key=key, digest=digest, status=status, body=body
                    )
                rows.execute(
                    "INSERT INTO answers (account, key, digest, status, body)"
                    " VALUES (:account, :key, :digest, :status, :body)",
                    vars(kept),
                )
            match effect:
                case Effect():
                    _insert(rows, "effects", EFFECT, effect)
                case Booking():
                    _insert(rows, "bookings", BOOKING, effect)
        return None

    def forget_answers(self) -> int:
        """Drops what was kept for every key; returns how many there were."""
        with self._transaction() as rows:
            return rows.execute("DELETE FROM answers").rowcount

    def effects(self, *, operation_id: str | None = None) -> list[Effect]:
        """Oldest first; all of them, or those of one operation."""
        with self._turn:
            found = self._rows.execute(
                f"SELECT {EFFECT} FROM effects WHERE ?1 IS NULL OR operation_id = ?1 ORDER BY seq",
                (operation_id,),
            ).fetchall()
        names = EFFECT.split(", ")
        return [Effect(**dict(zip(names, row, strict=True))) for row in found]

    def bookings(self, *, operation_id: str | None = None) -> list[Booking]:
        """Oldest first; all of them, or those of one operation."""
        with self._turn:
            found = self._rows.execute(
                f"SELECT {BOOKING} FROM bookings WHERE ?1 IS NULL OR operation_id = ?1"
                " ORDER BY seq",
                (operation_id,),
            ).fetchall()
        names = BOOKING.split(", ")
        return [Booking(**dict(zip(names, row, strict=True))) for row in found]

    def note_request(
        self, *, method: str, path: str, query: str, key: str | None, fence_token: str | None
    ) -> int:
        """Notes that a request has fully arrived; returns its number."""
        with self._transaction() as rows:
            seq = rows.execute(
                "INSERT INTO requests (method, path, query, key, fence_token, seen_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (method, path, query, key, fence_token, utc_now()),
            ).lastrowid
        assert seq is not None
        with self._turn:
            self._turn.notify_all()
        return seq

    def note_answer(self, seq: int, *, outcome: str, status: int | None, fault: str | None) -> None:
        with self._transaction() as rows:
            rows.execute(
                "UPDATE requests SET outcome = ?, status = ?, fault = ? WHERE seq = ?",
                (outcome, status, fault, seq),
            )

    def requests(self) -> list[SeenRequest]:
        """Every request that was noted, in the order of arrival."""
        with self._turn:
            found = self._rows.execute(f"SELECT {SEEN} FROM requests ORDER BY seq").fetchall()
        names = SEEN.split(", ")
        return [SeenRequest(**dict(zip(names, row, strict=True))) for row in found]

    def wait_for_requests(
        self, *, count: int, path: str, method: str | None, seconds: float
    ) -> bool:
        """Whether `count` requests to `path` or below it have arrived, waiting if need be."""
        with self._turn:
            return self._turn.wait_for(
                lambda: self._count_requests(path=path, method=method) >= count, timeout=seconds
            )

    def _count_requests(self, *, path: str, method: str | None) -> int:
        (number,) = self._rows.execute(
            "SELECT count(*) FROM requests"
            " WHERE (path = ?1 OR substr(path, 1, length(?1) + 1) = ?1 || '/')"
            " AND (?2 IS NULL OR method = ?2)",
            (path, method),
        ).fetchone()
        return int(number)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._turn:
            self._rows.execute("BEGIN IMMEDIATE")
            try:
                yield self._rows
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")


def _insert(rows: sqlite3.Connection, table: str, columns: str, effect: Effect | Booking) -> None:
    values = ", ".join(f":{name}" for name in columns.split(", "))
    rows.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})", vars(effect))


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
