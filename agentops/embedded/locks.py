"""File locks that the kernel releases when their last holder dies.

Guarantees that a lock never outlives the processes that hold it, however they end,
so that nothing here ever has to be judged stale.

Does not work across machines: a data directory belongs to one machine at a time.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.02


class Lock:
    """One open handle on a lock file. Closing it, or the end of the process, lets go."""

    def __init__(self, path: Path) -> None:
        # 0600: whoever can open the file could hold the lock and block every start.
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_exclusive(self) -> bool:
        return self._try(fcntl.LOCK_EX)

    def try_shared(self) -> bool:
        return self._try(fcntl.LOCK_SH)

    def exclusive_within(self, seconds: float) -> bool:
        return wait_until(self.try_exclusive, seconds=seconds)

    def shared_within(self, seconds: float) -> bool:
        return wait_until(self.try_shared, seconds=seconds)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def opened(path: Path) -> Iterator[Lock]:
    lock = Lock(path)
    try:
        yield lock
    finally:
        lock.close()


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at this moment."""
    with opened(path) as lock:
        return lock.try_exclusive()


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Ask again and again until the condition holds; False when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
