"""Writes down which worker processes a supervisor saw exit.

    with WorkerExits(on_trouble=print) as exits:
        supervisor = Supervisor(processes, on_start=exits.note_start, on_end=exits.note_end)

Guarantees: the supervisor's thread only puts a note into a queue and never fails over it;
at the end of the block every note was written, or tried.

Does not try twice: a worker whose exit could not be written down is found gone by the next
worker on this machine.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from django.db import connections

from agentops.supervisor import Ended
from runs.incarnation import start_of
from runs.worker_ends import end_child

# No longer than PostgreSQL lets one statement take.
_PATIENCE_SECONDS: Final = 15.0


@dataclass(frozen=True)
class _Child:
    """A process id with what tells its holder from the next one."""

    started: int | None
    noted_at: float


class WorkerExits:
    """To be used in a `with` that ends after the supervisor and before the database."""

    def __init__(self, *, on_trouble: Callable[[str], None]) -> None:
        self._on_trouble = on_trouble
        self._children: dict[int, _Child] = {}
        self._notes: SimpleQueue[tuple[_Child, Ended] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="worker-exits", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._notes.put(None)
        self._thread.join(_PATIENCE_SECONDS)

    def note_start(self, name: str, pid: int) -> None:
        """Remember when the kernel started it: after its end nobody can tell."""
        self._children[pid] = _Child(started=start_of(pid), noted_at=time.monotonic())

    def note_end(self, ended: Ended) -> None:
        """Have it written down that this child was collected."""
        child = self._children.pop(ended.pid, None)
        if child is not None:
            self._notes.put((child, ended))

    def _write(self) -> None:
        while (note := self._notes.get()) is not None:
            child, ended = note
            try:
                end_child(
                    pid=ended.pid,
                    pid_started=child.started,
                    alive_for=timedelta(seconds=time.monotonic() - child.noted_at),
                    evidence=f"process {ended.pid}: {replace(ended, restart_in=None)}",
                )
            except Exception as error:  # noqa: BLE001  the next worker here finds it gone
                self._on_trouble(
                    f"the end of {ended.name} was not written down: {type(error).__name__}"
                )
            finally:
                connections.close_all()
