"""Workers forked from a server that has Django loaded: real processes at a low price.

Guarantees: a child that dies by SIGKILL, or stands still by SIGSTOP, is a process of its
own with connections of its own; all children end with their test, and with the test process.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, Self

from tests.crash import driving
from tests.processes import DidNotHappen, Servers, environment, is_stopped, wait_until

# They take a second or two to load, which no child of theirs should spend again.
ASKS_LLMS = ("pydantic_ai.direct", "pydantic_ai.models.openai", "openai.resources.chat")
# Web processes that take calls: named, for it loads this package's other half.
CALLS = "tests.crash.calling"

_context = multiprocessing.get_context("forkserver")
# multiprocessing reads the end of any child while it starts another one: one at a time.
_turn = threading.Lock()
# The environment of the running server, if there is one, and the children of this test.
_started_with: dict[str, str] = {}
_children: list["Child"] = []


def start_fork_server(servers: Servers) -> bool:
    """Start the server, pointed at `servers`; False if one runs already that is.

    It is kept from test to test, for loading Django takes longer than most of them.
    """
    wanted = environment(servers)
    # The only variable that is another one in every test.
    wanted.pop("PYTEST_CURRENT_TEST", None)
    if _started_with == wanted:
        return False
    stop_fork_server()
    outside = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        _context.set_forkserver_preload([*ASKS_LLMS, driving.__name__, CALLS])
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(outside)
    _started_with.update(wanted)
    return True


def stop_fork_server() -> None:
    """End the server, if one runs, and every child of it; returns when it is gone."""
    _started_with.clear()
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def end_children() -> None:
    """End what a test that failed may have left alive."""
    while _children:
        _children.pop().kill()


class Child:
    """One forked process that runs `target(*arguments)`."""

    def __init__(self, target: Callable[..., None], *arguments: Any, log: Path) -> None:
        self._log = log
        self._process = _context.Process(target=target, args=arguments, daemon=True)
        with _turn:
            self._process.start()
        _children.append(self)

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
