"""A tool's declared times, made short enough for a table to take about a minute.

A settle window of fifteen minutes and a deadline of thirty seconds are facts about a
provider and about patience. The protocol only compares them with each other, so the kit
runs a copy of the declaration in which their order is kept and their length is not: a
late request lands within the settle window and after the take-over of a killed worker,
and the reconciliation objective is longer than it takes to settle. Dates in rows are
never moved.

Guarantees: a time that the declaration leaves at zero stays zero, and none gets longer.
Does not shorten how long the provider remembers a key: that cannot be tried in a minute.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tools.declarations import Approve, Retry, Timeout
from tools.spec import ToolSpec

# A tenth of it is the margin in which a busy machine has to begin a call.
LEASE_SECONDS: Final = 2.5
# Never so short that a busy machine looks like a slow provider.
SHORTEST_TIMEOUT: Final = 2.0
TIMES_A_CALL: Final = 8.0
FIRST_DELAY: Final = 0.2
MOST_DELAY: Final = 0.5
# A request that is late lands when this part of the settle window is over.
LATE_PART: Final = 0.7
# Between the end of a dead worker's lease and the late request there are some look-ups.
LOOK_UPS_SECONDS: Final = 1.2
SHORTEST_WINDOW: Final = 0.5
SPARE_SECONDS: Final = 30.0
# Nobody is asked to sign for a case.
ALLOWED: Final = Approve(when="false")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The times that cases run with, in seconds."""

    timeout: float
    settle: float
    objective: float
    retry: Retry
    lease: float = LEASE_SECONDS

    @property
    def late(self) -> float:
        """How long after it was given up a late request takes effect."""
        return self.settle * LATE_PART

    @property
    def longest_case(self) -> float:
        """More than any case takes that comes to an end at all."""
        return 2 * self.objective + 4 * self.timeout + SPARE_SECONDS

    @property
    def has_window(self) -> bool:
        """Whether the declaration admits that a request may take effect late at all."""
        return self.settle >= SHORTEST_WINDOW


def choose_scale(spec: ToolSpec, *, call_seconds: float) -> Scale:
    """Times that fit a tool of which one call took `call_seconds`."""
    timeout = min(spec.timeout_policy.seconds, max(SHORTEST_TIMEOUT, TIMES_A_CALL * call_seconds))
    # A worker that dies over a call is replaced when its lease, made to outlast the call, ends.
    replaced = timeout + LEASE_SECONDS
    declared = spec.settle_window.total_seconds()
    settle = min(declared, (replaced + LOOK_UPS_SECONDS) / LATE_PART)
    within = spec.reconcile_within.total_seconds()
    # Declared shorter than the window, it stays so: then nothing is ever settled by itself.
    objective = min(within, 2 * settle + 2.0) if within >= declared else min(within, settle / 2)
    retry = spec.retry_policy
    first = min(retry.first_delay, FIRST_DELAY)
    return Scale(
        timeout=timeout,
        settle=settle,
        objective=objective,
        retry=replace(retry, first_delay=first, max_delay=max(first, MOST_DELAY)),
    )


def at_scale(spec: ToolSpec, scale: Scale) -> ToolSpec:
    """The tool with those times, and without what would keep a second case from being sent.

    That is a signature, and an intent that an earlier case may have carried out.
    """
    return replace(
        spec,
        timeout_policy=Timeout(seconds=scale.timeout),
        retry_policy=scale.retry,
        settle_window=timedelta(seconds=scale.settle),
        reconcile_within=timedelta(seconds=scale.objective),
        approval_policy=ALLOWED,
        repeatable=True,
        intent_scope="run",
        resource_version=None,
        compensation_handler=None,
    )


def describe(spec: ToolSpec, scale: Scale) -> str:
    """One sentence on what was made how short."""
    pairs = {
        "deadline": (spec.timeout_policy.seconds, scale.timeout),
        "settle window": (spec.settle_window.total_seconds(), scale.settle),
        "reconcile_within": (spec.reconcile_within.total_seconds(), scale.objective),
    }
    shown = [f"{name} {_time(real)} as {short:.1f} s" for name, (real, short) in pairs.items()]
    return f"Times are scaled: {', '.join(shown)}, lease {scale.lease:.1f} s."


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 60 else f"{seconds:g} s"
