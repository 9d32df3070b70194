"""Cases side by side in one thread: most of each is waiting for a lease or a window to end.

A case is a generator that yields what it waits for. One thread, because a process is
copied safely only while nobody else in it holds a lock.

Guarantees: results stand in the order of the cases; when one fails, the others are closed
(their `finally` runs, which ends their processes) and its error is raised.
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

Condition: TypeAlias = Callable[[], bool]
Case: TypeAlias = Generator[Condition, None, T]

POLL_SECONDS = 0.03


def run_cases(
    cases: Sequence[Case[T]], *, lanes: int, on_done: Callable[[T], None] = lambda _: None
) -> list[T]:
    """Run the cases, at most `lanes` at once; `on_done` hears each result as it comes."""
    waiting = [_Running(number, case) for number, case in enumerate(cases)]
    running: list[_Running[T]] = []
    results: dict[int, T] = {}
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                running.append(waiting.pop(0))
            for one in list(running):
                if not one.is_due():
                    continue
                try:
                    one.condition = next(one.case)
                except StopIteration as done:
                    running.remove(one)
                    results[one.number] = done.value
                    on_done(done.value)
            time.sleep(POLL_SECONDS)
    finally:
        for one in running:
            one.case.close()
    return [results[number] for number in range(len(cases))]


def within(condition: Condition, *, seconds: float) -> Condition:
    """True as soon as `condition` is, or when the time is over."""
    ends = time.monotonic() + seconds
    return lambda: condition() or time.monotonic() > ends


@dataclass
class _Running(Generic[T]):
    number: int
    case: Case[T]
    condition: Condition | None = None

    def is_due(self) -> bool:
        return self.condition is None or self.condition()
