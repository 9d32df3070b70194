"""A gate of which many threads of many processes come out at once.

The gate is an advisory lock: the test holds it until as many connections as it expects are
seen waiting for it, so nobody is early and nothing is left to luck.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection

from tests.crash.driving import become_a_worker
from tests.processes import of_this_test, wait_until

_GATE = 7_301_999
# Connections to this database that wait for an advisory lock.
WAITING = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""


@contextmanager
def gate(*, expected: int) -> Iterator[None]:
    """Closed inside the block; at its end it opens once `expected` connections stand before it."""
    with psycopg.connect(of_this_test().database_url, autocommit=True) as held:
        held.execute("SELECT pg_advisory_lock(%s)", [_GATE])
        yield

        def all_wait() -> bool:
            found = held.execute(WAITING).fetchone()
            return found is not None and found[0] == expected

        wait_until(all_wait, what=f"{expected} connections stand before the gate")


def go_through_at_once(action: Callable[[], str], *, threads: int, log: str) -> None:
    """In a forked process: do `action` in many threads; each writes a line to `log`."""
    become_a_worker(log)
    # In the log stands what the actions say, and nothing else.
    logging.disable()

    def enter() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '30s'; SET statement_timeout = '30s'")
            cursor.execute("SELECT pg_advisory_lock_shared(%s)", [_GATE])
            cursor.execute("SELECT pg_advisory_unlock_shared(%s)", [_GATE])
            cursor.execute("RESET lock_timeout; RESET statement_timeout")
        # One write: lines of several threads must not run together.
        os.write(1, f"{action()}\n".encode())
        connection.close()

    started = [threading.Thread(target=enter) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
