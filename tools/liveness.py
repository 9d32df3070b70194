"""Tells a call that is still being carried out from one whose process is gone.

A call holds an advisory lock for as long as it is carried out. PostgreSQL frees the lock the
moment the session behind it ends, so a process that died is seen as dead at once, and one
that is slow, or stands still, is never taken for dead.

Cost: one database session per process, beside Django's pool, opened for the first of the
calls that are held at a time and closed after the last; and two round trips for each call.
No transaction is open meanwhile.

Does not survive the loss of that session: after a restart of PostgreSQL, or a broken
network, a living process counts as gone. A host that vanished without a word is noticed
within a minute. A pooler that hands one session to several clients (PgBouncer in
transaction mode) breaks all of it: connect directly, or pool by session.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from django.db import connection

from tools.threads import reset_after_fork

_NAME: Final = "agentops calls in flight"
# Nothing else notices a client whose host has vanished, and nothing may end a session for
# being silent.
_SETTINGS: Final = {
    "tcp_keepalives_idle": "20",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",
}


@contextmanager
def holding(lock: int) -> Iterator[bool]:
    """Hold the lock inside the block; yields False, at once, if somebody else holds it.

    `lock` is a signed 64-bit number. Raises django.db.OperationalError if there is no session
    to be had.
    """
    if not _locks.take(lock):
        yield False
        return
    try:
        yield True
    finally:
        _locks.give_back(lock)


class _Locks:
    """The locks that this process holds, and the one session that holds them."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._held: set[int] = set()
        self._session: psycopg.Connection[Any] | None = None

    def take(self, lock: int) -> bool:
        with self._turn:
            # PostgreSQL would give a lock again to the session that has it.
            if lock in self._held:
                return False
            try:
                taken = self._try(lock)
                if taken:
                    self._held.add(lock)
                return taken
            finally:
                self._close_if_idle()

    def give_back(self, lock: int) -> None:
        with self._turn:
            self._held.discard(lock)
            if self._session is not None:
                # Also where the session is closed next, which the server notices a moment
                # later. One that is gone has given the lock back itself.
                with suppress(psycopg.Error):
                    self._session.execute("SELECT pg_advisory_unlock(%s)", [lock])
            self._close_if_idle()

    def _try(self, lock: int) -> bool:
        with connection.wrap_database_errors:
            if self._session is None:
                self._session = _open()
            try:
                return _try_on(self._session, lock)
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
            # Lost since the last call, and with it what other calls of this process held.
            self._session = _open()
            return _try_on(self._session, lock)

    def _close_if_idle(self) -> None:
        if not self._held and self._session is not None:
            self._session.close()
            self._session = None


def _open() -> psycopg.Connection[Any]:
    given = connection.get_connection_params()
    ours = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    given["options"] = f"{given.get('options', '')} {ours}".strip()
    return psycopg.connect(**given | {"application_name": _NAME, "autocommit": True})


def _try_on(session: psycopg.Connection[Any], lock: int) -> bool:
    found = session.execute("SELECT pg_try_advisory_lock(%s)", [lock]).fetchone()
    return bool(found and found[0])


_locks = _Locks()
_inherited: list[_Locks] = []


def _reset() -> None:
    global _locks
    # Kept, not closed: the session is the parent's.
    _inherited.append(_locks)
    _locks = _Locks()


reset_after_fork(_reset)
