"""Workers forked from a server that has Django loaded: real processes at a low price.

Guarantees: a child that dies by SIGKILL, or stands still by SIGSTOP, is a process of its
own with connections of its own; all children end with the test process.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, Self

from tests.crash import driving
from tests.processes import DidNotHappen, Servers, environment, is_stopped, wait_until

_context = multiprocessing.get_context("forkserver")
# multiprocessing reads the end of any child while it starts another one: one at a time.
_turn = threading.Lock()


@contextmanager
def fork_server(servers: Servers) -> Iterator[None]:
    """Start the server, if it is not running yet, pointed at `servers`."""
    outside = dict(os.environ)
    os.environ.update(environment(servers))
    try:
        _context.set_forkserver_preload([driving.__name__])
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(outside)
    try:
        yield
    finally:
        # Waits for its end, which otherwise comes a moment after ours.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]


class Child:
    """One forked process that runs `target(*arguments)`."""

    def __init__(self, target: Callable[..., None], *arguments: Any, log: Path) -> None:
        self._log = log
        self._process = _context.Process(target=target, args=arguments, daemon=True)
        with _turn:
            self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._status() is None

    @property
    def stands_still(self) -> bool:
        return is_stopped(self.pid)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        if self.lives:
            # The fork server may know of its end before we do.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: self.stands_still, what="the worker stands still")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, *, seconds: float = 30.0) -> int:
        """The exit status, or the negative number of the signal that ended it."""
        ends = time.monotonic() + seconds
        while (status := self._status()) is None:
            left = ends - time.monotonic()
            if left <= 0:
                raise DidNotHappen("the worker ends", seconds=seconds, said=self.said)
            connection.wait([self._process.sentinel], timeout=left)
        return status

    def wait_until_stopped_or_ended(self, *, seconds: float = 30.0) -> None:
        wait_until(
            lambda: self.stands_still or not self.lives,
            what="the worker stands still or ends",
            seconds=seconds,
        )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def _status(self) -> int | None:
        with _turn:
            return self._process.exitcode


def fork_worker(assignment: driving.Assignment) -> Child:
    """A worker on one run."""
    return Child(driving.work_on, assignment, log=Path(assignment.log))
