"""Ends or stops this process at the n-th kernel event of a kind.

A fault is told as text, `commit_done:2:SIGKILL`, so that it fits an environment variable.
"""

import itertools
import os
import signal
import threading
from dataclasses import dataclass

from runs import events


@dataclass(frozen=True)
class Fault:
    """What this process does to itself at the `nth` event `at`, counted from 1."""

    at: events.Name
    nth: int
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.at}:{self.nth}:{self.signal.name}"


def arm(told: str) -> None:
    """Subscribe to the kernel's events. Raises ValueError for a text that is no fault."""
    at, nth, name = told.split(":")
    fault = Fault(at=events.Name(at), nth=int(nth), signal=signal.Signals[name])
    numbers, turn = itertools.count(1), threading.Lock()

    def strike(event: events.Event) -> None:
        if event.name is not fault.at:
            return
        with turn:
            number = next(numbers)
        if number == fault.nth:
            os.kill(os.getpid(), fault.signal)

    events.subscribe(strike)
