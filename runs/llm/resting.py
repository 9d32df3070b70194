"""Providers that asked not to be asked for a while.

Guarantees: what one run was told holds for every run of this process, so that a rate limit is
not answered with the next request to it.

Does not reach other processes, each of which hears it from the provider once, and is forgotten
with the process.
"""

import time
from typing import Final

_until: Final[dict[str, float]] = {}


def rest(llm: str, *, seconds: float) -> None:
    _until[llm] = max(_until.get(llm, 0.0), time.monotonic() + seconds)


def seconds_left(llm: str) -> float:
    return max(_until.get(llm, 0.0) - time.monotonic(), 0.0)


def forget() -> None:
    _until.clear()
