"""Ends or stops this process at the n-th kernel event of a kind.

A fault is told as text, `commit_done:2:SIGKILL`, so that it fits an environment variable; of
several, separated by commas, the first that comes strikes. In `call_starting:all3:SIGSTOP` three
threads come to the event, and it strikes them there.
"""

import signal
import threading
from collections import Counter
from dataclasses import dataclass

from runs import events

LONGEST_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """What this process does to itself at the `nth` event `at`, counted from 1.

    `together`: those that come before the nth wait for it.
    """

    at: events.Name
    nth: int
    together: bool
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.at}:{'all' * self.together}{self.nth}:{self.signal.name}"


def strike_here(what: signal.Signals) -> None:
    """Send this process a signal that takes effect before this thread goes on.

    One sent to the process may go to another thread first, and this one would run on until
    that is scheduled.
    """
    signal.pthread_kill(threading.get_ident(), what)


def arm(told: str) -> None:
    """Subscribe to the kernel's events. Raises ValueError for a text that is no fault."""
    faults = {fault.at: fault for fault in map(_read, told.split(","))}
    numbers, turn, struck = Counter[events.Name](), threading.Lock(), threading.Event()
    is_spent = False

    def strike(event: events.Event) -> None:
        nonlocal is_spent
        fault = faults.get(event.name)
        if fault is None:
            return
        with turn:
            numbers[event.name] += 1
            number = numbers[event.name]
            is_hit = number == fault.nth and not is_spent
            is_spent |= is_hit
        if is_hit:
            strike_here(fault.signal)
            struck.set()
        elif fault.together and number < fault.nth:
            struck.wait(LONGEST_WAIT_SECONDS)

    events.subscribe(strike)


def _read(told: str) -> Fault:
    at, nth, name = told.split(":")
    return Fault(
        at=events.Name(at),
        nth=int(nth.removeprefix("all")),
        together=nth.startswith("all"),
        signal=signal.Signals[name],
    )
