"""Strikes a worker at every moment of some kinds, each time in a run of its own.

The moments that a run is known to come to are struck one by one. Then a run meets a strike at
whatever would come after them, until one goes by untouched: nothing came that is not known.

Runs are struck side by side, for most of each is waiting for a lost worker's lease to end.
"""

import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Final, TypeVar

from django.db import connection

from examples.shop.provider_process import ProviderProcess
from runs.events import Name

K = TypeVar("K", bound=str)

# As many as keep one core busy.
LANES: Final = 4
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


def strike_everywhere(
    is_struck: Callable[[Mapping[K, int]], bool], *, known: Mapping[K, range]
) -> None:
    """Strike at each of the `known` numbers of each kind, then beyond the last of every kind.

    `is_struck` tells whether a new run was struck at the first of some moments, which it is given
    by kind and number.
    """

    def strike(moments: Mapping[K, int]) -> bool:
        try:
            return is_struck(moments)
        except BaseException as error:
            error.add_note(f"struck at {moments}")
            raise
        finally:
            connection.close()

    each: list[Mapping[K, int]] = [
        {kind: number} for kind, numbers in known.items() for number in numbers
    ]
    with ThreadPoolExecutor(LANES) as pool:
        struck = list(pool.map(strike, each))
    missed = [moment for moment, was_struck in zip(each, struck, strict=True) if not was_struck]
    assert not missed, f"no run came to {missed}"
    for further in count():
        if not strike({kind: numbers.stop + further for kind, numbers in known.items()}):
            break


def first(times: int) -> range:
    """The numbers of so many moments, counted from 1."""
    return range(1, times + 1)


def fault_at(moments: Mapping[Name, int], *, what: signal.Signals = signal.SIGKILL) -> str:
    """The fault that sends the signal at the first of the moments, as `faults.arm` reads it."""
    return ",".join(f"{kind}:{number}:{what.name}" for kind, number in moments.items())
