"""Named events of the kernel, for whoever listens: logs, traces, crash tests.

Guarantees: subscribers are called in the emitting thread, in order of
subscription, at the moment the event happens.

Does not carry text: an event is a name, with ids, names and counts. What happens under a
lease says what it is about (`Work.about`): run_id, agent, step_number and fence_token, and for an
operation operation_id, tool and attempt. A `…_starting` and what ends it are emitted by one
thread; a worker that dies in between emits only the first, and nobody does it later. A subscriber
that raises breaks the step it listens to; one that must not do that catches for itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final


class Name(StrEnum):
    RUN_CLAIMED = "run_claimed"
    SLICE_STARTING = "slice_starting"
    COMMIT_STARTING = "commit_starting"
    COMMIT_DONE = "commit_done"
    DECIDER_STARTING = "decider_starting"
    DECIDER_DONE = "decider_done"
    DECIDER_FAILED = "decider_failed"
    LLM_STARTING = "llm_starting"
    LLM_DONE = "llm_done"
    CALL_STARTING = "call_starting"
    CALL_DONE = "call_done"
    LOOK_UP_STARTING = "look_up_starting"
    LOOK_UP_DONE = "look_up_done"
    LEASE_LOST = "lease_lost"
    LATE_EVIDENCE = "late_evidence"
    REPLAYED = "replayed"
    INCIDENT = "incident"
    HINT_LOST = "hint_lost"
    RUN_RELEASED = "run_released"
    OPERATION_STANDS = "operation_stands"


@dataclass(frozen=True)
class Event:
    name: Name
    fields: MappingProxyType[str, Any] = field(default_factory=lambda: MappingProxyType({}))


Subscriber = Callable[[Event], None]
_subscribers: Final[list[Subscriber]] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call `subscriber` for every event from now on; returns the function that ends it."""
    _subscribers.append(subscriber)
    return lambda: _subscribers.remove(subscriber)


def emit(name: Name, /, **fields: Any) -> None:
    """Tell every subscriber. Costs next to nothing when there is none."""
    if _subscribers:
        event = Event(name=name, fields=MappingProxyType(fields))
        for subscriber in tuple(_subscribers):
            subscriber(event)
