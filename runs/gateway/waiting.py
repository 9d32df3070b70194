"""Waiting for what came of a call, without holding a connection meanwhile.

Guarantees: whoever waits is woken at once by what this process itself commits, and soon by what
another one does: one query for all of them, at intervals. A wait ends at its time in any case.
A call that a person changed goes on as what stands in its place, and one that its run never took
up ends with the run; both are heard of by that query.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import structlog
from django.db import connection

from runs import events
from runs.models import NeverSent
from runs.state import SETTLED_STATUSES, OperationStatus
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

# How often the rows are looked at for those who wait for another process.
LOOK_SECONDS: Final = 0.1
# The thread that looks ends once nobody has waited for so long.
IDLE_SECONDS: Final = 60.0
# Beyond this many the next ones are told to come again.
MOST_WAITING: Final = 256
# Up to so many keep their connections for so many seconds.
FEW: Final = 4
MOMENT: Final = 0.05
SLOW: Final = frozenset({OperationStatus.AWAITING_APPROVAL, OperationStatus.UNKNOWN})


class Watch:
    """One who waits for an operation. `status` is what was heard of it; None for nothing yet."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        self.status: OperationStatus | None = None
        self._told = threading.Event()

    def tell(self, status: OperationStatus | None) -> None:
        """Wake whoever waits, unless they know."""
        if status is None or status is not self.status:
            self.status = status
            self._told.set()

    def look(self) -> None:
        """Ask the rows: for one who begins to wait after somebody began to act."""
        self.status = _find_standing([self.operation_id]).get(self.operation_id)

    def wait(self, *, seconds: float, settled_only: bool) -> None:
        """Return once the operation is settled (or waits for long, unless `settled_only`), or
        after `seconds`, or when the process ends."""
        until = time.monotonic() + seconds
        statuses = SETTLED_STATUSES if settled_only else SETTLED_STATUSES | SLOW
        is_kept = board.is_quiet
        while (left := until - time.monotonic()) > 0 and not board.is_closed:
            if self.status in statuses:
                return
            if not is_kept:
                # A connection is not kept while nothing is asked.
                connection.close()
            # But for a moment by a few: most calls are quick, and another one costs a round trip.
            is_told = self._told.wait(min(left, MOMENT) if is_kept else left)
            is_kept = is_kept and is_told
            self._told.clear()


class Board:
    """Who of this process waits for which operation."""

    def __init__(self) -> None:
        self.is_closed = False
        self._watches: dict[str, list[Watch]] = defaultdict(list)
        self._lock = threading.Lock()
        self._looker: threading.Thread | None = None
        self._ends_listening = events.subscribe(self._hear)

    @contextmanager
    def watching(self, operation_id: str) -> Iterator[Watch | None]:
        """Hear of the operation inside the block; None where too many wait."""
        watch = Watch(operation_id)
        with self._lock:
            is_full = sum(map(len, self._watches.values())) >= MOST_WAITING
            if not is_full:
                self._watches[operation_id].append(watch)
                if self._looker is None:
                    self._looker = threading.Thread(
                        target=self._look, name="gateway-board", daemon=True
                    )
                    self._looker.start()
        if is_full:
            yield None
            return
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[operation_id].remove(watch)
                if not self._watches[operation_id]:
                    del self._watches[operation_id]

    @property
    def is_quiet(self) -> bool:
        """Whether few wait, so that a connection of theirs is missed by nobody."""
        return len(self._watches) <= FEW

    def close(self) -> None:
        """Let nobody wait any more: the process ends."""
        self.is_closed = True
        with self._lock:
            for watch in (one for these in self._watches.values() for one in these):
                watch.tell(None)

    def _hear(self, event: events.Event) -> None:
        if event.name is events.Name.OPERATION_STANDS:
            self._tell({event.fields["operation_id"]: OperationStatus(event.fields["status"])})

    def _tell(self, standing: Mapping[str, OperationStatus]) -> None:
        with self._lock:
            for operation_id, status in standing.items():
                for watch in self._watches.get(operation_id, ()):
                    watch.tell(status)

    def _look(self) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                wanted = list(self._watches)
                if not wanted and time.monotonic() - idle_since > IDLE_SECONDS:
                    # In one with the look: whoever watches from here on begins another thread.
                    self._looker = None
                    return
            if not wanted:
                continue
            idle_since = time.monotonic()
            try:
                self._tell(_find_standing(wanted))
            except Exception as error:  # noqa: BLE001  the next look may be answered
                log.warning("gateway_look_failed", error=type(error).__name__)
            finally:
                connection.close()


def _find_standing(operation_ids: Sequence[str]) -> dict[str, OperationStatus]:
    """Those of them that are settled, or wait for long."""
    values: dict[str, Any] = {
        "ids": list(operation_ids),
        "told": [str(status) for status in SETTLED_STATUSES | SLOW],
        "changed": str(NeverSent.CHANGED),
        "dropped": str(OperationStatus.CANCELLED),
    }
    with connection.cursor() as cursor:
        cursor.execute(_STANDING, values)
        return {operation_id: OperationStatus(status) for operation_id, status in cursor}


# What stands in the place of a changed one; and calls that no operation will come of.
_STANDING: Final = """
    SELECT id, stands FROM (
        SELECT id, CASE WHEN never_sent <> %(changed)s THEN status ELSE (
            SELECT status FROM runs_tooloperation newest
            WHERE newest.run_id = it.run_id AND newest.step_number = it.step_number
              AND newest.ordinal = it.ordinal
            ORDER BY revision DESC LIMIT 1) END AS stands
        FROM runs_tooloperation it WHERE id = ANY (%(ids)s::text[])) one
    WHERE stands = ANY (%(told)s::text[])
    UNION ALL
    SELECT operation_id, %(dropped)s::text
    FROM runs_gatewaycall call LEFT JOIN runs_agentrun run ON run.id = call.run_id
    WHERE operation_id = ANY (%(ids)s::text[])
      AND (run.id IS NULL OR run.finished_at IS NOT NULL)
      AND NOT EXISTS (SELECT FROM runs_tooloperation WHERE id = call.operation_id)
"""


board: Final = Board()


def _forget_parent() -> None:
    board._ends_listening()
    board.__init__()  # type: ignore[misc]


reset_after_fork(_forget_parent)
