"""Threads for tool calls: reused when idle, added when all are busy.

Guarantees: a job never waits for another job; a thread that is blocked for ever costs one
thread and delays nobody; a forked child starts with no threads of its parent.
Does not bound how many threads there are (the kernel bounds its own concurrency), and
cannot stop one: a thread ends when its function returns or the process does.
"""

import logging
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

from tools.errors import NoThread

# A job is told to call its argument once it needs the thread for no more than microseconds.
Job: TypeAlias = Callable[[Callable[[], None]], None]

IDLE_SECONDS = 60.0

logger = logging.getLogger(__name__)


class GrowingPool:
    """Hands each job to an idle daemon thread, the most recently used first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []

    def start(self, job: Job) -> None:
        """Run `job` soon in another thread. Raises NoThread if there is none."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(inbox,), name="tool", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise NoThread from error
        inbox.put(job)

    def _serve(self, inbox: "SimpleQueue[Job]") -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._leave(inbox):
                    return
                continue
            free = _Once(lambda: self._enter(inbox))
            try:
                job(free)
            except Exception:
                # The thread may be listed as idle by now, so it must live on.
                logger.exception("a job of the tool threads failed")
            # A kept reference would hold the last call's arguments while the thread idles.
            del job
            free()

    def _enter(self, inbox: "SimpleQueue[Job]") -> None:
        with self._lock:
            self._idle.append(inbox)

    def _leave(self, inbox: "SimpleQueue[Job]") -> bool:
        """Retire, unless a job is already on its way to this thread."""
        with self._lock:
            if inbox not in self._idle:
                return False
            self._idle.remove(inbox)
            return True


class _Once:
    """Calls what it was given the first time only."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


def reset_after_fork(reset: Callable[[], None]) -> None:
    """Call `reset` in every forked child, where the parent's threads do not exist."""
    os.register_at_fork(after_in_child=reset)
