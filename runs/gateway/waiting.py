"""Waiting for what came of a call, without holding a connection meanwhile.

Guarantees: whoever waits is woken at once by what this process itself commits, and soon by what
another one does: one query for all of them, at intervals. A wait ends at its time in any case.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from django.db import connection

from runs import events
from runs.models import ToolOperation
from runs.state import SETTLED_STATUSES, OperationStatus
from tools.threads import reset_after_fork

log = structlog.get_logger(__name__)

# How often the rows are looked at for those who wait for another process.
LOOK_SECONDS: Final = 0.1
# Beyond this many the next ones are told to come again.
MOST_WAITING: Final = 256
SLOW: Final = frozenset({OperationStatus.AWAITING_APPROVAL, OperationStatus.UNKNOWN})


class Board:
    """Who of this process waits for which operation."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[threading.Event]] = defaultdict(list)
        self._lock = threading.Lock()
        self._looker: threading.Thread | None = None
        self._ends_listening = events.subscribe(self._hear)

    @contextmanager
    def waiting_for(self, operation_id: str) -> Iterator[threading.Event | None]:
        """An event that is set whenever the operation may have moved; None where too many wait."""
        told = threading.Event()
        with self._lock:
            if sum(map(len, self._waiting.values())) >= MOST_WAITING:
                told = None  # type: ignore[assignment]
            else:
                self._waiting[operation_id].append(told)
                if self._looker is None or not self._looker.is_alive():
                    self._looker = threading.Thread(
                        target=self._look, name="gateway-board", daemon=True
                    )
                    self._looker.start()
        try:
            yield told
        finally:
            if told is not None:
                with self._lock:
                    self._waiting[operation_id].remove(told)
                    if not self._waiting[operation_id]:
                        del self._waiting[operation_id]

    def _hear(self, event: events.Event) -> None:
        if event.name is events.Name.OPERATION_STANDS:
            self._tell([event.fields["operation_id"]])

    def _tell(self, operation_ids: list[str]) -> None:
        with self._lock:
            for one in operation_ids:
                for told in self._waiting.get(one, ()):
                    told.set()

    def _look(self) -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < 60:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                wanted = list(self._waiting)
            if not wanted:
                continue
            idle_since = time.monotonic()
            try:
                self._tell(_find_standing(wanted))
            except Exception as error:  # noqa: BLE001  whoever waits looks again at the end
                log.warning("gateway_look_failed", error=type(error).__name__)
            finally:
                connection.close()


def await_operation(operation_id: str, *, seconds: float, settled_only: bool) -> None:
    """Return once the operation is settled (or waits for long, unless `settled_only`), or after
    `seconds`, or at once where too many wait here already."""
    until = time.monotonic() + seconds
    with board.waiting_for(operation_id) as told:
        while told is not None and (left := until - time.monotonic()) > 0:
            found = _find_standing([operation_id], settled_only=settled_only)
            if found:
                return
            # A connection is not kept while nothing is asked.
            connection.close()
            told.wait(left)
            told.clear()


def _find_standing(operation_ids: list[str], *, settled_only: bool = False) -> list[str]:
    statuses = SETTLED_STATUSES if settled_only else SETTLED_STATUSES | SLOW
    found = ToolOperation.objects.filter(id__in=operation_ids, status__in=statuses)
    return list(found.values_list("id", flat=True))


board: Final = Board()
reset_after_fork(board.__init__)  # type: ignore[misc]
