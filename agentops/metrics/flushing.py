"""Adding what this process counted to what all processes counted, every few seconds.

Guarantees: one statement for all of it, in the same order everywhere, so that processes that write
at once do not lock each other out. What could not be written is kept and written later; it never
breaks the step that it was counted in. A process that ends writes what is left, once nothing of it
is at work any more.

Does not begin by itself: tests, commands and the parent of forked workers count in vain.
"""

import threading
from typing import Any, Final

import structlog
from celery.signals import (
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
)
from django.db import connection

from agentops.metrics.counting import Counts, tally
from runs.workers import bypass_pool
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 5.0
# At its end a process does not wait longer for a database that does not answer.
PATIENCE_SECONDS: Final = 5.0

_ADD: Final = """
    INSERT INTO agentops_eventcount AS known (name, label, count)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS one (name, label, count)
    ORDER BY name, label
    ON CONFLICT (name, label)
    DO UPDATE SET count = known.count + excluded.count, updated_at = statement_timestamp()
"""


def flush() -> int:
    """Write what was counted; returns how many series grew. What fails is counted still."""
    counts = tally.take()
    if not counts:
        return 0
    try:
        _write(counts)
    except BaseException:
        tally.add(counts)
        raise
    return len(counts)


def _write(counts: Counts) -> None:
    names, labels = zip(*counts, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_ADD, [list(names), list(labels), list(counts.values())])


class Flusher:
    """The thread of this process that writes; a forked child has none before it starts one."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Write every few seconds from now on. Harmless a second time."""
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="event-counts", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write what is left, and end."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.set()
            thread.join(timeout=PATIENCE_SECONDS)

    def _run(self) -> None:
        bypass_pool()
        while not self._ended.wait(EVERY_SECONDS):
            self._try_to_flush()
        self._try_to_flush()

    def _try_to_flush(self) -> None:
        try:
            flush()
        except Exception as error:  # noqa: BLE001  it is kept, and tried again
            log.warning("event_counts_not_written", error=type(error).__name__)
        finally:
            connection.close()


flusher: Final = Flusher()
reset_after_fork(flusher.__init__)  # type: ignore[misc]


@worker_ready.connect
def _start_here(sender: Any, **_: Any) -> None:
    # The parent of forked workers counts nothing.
    if "prefork" not in type(sender.pool).__module__:
        _start()


@worker_process_init.connect
def _start_forked(**_: Any) -> None:
    _start()


def _start() -> None:
    flusher.start()
    # Heard in the order of connecting, which was done by now for whatever ends the work.
    worker_shutdown.connect(_stop)
    worker_process_shutdown.connect(_stop)


def _stop(**_: Any) -> None:
    flusher.stop()
