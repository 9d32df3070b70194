"""Functions on their way in threads of this process: started, waited for, and heard late.

Guarantees: of the waiter and `on_late` exactly one gets what a function returns; a function
that is not back stays listed by `in_flight` until what it said late is kept; a blocked one
delays no other.

Does not stop a running function, and does not bound how many there are.
"""

import contextvars
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from tools.errors import NoThread
from tools.threads import GrowingPool, reset_after_fork

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Job(Generic[T]):
    """One function on its way: exactly one of waiter and `on_late` gets what it returns."""

    def __init__(
        self,
        *,
        work: Callable[[], T],
        on_crash: Callable[[BaseException], T],
        on_late: Callable[[T], None],
        operation_id: str | None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._on_crash = on_crash
        self._on_late = on_late
        self._on_end = on_end
        self._operation_id = operation_id
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T | None = None
        self._abandoned = False

    def finish_within(self, seconds: float) -> T | None:
        """Start it and wait. The result, or None if it did not come in time; then `on_late`
        will get it.

        Raises NoThread if nothing was started, and whatever interrupts this thread.
        """
        self.start()
        try:
            return self.wait(seconds)
        except BaseException:
            self.abandon()
            raise

    def start(self) -> None:
        """Raises NoThread if nothing was started."""
        _mark_running(self._operation_id)
        try:
            _pool.start(self._run)
        except NoThread:
            _mark_returned(self._operation_id)
            raise
        except BaseException:
            # Interrupted: it may have been started.
            self.abandon()
            raise

    def wait(self, seconds: float) -> T | None:
        """The result, or None if it did not come in time; then `on_late` will get it."""
        self._done.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
        with self._lock:
            self._abandoned = self._result is None
            if self._abandoned:
                _mark_overdue(self)
            return self._result

    def abandon(self) -> None:
        """Nobody waits for it any more: `on_late` gets what it returns, or has returned."""
        with self._lock:
            self._abandoned, result = True, self._result
        if result is not None:
            self._tell_late(result)

    def _run(self, free_thread: Callable[[], None]) -> None:
        try:
            result = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 (a waiter must never be left waiting)
            result = self._on_crash(error)
        with self._lock:
            late = self._abandoned
            if not late:
                _mark_returned(self._operation_id)
                free_thread()
                self._result = result
        if not late:
            self._done.release()
            return
        # Still listed as in flight: nobody may conclude before this evidence is written.
        self._tell_late(result)
        _unmark_overdue(self)
        self._on_end()
        _mark_returned(self._operation_id)

    def _tell_late(self, result: T) -> None:
        try:
            self._context.run(self._on_late, result)
        except Exception:
            logger.exception("late outcome of %s was not recorded", self._operation_id)


def abandoned() -> int:
    """How many functions of this process are past their deadline and not back."""
    with _running_lock:
        return len(_overdue)


def in_flight() -> frozenset[str]:
    """Operation ids whose function has not returned yet in this process, deadline or not."""
    with _running_lock:
        return frozenset(_running)


def wait_until_back(*, seconds: float) -> bool:
    """Wait for the functions that are still out, so that their answers are heard; False if some
    are not back in time. For a process that is about to end."""
    until = time.monotonic() + seconds
    while in_flight():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


_overdue: set[object] = set()
_running: Counter[str] = Counter()
_running_lock = threading.Lock()
_pool = GrowingPool()


def _mark_overdue(job: object) -> None:
    with _running_lock:
        _overdue.add(job)


def _unmark_overdue(job: object) -> None:
    with _running_lock:
        _overdue.discard(job)


def _mark_running(operation_id: str | None) -> None:
    if operation_id is not None:
        with _running_lock:
            _running[operation_id] += 1


def _mark_returned(operation_id: str | None) -> None:
    if operation_id is not None:
        with _running_lock:
            _running[operation_id] -= 1
            if _running[operation_id] <= 0:
                del _running[operation_id]


def _reset() -> None:
    global _pool, _running_lock
    _pool, _running_lock = GrowingPool(), threading.Lock()
    _running.clear()
    _overdue.clear()


reset_after_fork(_reset)
