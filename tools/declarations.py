"""The words with which a tool declares how it is recovered.

Guarantees: plain frozen values, importable before Django is ready; a missing fact is the
worst case (no key support, no look-up, keys that were never promised to be kept).
Does not judge combinations: `checks.py` does, when the project starts.
"""

import random
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal

IdempotencySupport = Literal["key", "natural_id", "none"]
Lookup = Literal["by_key", "list", "search", "none"]
IntentScope = Literal["run", "global"]
OnRepeatedIntent = Literal["return_recorded", "ask", "refuse"]


class EffectType(StrEnum):
    """What a call does to the world, which decides how an unknown outcome is settled."""

    READ = "READ"
    TRANSACTIONAL = "TRANSACTIONAL"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"
    NON_IDEMPOTENT_WRITE = "NON_IDEMPOTENT_WRITE"
    IRREVERSIBLE = "IRREVERSIBLE"

    @property
    def is_write(self) -> bool:
        return self is not EffectType.READ


def in_order(given: Iterable[str]) -> tuple[str, ...]:
    """Names as they were given. A set has another order in every process, and what is declared has
    one version in all of them."""
    return tuple(sorted(given) if isinstance(given, AbstractSet) else given)


@dataclass(frozen=True)
class Rate:
    """At most `calls` requests in any period of the length `per`."""

    calls: int
    per: timedelta


@dataclass(frozen=True)
class Limits:
    """How much may go to one place, over all workers: requests per time, and at one time."""

    rate: Rate | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class Provider:
    """What one provider promises about keys and look-ups; shared by its tools.

    `idempotency_retention`: how long a key is remembered, None where nobody promised.
    `settle_window`: how long after its socket closed a request may still take effect.
    `rate` and `concurrency`: what it is sent at most, look-ups and repeats included.
    """

    name: str
    account: str = ""
    idempotency_support: IdempotencySupport = "none"
    idempotency_scope: str = ""
    idempotency_retention: timedelta | None = None
    lookup: Lookup = "none"
    settle_window: timedelta = timedelta(minutes=15)
    rate: Rate | None = None
    concurrency: int | None = None

    @property
    def limits(self) -> Limits | None:
        """What it is sent at most; None where it has no limit."""
        if self.rate is None and self.concurrency is None:
            return None
        return Limits(rate=self.rate, concurrency=self.concurrency)

    @property
    def limit_name(self) -> str:
        """The name under which its limits are counted."""
        return f"provider {self.name}/{self.account}"

    def promises(self) -> dict[str, Any]:
        """What a stored operation relies on: all but how much may be sent."""
        return {name: value for name, value in asdict(self).items() if name not in _NOT_PROMISED}


_NOT_PROMISED = frozenset({"rate", "concurrency"})


@dataclass(frozen=True)
class Retry:
    """How often, and how far apart (seconds), a call that was not sent is tried again."""

    max_attempts: int = 5
    first_delay: float = 1.0
    max_delay: float = 300.0

    def delay(self, attempt: int, rng: Callable[[], float] = random.random) -> float:
        """Seconds to wait after attempt 1, 2, …: doubling, capped, half of it random.

        `rng` yields numbers from 0 up to 1.
        """
        # The exponent is capped because 2.0**1024 raises.
        full = min(self.max_delay, self.first_delay * 2.0 ** min(max(attempt, 1) - 1, 64))
        return full * (0.5 + 0.5 * rng())


@dataclass(frozen=True)
class Timeout:
    """Seconds one call may take; the kernel shortens it to what the lease allows."""

    seconds: float = 30.0


@dataclass(frozen=True)
class Approve:
    """Who must sign before the call is sent, and when a signature is needed at all.

    `when` is a CEL expression over the arguments and the call's circumstances
    (docs/how-to/write-a-policy.md). `approve_by` and `execute_by` are the time to decide and
    the time to act on an approval. After `escalate_after` without a verdict, the groups of
    `escalate_to` may sign in the place of any other; `remind_after` is when those who are
    asked hear of it again.
    """

    when: str = "true"
    groups: tuple[str, ...] = ()
    quorum: int = 1
    approve_by: timedelta = timedelta(hours=24)
    execute_by: timedelta = timedelta(hours=1)
    escalate_to: tuple[str, ...] = ()
    escalate_after: timedelta | None = None
    remind_after: timedelta | None = None

    def __post_init__(self) -> None:
        # Rules are compared and cached, which a list cannot be.
        for name in ("groups", "escalate_to"):
            if isinstance(given := getattr(self, name), list | AbstractSet):
                object.__setattr__(self, name, in_order(given))
