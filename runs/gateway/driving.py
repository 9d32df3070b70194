"""Having a call carried out: here, in threads of this web process, or else by a worker.

A hop through the broker costs more than everything else that a call needs from us, so a web
process drives the run itself, under a lease and a name of its own, as a worker would. It takes no
other run up: what it does not get done (it is full, it ends, the call is to be tried again) the
workers find by the row, as ever.

A run that is started for one call alone is claimed by the statement that writes it, for a thread
that is kept free meanwhile (`room`); every other run is claimed as a worker would claim it.

Guarantees: a run is driven by one thread of this process at a time, and once more if it was
asked for meanwhile; nothing is begun after `stop`, and what was claimed by then is given back.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog
from django.db import connection

from runs import engine, turns, workers
from runs.concurrency import agent_limits
from runs.gateway.waiting import board
from runs.models import AgentRun
from runs.wake import hint
from runs.work import Work
from tools.execution import abandoned, wait_until_back

log = structlog.get_logger(__name__)

# Functions of tools that ignored their deadline and still run: beyond this, workers are better.
MOST_ABANDONED: Final = 16
LATE_ANSWER_SECONDS: Final = 5.0
# Runs that wait for a thread here while a worker is asked for too; beyond this, workers alone.
MOST_QUEUED: Final = 256


class Drivers:
    """The threads of this process that drive runs of the gateway."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0
        self._lock = threading.Lock()
        # The runs that are driven, and whether somebody asked for them meanwhile.
        self._driven: dict[UUID, bool] = {}
        # Threads that are kept for runs which are about to be claimed.
        self._kept = 0

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
        board.close()
        pool, self._pool = self._pool, None
        if pool is None:
            return
        engine.drain()
        # Those that wait for a thread give their runs back in it.
        pool.shutdown(wait=True)
        wait_until_back(seconds=LATE_ANSWER_SECONDS)
        workers.report_end()

    @contextmanager
    def room(self) -> Iterator["Room | None"]:
        """A thread kept free for what is claimed inside the block; None where there is none."""
        with self._lock:
            pool = self._pool if self._has_room() else None
            self._kept += pool is not None
        if pool is None:
            yield None
            return
        try:
            with workers.at_work() as owner:
                yield Room(self, pool, owner) if owner is not None else None
        finally:
            with self._lock:
                self._kept -= 1

    def drive(self, run_id: UUID) -> None:
        """Have somebody look at the run now."""
        with self._lock:
            if run_id in self._driven:
                self._driven[run_id] = True
                return
            has_room = self._has_room()
            pool = self._pool if self._has_room(queued=MOST_QUEUED) else None
            if pool is not None:
                self._driven[run_id] = False
        is_taken = pool is not None and self._submit(pool, run_id, None)
        if not is_taken or not has_room:
            # It waits here for a thread; whichever worker is free sooner may have it.
            hint(run_id)

    def drive_claimed(self, pool: ThreadPoolExecutor, work: Work) -> None:
        """Drive a run that is claimed for this process, or give it back if the process ends."""
        with self._lock:
            self._driven[work.run_id] = False
        if not self._submit(pool, work.run_id, work):
            self._drive(work.run_id, work)

    def _submit(self, pool: ThreadPoolExecutor, run_id: UUID, work: Work | None) -> bool:
        """False where the threads have ended meanwhile."""
        try:
            pool.submit(self._drive, run_id, work)
        except RuntimeError:
            if work is None:
                with self._lock:
                    del self._driven[run_id]
            return False
        return True

    def _has_room(self, *, queued: int = 0) -> bool:
        at_work = len(self._driven) + self._kept
        return at_work < self._size + queued and abandoned() <= MOST_ABANDONED

    def _drive(self, run_id: UUID, work: Work | None) -> None:
        while True:
            is_due = False
            try:
                is_due = _drive_once(run_id, work)
            except Exception as error:  # noqa: BLE001  a worker takes it up, by its date
                log.warning("gateway_run_failed", run=str(run_id), error=type(error).__name__)
            finally:
                connection.close()
            work = None
            with self._lock:
                if not self._driven[run_id] and not is_due:
                    # In one with the look: whoever asks from here on begins anew.
                    del self._driven[run_id]
                    return
                self._driven[run_id] = False


@dataclass(frozen=True)
class Room:
    """A thread that waits for one run. `owner` is whom to claim it for."""

    _drivers: Drivers
    _pool: ThreadPoolExecutor
    owner: str

    def drive(self, work: Work) -> None:
        """Drive the run that was claimed for `owner`."""
        self._drivers.drive_claimed(self._pool, work)


def _drive_once(run_id: UUID, work: Work | None) -> bool:
    """Whether there is more to do, which came while the run was held here."""
    with workers.at_work() as owner:
        if owner is None:
            progress = None
            if work is not None:
                work.release(wake_in=0)
        elif work is not None:
            progress = engine.drive(work)
        else:
            progress = engine.advance(run_id=run_id, owner=owner)
    if progress is not None and progress.called:
        # Whoever accepted it could not have the run, and told nobody.
        return True
    if progress is None or progress.yielded:
        hint(run_id)
    elif progress.claimed:
        _pass_on(run_id)
    return False


def _pass_on(run_id: UUID) -> None:
    """The run was let go: if that made room below its agent's limit, the next one is hinted at."""
    if agent_limits():
        agent = AgentRun.objects.filter(id=run_id).values_list("agent", flat=True).first()
        turns.pass_on(agent or "")


drivers: Final = Drivers()
