"""How often one token may ask.

Guarantees: over any time a token is let through at most `AGENTOPS_RATE_PER_MINUTE` times, and
so many times a minute besides; whoever is turned away is told when to come again; what is kept
is bounded by the number of tokens that asked within the last minute.

Does not know of other processes: each web process lets so many through. Does not count who has
no valid token, and does not keep anybody from filling a network; a proxy in front does.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.conf import settings

MINUTE: Final = 60.0
# Above so many tokens those that could ask a whole minute's worth again are forgotten.
REMEMBERED: Final = 1_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Rates:
    """Token buckets: each holds a minute's worth and is filled evenly."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}

    def take(self, token: int) -> float:
        """Let the token's request through: 0, or the seconds after which one would be."""
        per_minute = settings.AGENTOPS_RATE_PER_MINUTE
        if not per_minute:
            return 0.0
        with self._lock:
            now = self._now()
            bucket = self._buckets.get(token)
            if bucket is None:
                self._forget_idle(now)
                bucket = self._buckets[token] = _Bucket(left=per_minute, at=now)
            filled = bucket.left + (now - bucket.at) * per_minute / MINUTE
            bucket.left, bucket.at = min(per_minute, filled), now
            if bucket.left < 1:
                return float((1 - bucket.left) * MINUTE / per_minute)
            bucket.left -= 1
            return 0.0

    def limit_in_words(self) -> str:
        """What one who asked too often is told."""
        return (
            f"asks too often: this process lets {settings.AGENTOPS_RATE_PER_MINUTE} requests a "
            "minute through."
        )

    def _forget_idle(self, now: float) -> None:
        if len(self._buckets) < REMEMBERED:
            return
        self._buckets = {
            token: bucket for token, bucket in self._buckets.items() if now - bucket.at < MINUTE
        }


rates: Final = Rates()
