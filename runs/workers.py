"""The row of this worker process: under which name it works, that it lives, that it ends.

Guarantees: a name belongs to one process, forked children included, and has a row, which names
what it serves (`versions.py`), before its first claim, if the database can be asked. The process
reports its end only when nothing of it is under way and nothing can begin any more. One that was
declared ended by somebody else, and lives, begins nothing and is told to end.

Does not fail a task over its row: the end of a worker that has none is never known, which
leaves what it sent to a person. `worker_ends.py` has the other ways in which an end is known.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

import structlog
from django.db import connection
from django.db.models.functions import Now

from runs import adoption, pinning
from runs.incarnation import start_of, this_place
from runs.lease import lease_seconds
from runs.models import Worker
from runs.versions import register_release
from runs.worker_ends import EndedBy, end, end_gone_neighbours, forget_old
from tools.execution import in_flight
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

LOOKS_PER_LEASE: Final = 3
PATIENCE_SECONDS: Final = 5.0


@contextmanager
def at_work() -> Iterator[str | None]:
    """Work inside the block under the name that it yields: the `owner` of what is claimed.

    Yields None where nothing may be begun any more, because this process has reported its
    end or was declared ended.
    """
    me = _me
    if not me.enter():
        yield None
        return
    try:
        if not me.has_row:
            _try_to_register(me)
        yield me.name
    finally:
        me.leave()


def serve_nothing() -> None:
    """Work under a name that counts for no living worker: for a web process."""
    _me.serves = False


def attend(*, on_declared_ended: Callable[[], None]) -> None:
    """Keep this process's row fresh, and look for ended neighbours, from a thread of its own.

    `on_declared_ended` is called there, once, if somebody says that this process has ended.
    It has to end it.
    """
    me = _me
    if not me.is_attended:
        me.is_attended = True
        threading.Thread(
            target=_attend, args=(me, on_declared_ended), name="worker-row", daemon=True
        ).start()


def report_end() -> bool:
    """Record that this process ends now; False if that was not recorded.

    It is not while something of it is out: a function past its deadline dies with the
    process, but is not dead yet. Then it is left to the supervisor and the neighbours.
    """
    me = _me
    if not me.close_if_idle():
        log.warning("worker_end_not_reported", worker=me.name, in_flight=len(in_flight()))
        return False
    # Whoever writes there may wait for a database that does not answer.
    if not me.writing.acquire(timeout=PATIENCE_SECONDS):
        log.warning("worker_end_not_reported", worker=me.name, error="NoAnswer")
        return False
    try:
        return me.has_row and end(
            me.name, by=EndedBy.REPORTED, evidence="nothing of it was under way"
        )
    except Exception as error:  # noqa: BLE001  it ends all the same, and others will see it
        log.warning("worker_end_not_reported", worker=me.name, error=type(error).__name__)
        return False
    finally:
        me.writing.release()
        connection.close()


class _Me:
    """What this process knows of itself; a forked child starts with its own."""

    def __init__(self) -> None:
        self.place = this_place()
        self.pid = os.getpid()
        self.pid_started = start_of(self.pid) if self.place.is_known else None
        self.name = f"{self.place.host[:60]}:{self.pid}:{uuid4().hex[:6]}"
        self.has_row = False
        # A web process sends what it was asked for, and takes no other run up.
        self.serves = True
        self.is_attended = False
        # Set once nothing may begin here any more.
        self.closed = threading.Event()
        # One writer of the row at a time: it must not be made after its end was reported.
        self.writing = threading.Lock()
        self._at_work = 0
        self._turn = threading.Lock()

    def enter(self) -> bool:
        with self._turn:
            if self.closed.is_set():
                return False
            self._at_work += 1
            return True

    def leave(self) -> None:
        with self._turn:
            self._at_work -= 1

    def close_if_idle(self) -> bool:
        """Let nothing begin any more, unless something is under way."""
        with self._turn:
            if self._at_work or in_flight():
                return False
            self.closed.set()
            return True


def _attend(me: _Me, on_declared_ended: Callable[[], None]) -> None:
    bypass_pool()
    while True:
        try:
            if not _see(me):
                break
            if gone := end_gone_neighbours(me=me.name):
                log.warning("workers_found_gone", workers=gone)
            adoption.make_signatures_due(left=pinning.look_around().left)
        except Exception as error:  # noqa: BLE001  not seen is all that follows from it
            log.warning("worker_not_seen", worker=me.name, error=type(error).__name__)
        finally:
            connection.close()
        if me.closed.wait(lease_seconds() / LOOKS_PER_LEASE):
            break
    if not me.closed.is_set():
        me.closed.set()
        log.error("worker_declared_ended", worker=me.name)
        on_declared_ended()


def bypass_pool() -> None:
    """Give this thread a connection of its own for each look.

    An exhausted pool must not make a living worker silent, and after every task of a forked
    child its pool is closed.
    """
    options = {**connection.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    # The wrapper is this thread's alone; the dictionaries in it are everybody's.
    connection.settings_dict = {**connection.settings_dict, "OPTIONS": options}


def _try_to_register(me: _Me) -> None:
    try:
        _see(me)
    except Exception as error:  # noqa: BLE001  it may work, but its end will not be known
        log.warning("worker_not_registered", worker=me.name, error=type(error).__name__)


def _see(me: _Me) -> bool:
    """Make or freshen this process's row; False once it has an end."""
    with me.writing:
        if me.closed.is_set():
            return False
        unended = Worker.objects.filter(name=me.name, ended_at__isnull=True)
        if unended.update(last_seen_at=Now()):
            return True
        row, is_new = Worker.objects.get_or_create(
            name=me.name,
            defaults={
                "host": me.place.host,
                "boot_id": me.place.boot_id,
                "pid_namespace": me.place.pid_namespace,
                "pid": me.pid,
                "pid_started": me.pid_started,
                "release_id": register_release() if me.serves else None,
            },
        )
        me.has_row = True
    if is_new:
        forget_old()
    return row.ended_at is None


_me = _Me()


def _forget_parent() -> None:
    global _me
    _me = _Me()


reset_after_fork(_forget_parent)
