"""A database that cannot be written to, for code that is only to be asked.

Guarantees: whatever is called inside, and whatever threads its coroutines use, cannot change a
row on a connection that it opens: PostgreSQL refuses. What of ours would tell a broker or a
provider writes a row first, so none of it happens either.

Does not keep code from speaking to the network by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_opened: Final[ContextVar[list[BaseDatabaseWrapper] | None]] = ContextVar("opened", default=None)


@contextmanager
def reading_only() -> Iterator[None]:
    """For a thread that has no open connection yet."""
    opened: list[BaseDatabaseWrapper] = []
    token = _opened.set(opened)
    try:
        yield
    finally:
        _opened.reset(token)
        for connection in opened:
            _end(connection)


def _end(connection: BaseDatabaseWrapper) -> None:
    """Close it for good: given back to a pool, it would refuse the writes of others."""
    # Some were opened by the threads of an event loop.
    connection.inc_thread_sharing()
    try:
        if connection.connection is not None:
            connection.connection.close()
        connection.close()
    finally:
        connection.dec_thread_sharing()


def _forbid_writes(*, connection: BaseDatabaseWrapper, **_: Any) -> None:
    if (opened := _opened.get()) is not None:
        opened.append(connection)
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = on")


connection_created.connect(_forbid_writes, dispatch_uid="runs.cases.effects")
