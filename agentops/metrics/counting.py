"""Counting events in the memory of this process, until they are added to everybody's.

Guarantees: counting never fails, never waits for the database and holds no more than the closed
set of names and labels in `events.py`, however long nothing is written. A forked child starts with
nothing counted, for what its parent counted the parent writes.

Does not write: `flushing.py` does, in the processes that serve.
"""

import threading
from typing import Final

from agentops.metrics.events import COUNTED
from runs import events
from tools.threads import reset_after_fork

Counts = dict[tuple[str, str], int]


class Tally:
    """What was counted and is not written yet, by name and label."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._counts: Counts = {}

    def add(self, counts: Counts) -> None:
        """Count these too."""
        with self._turn:
            for counted, count in counts.items():
                self._counts[counted] = self._counts.get(counted, 0) + count

    def take(self) -> Counts:
        """All of it, to be written; it is counted here no more."""
        with self._turn:
            counts, self._counts = self._counts, {}
            return counts


tally: Final = Tally()
reset_after_fork(tally.__init__)  # type: ignore[misc]


def listen() -> None:
    """Count what the kernel tells of, from now on."""
    events.subscribe(_count)


def _count(event: events.Event) -> None:
    if (counted := COUNTED.get(event.name)) is not None:
        tally.add({(counted.name, counted.label_of(event.fields)): 1})
