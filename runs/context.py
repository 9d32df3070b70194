"""What a decider is shown: the canonical state of its run.

Guarantees: a context is built from rows alone, so any worker builds the same one,
and its size does not grow with the run: `observations` is the newest part
(`WINDOW` calls) of what the run learned, oldest first.

Does not hold the whole history; that is in the database, and `work.py` reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from runs.state import OperationStatus

if TYPE_CHECKING:
    from runs.models import LlmRequest

WINDOW = 20

# Of one decision: beyond this it is a mistake, and no column would take it.
MOST_TOKENS: Final = 10**12
MOST_COST_USD: Final = Decimal(10**6)

Kind = Literal["call", "signal", "answer", "child"]
TIMED_OUT: Final = "timed_out"


@dataclass(frozen=True)
class Observed:
    """How one call of an earlier step ended, or what came of waiting.

    `kind` is "call"; "signal" (`tool` is its name, `result` its payload), "answer" (of a
    person: `tool` is the question) or "child" (`tool` is the agent, `result` what its run came
    to); `author` says who sent or answered it. What did not come in time is CANCELLED, and
    `timed_out`. `corrected` says that a compensation, or a person, took its effect back since.

    `status` is COMMITTED, REJECTED (`error` says why) or CANCELLED (never sent). `repeats`
    is the operation whose recorded result this is, where the call repeated its intent and
    nothing was sent; else empty. `never_sent` says why a CANCELLED call was: "denied" by a
    person, "expired" before anybody decided, "changed" into another with other arguments,
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
    kind: Kind = "call"
    author: str = ""
    corrected: bool = False
    # Names that were sensitive when it was recorded, for whoever shows it to somebody.
    sensitive: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def timed_out(self) -> bool:
        return self.never_sent == TIMED_OUT

    @property
    def committed(self) -> bool:
        return self.status is OperationStatus.COMMITTED


@dataclass(frozen=True)
class Received:
    """A signal that was delivered to the run."""

    name: str
    payload: Any
    sent_by: str
    step_number: int


@dataclass
class Usage:
    """What a decider used for one decision; `add` counts to it, also before it fails."""

    tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    def add(self, *, tokens: int = 0, cost_usd: Decimal | str | float = 0) -> None:
        """Count what was used. Raises ValueError for less than nothing or no number."""
        cost = Decimal(str(cost_usd))
        if not (0 <= tokens <= MOST_TOKENS and cost.is_finite() and 0 <= cost <= MOST_COST_USD):
            raise ValueError(
                f"used: {tokens} tokens and {cost_usd} USD; give 0 to {MOST_TOKENS} tokens and "
                f"0 to {MOST_COST_USD} USD"
            )
        self.tokens = min(self.tokens + int(tokens), MOST_TOKENS)
        self.cost_usd = min(self.cost_usd + cost, MOST_COST_USD)


@dataclass(frozen=True)
class BadAnswer:
    """What was wrong with an answer of this step: `kind` as in `LlmRequest.Problem`."""

    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """The input of a decider.

    `position` is the step's place in the plan, from 1: steps that a retry took back do not
    count, and those that a fork inherits do. `facts` are the committed effects among
    `observations` that were not taken back: what is known to have changed outside. `signals`
    are the newest that were delivered, oldest first. A decider that asks an llm by itself says
    what that used with `context.usage.add(tokens=…, cost_usd=…)`: the run's budget counts it.

    `constraints` are the agent's, and those of a run that handed over to this one. `handoff` is
    the newest artifact that replaces what came before `observations`, or that such a run gave it
    (JSON of `runs.artifact.Artifact`). `bad_answers` are those of this step that could not be
    used, oldest first. `requests` is where whoever asks an llm notes each request.
    `state` is what an llm is shown of the rows beside `observations`: JSON of `runs.canonical`.
    """

    run_id: str
    agent: str
    objective: str
    input: Any
    step_number: int
    observations: tuple[Observed, ...] = ()
    signals: tuple[Received, ...] = ()
    position: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    handoff: Mapping[str, Any] | None = None
    bad_answers: tuple[BadAnswer, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage, compare=False)
    requests: list["LlmRequest"] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        if not self.position:
            object.__setattr__(self, "position", self.step_number)

    @property
    def last(self) -> Observed | None:
        return self.observations[-1] if self.observations else None

    @property
    def facts(self) -> tuple[Observed, ...]:
        return tuple(
            seen
            for seen in self.observations
            if seen.committed and seen.is_write and not seen.corrected
        )


def encode_checkpoint(*, step_number: int, last: Observed | None) -> dict[str, Any]:
    """The canonical state after a step. Results stay in their rows and are referenced."""
    newest: dict[str, Any] | None = None
    if last is not None:
        newest = {"status": last.status}
        if last.operation_id:
            newest["operation"] = last.operation_id
        else:
            newest |= {"kind": last.kind, "step": last.step_number}
    return {"v": 1, "step": step_number, "last": newest}
