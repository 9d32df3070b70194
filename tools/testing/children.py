"""Worker processes that are copies of this one: killed, stopped and continued for real.

A tool may be a closure of a test, so a worker is forked and not started anew.

Guarantees: a child uses no connection of its parent: each one that it inherited, to the
database or to a provider, looks to it as if the other side had closed it, and nothing is
said on it; a child never returns into its parent's code; on Linux it ends with its parent.
Does not copy threads: what a tool keeps in a thread of the parent is not in the child.
"""

import ctypes
import os
import signal
import socket
import stat
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from django.conf import settings
from django.db import connections

from runs.incarnation import start_of
from runs.worker_ends import end_child
from tools.testing.errors import CannotFork

PR_SET_PDEATHSIG: Final = 1
LAST_WORDS: Final = 4000


class Child:
    """One forked process that runs `work()` and ends."""

    def __init__(self, work: Callable[[], None], *, log: Path) -> None:
        if not hasattr(os, "fork"):
            raise CannotFork
        self._log = log
        self._status: int | None = None
        self._stands_still = False
        self._begun_at = time.monotonic()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Newer Pythons warn of threads: the child uses none of its parent's.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _live(work, log=log, parent=parent)
        self._started = start_of(self.pid)

    @property
    def has_ended(self) -> bool:
        self._look()
        return self._status is not None

    @property
    def stands_still(self) -> bool:
        self._look()
        return self._stands_still and self._status is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended by an exception: neither by itself nor by a signal."""
        return self.has_ended and self._status is not None and self._status > 0

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-LAST_WORDS:] if self._log.exists() else ""

    def go_on(self) -> None:
        self._stands_still = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, which a stopped process obeys too; returns when it is gone."""
        if not self.has_ended:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self._status = os.waitstatus_to_exitcode(status)

    def tell_its_end(self) -> None:
        """Let the kernel know, as a supervisor does of a worker that it has collected."""
        end_child(
            pid=self.pid,
            pid_started=self._started,
            alive_for=timedelta(seconds=time.monotonic() - self._begun_at),
            evidence=f"the kit collected it with status {self._status}",
        )

    def _look(self) -> None:
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self._stands_still = True
            else:
                self._status = os.waitstatus_to_exitcode(status)


def _live(work: Callable[[], None], *, log: Path, parent: int) -> NoReturn:
    status = 1
    try:
        _end_with(parent)
        _speak_into(log)
        _cut_connections()
        _forget_database()
        work()
        status = 0
    except BaseException:  # noqa: BLE001  the whole life of this process
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        # Not sys.exit: what the parent meant to do at its end is not ours to do.
        os._exit(status)


def _end_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _speak_into(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = sys.stderr = open(descriptor, "w", buffering=1, closefd=False)  # noqa: SIM115


def _cut_connections() -> None:
    """Put a socket whose other end is closed in the place of every socket that was inherited.

    Two processes on one connection would read each other's answers; and a server's side of
    one, kept open here, would hide from its client that the server had closed it.
    """
    dead, other_end = socket.socketpair()
    other_end.close()
    for descriptor in _open_descriptors():
        if descriptor > 2 and descriptor != dead.fileno() and _is_socket(descriptor):
            os.dup2(dead.fileno(), descriptor, inheritable=False)
    dead.close()


def _open_descriptors() -> Iterator[int]:
    listing = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    yield from (int(name) for name in os.listdir(listing))


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False  # the listing's own


# What a parent's wrappers and pools would do when they are collected must not be done here.
_inherited: Final[list[Any]] = []


def _forget_database() -> None:
    """Leave the parent's connections and pools alone, unclosed, and begin with new ones."""
    if not settings.configured:
        return
    for alias in connections:
        wrapper = connections[alias]
        pools = getattr(wrapper, "_connection_pools", {})
        _inherited.append((wrapper, dict(pools)))
        pools.clear()
        # A pool needs threads and buys nothing: this process works on one run.
        wrapper.settings_dict.get("OPTIONS", {}).pop("pool", None)
        del connections[alias]
