"""What one execution of a tool is told about itself.

Guarantees: `remaining` never allows a request that would outlive the deadline, whatever
the wall clock does; it raises once the deadline has passed.
Does not stop a function that ignores it.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tools.errors import DeadlinePassed
from tools.tracing import trace_headers
from tools.window import SendWindow


@dataclass(frozen=True)
class Compensated:
    """The committed operation that a compensation corrects."""

    operation_id: str
    tool: str
    arguments: Mapping[str, Any]
    result: Any = None
    external_ref: str | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """Identity, arguments (JSON) and deadline of one execution; built by the kernel.

    `deadline` is UTC, for people and providers. `expires_at_monotonic` is the same moment
    on `time.monotonic()`, which is what counts here. `window` is where a client that knows it
    notes when bytes left.
    """

    operation_id: str
    idempotency_key: str
    fence_token: int
    attempt: int
    run_id: str
    step_number: int
    arguments: Mapping[str, Any]
    deadline: datetime
    expires_at_monotonic: float
    compensates: Compensated | None = None
    window: SendWindow = field(init=False, repr=False, compare=False)
    _timeouts: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        window = SendWindow(deadline=self.deadline, expires_at_monotonic=self.expires_at_monotonic)
        object.__setattr__(self, "window", window)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline: the time-out of the next request. Ask once per request.

        Raises DeadlinePassed, so that a worker that was stopped and wakes late cannot send.
        """
        seconds = self.seconds_left()
        if seconds <= 0:
            raise DeadlinePassed(operation_id=self.operation_id, deadline=self.deadline)
        self._timeouts.append(seconds)
        return seconds

    def seconds_left(self) -> float:
        """Seconds until the deadline, negative once it has passed; counts as no request."""
        return self.expires_at_monotonic - time.monotonic()

    @property
    def trace_headers(self) -> Mapping[str, str]:
        """Headers with which a provider goes on with this run's trace; empty where none is kept.

        Each attempt has its own, so they belong beside what the provider compares under the
        idempotency key, and never in it: not into the body, nor into a signature.
        """
        return trace_headers()

    @property
    def timeouts_given(self) -> int:
        """How often `remaining` was answered: at least so many requests may have been made."""
        return len(self._timeouts)
