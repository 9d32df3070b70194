"""Strikes a worker at every event of some kinds, each time in a run of its own.

Runs are struck side by side, for most of each is waiting for a lost worker's lease to end.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from django.db import connection

from examples.shop.provider_process import ProviderProcess
from runs.events import Name

K = TypeVar("K", bound=str)

LANES: Final = 8
# How often at least a run that reads, refunds and finishes meets each kind of event.
LEAST: Final = {
    Name.RUN_CLAIMED: 1,
    Name.DECIDER_STARTING: 3,
    Name.DECIDER_DONE: 3,
    Name.COMMIT_STARTING: 6,
    Name.COMMIT_DONE: 6,
    Name.CALL_STARTING: 2,
    Name.CALL_DONE: 2,
}
LOOK_UPS: Final = {Name.LOOK_UP_STARTING: 1, Name.LOOK_UP_DONE: 1}
LATE_SECONDS: Final = 0.6
# Which fault the first request to read, and the first to refund, meets.
ANSWERS: Final[dict[str, dict[str, Any] | None]] = {
    "delivered": None,
    "lost": {"kind": "lose_answer"},
    "late": {"kind": "late", "seconds": LATE_SECONDS},
}


def meet(provider: ProviderProcess, answer: str) -> None:
    """Let the provider's next answers come in this way."""
    if fault := ANSWERS[answer]:
        provider.fault(path="/orders", method="GET", **fault)
        provider.fault(path="/refunds", method="POST", **fault)


def strike_everywhere(is_struck_at: Callable[[K, int], bool], *, kinds: Sequence[K]) -> Counter[K]:
    """Strike at 1, 2, 3 … of each kind until a run went by untouched; returns how often."""
    turn = threading.Lock()
    begun, under_way, struck = Counter[K](), Counter[K](), Counter[K]()
    left = set(kinds)

    def keep_striking() -> None:
        while True:
            with turn:
                if not left:
                    return
                kind = min(left, key=lambda one: (under_way[one], begun[one]))
                begun[kind] += 1
                under_way[kind] += 1
                number = begun[kind]
            try:
                if is_struck_at(kind, number):
                    struck[kind] += 1
                else:
                    left.discard(kind)
            except BaseException as error:
                left.clear()
                error.add_note(f"struck at {kind} number {number}")
                raise
            finally:
                connection.close()
                with turn:
                    under_way[kind] -= 1

    with ThreadPoolExecutor(LANES) as pool:
        for done in [pool.submit(keep_striking) for _ in range(LANES)]:
            done.result()
    return struck
