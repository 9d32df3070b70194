"""What a decider is shown: the canonical state of its run.

Guarantees: a context is built from rows alone, so any worker builds the same one,
and its size does not grow with the run: `observations` is the newest part
(`WINDOW` calls) of what the run learned, oldest first.

Does not hold the whole history; that is in the database, and `work.py` reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runs.state import OperationStatus

WINDOW = 20


@dataclass(frozen=True)
class Observed:
    """How one call of an earlier step ended.

    `status` is COMMITTED, REJECTED (`error` says why) or CANCELLED (never sent). `repeats`
    is the operation whose recorded result this is, where the call repeated its intent and
    nothing was sent; else empty. `never_sent` says why a CANCELLED call was: "denied" by a
    person, "expired" before anybody decided, "changed" into another that a person proposed,
    "refused" by policy, "invalid", "repeat", "given_up" or "cancelled".
    """

    operation_id: str
    step_number: int
    tool: str
    arguments: Mapping[str, Any]
    status: OperationStatus
    result: Any = None
    error: str = ""
    external_ref: str = ""
    is_write: bool = False
    repeats: str = ""
    never_sent: str = ""

    @property
    def committed(self) -> bool:
        return self.status is OperationStatus.COMMITTED


@dataclass(frozen=True)
class Context:
    """The input of a decider.

    `facts` are the committed effects among `observations`: what is known to have
    changed outside.
    """

    run_id: str
    agent: str
    objective: str
    input: Any
    step_number: int
    observations: tuple[Observed, ...] = ()
    signals: tuple[Any, ...] = field(default=())

    @property
    def last(self) -> Observed | None:
        return self.observations[-1] if self.observations else None

    @property
    def facts(self) -> tuple[Observed, ...]:
        return tuple(seen for seen in self.observations if seen.committed and seen.is_write)


def encode_checkpoint(*, step_number: int, last: Observed | None) -> dict[str, Any]:
    """The canonical state after a step. Results stay in their operations and are referenced."""
    return {
        "v": 1,
        "step": step_number,
        "last": last and {"operation": last.operation_id, "status": last.status},
    }
