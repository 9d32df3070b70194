"""A database that cannot be written to, for code that is only to be asked.

Guarantees: as long as something is asked here, no connection that this process opens can change
a row, whichever thread opens it: PostgreSQL refuses. What of ours would tell a broker or a
provider writes a row first, so none of it happens either.

Does not reach a connection that was open before, and does not keep code from speaking to the
network by itself, or from telling its connection otherwise.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_lock: Final = threading.Lock()
_askers: Final[set[object]] = set()
_opened: Final[list[BaseDatabaseWrapper]] = []


@contextmanager
def reading_only() -> Iterator[None]:
    """Of the whole process, because code that is asked may start threads of its own."""
    asker = object()
    with _lock:
        _askers.add(asker)
    try:
        yield
    finally:
        with _lock:
            _askers.discard(asker)
            ended = [] if _askers else _opened[:]
            del _opened[: len(ended)]
        for connection in ended:
            _end(connection)


def _end(connection: BaseDatabaseWrapper) -> None:
    """Close it for good: given back to a pool, it would refuse the writes of others."""
    # Most were opened by other threads.
    connection.inc_thread_sharing()
    try:
        if connection.connection is not None:
            connection.connection.close()
        connection.close()
    finally:
        connection.dec_thread_sharing()


def _forbid_writes(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    with _lock:
        if not _askers:
            return
        _opened.append(connection)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")


connection_created.connect(_forbid_writes, dispatch_uid="runs.cases.effects")
