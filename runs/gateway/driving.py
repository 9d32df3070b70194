"""Having a call carried out: here, in threads of this web process, or else by a worker.

A hop through the broker costs more than everything else that a call needs from us, so a web
process drives the run itself, under a lease and a name of its own, as a worker would. It takes no
other run up: what it does not get done (it is full, it ends, the call is to be tried again) the
workers find by the row, as ever.

Guarantees: a run is driven by one thread of this process at a time, and once more if it was
asked for meanwhile; nothing is begun after `stop`.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

import structlog
from django.db import connection

from runs import engine, turns, workers
from runs.concurrency import agent_limits
from runs.models import AgentRun
from runs.wake import hint
from tools.execution import abandoned, wait_until_back

log = structlog.get_logger(__name__)

# Functions of tools that ignored their deadline and still run: beyond this, workers are better.
MOST_ABANDONED: Final = 16
LATE_ANSWER_SECONDS: Final = 5.0


class Drivers:
    """The threads of this process that drive runs of the gateway."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0
        self._lock = threading.Lock()
        # The runs that are driven, and whether somebody asked for them meanwhile.
        self._driven: dict[UUID, bool] = {}

    def start(self, *, size: int, on_declared_ended: Callable[[], None]) -> None:
        """Drive up to `size` runs at a time from now on; 0 leaves all of them to the workers."""
        if size <= 0:
            return
        workers.serve_nothing()
        workers.attend(on_declared_ended=on_declared_ended)
        self._size = size
        self._pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="gateway")

    def stop(self) -> None:
        """Begin nothing any more, wait for what is under way, and report this process's end."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        engine.drain()
        pool.shutdown(wait=True, cancel_futures=True)
        wait_until_back(seconds=LATE_ANSWER_SECONDS)
        workers.report_end()

    def drive(self, run_id: UUID) -> None:
        """Have somebody look at the run now."""
        with self._lock:
            if run_id in self._driven:
                self._driven[run_id] = True
                return
            pool = self._pool
            is_full = len(self._driven) >= self._size or abandoned() > MOST_ABANDONED
            if pool is not None and not is_full:
                try:
                    pool.submit(self._drive, run_id)
                except RuntimeError:
                    # It was shut down since it was looked at.
                    pass
                else:
                    self._driven[run_id] = False
                    return
        hint(run_id)

    def _drive(self, run_id: UUID) -> None:
        while True:
            try:
                _drive_once(run_id)
            except Exception as error:  # noqa: BLE001  a worker takes it up, by its date
                log.warning("gateway_run_failed", run=str(run_id), error=type(error).__name__)
            finally:
                connection.close()
            with self._lock:
                if not self._driven[run_id]:
                    # In one with the look: whoever asks from here on begins anew.
                    del self._driven[run_id]
                    return
                self._driven[run_id] = False


def _drive_once(run_id: UUID) -> None:
    with workers.at_work() as owner:
        progress = engine.advance(run_id=run_id, owner=owner) if owner is not None else None
    if progress is None or progress.yielded:
        hint(run_id)
    elif progress.claimed:
        _pass_on(run_id)


def _pass_on(run_id: UUID) -> None:
    """The run was let go: if that made room below its agent's limit, the next one is hinted at."""
    if agent_limits():
        agent = AgentRun.objects.filter(id=run_id).values_list("agent", flat=True).first()
        turns.pass_on(agent or "")


drivers: Final = Drivers()
