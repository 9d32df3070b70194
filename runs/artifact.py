"""The artifact of a handoff: what whoever goes on knows instead of the old events.

Guarantees: its form is checked and its size bounded, whoever wrote it; `observation`, `status`
and the like are filled in from rows, never taken from a text.

Does not say whether it is true: `handoff_checks.py` compares it with the database.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.json_schema import SkipJsonSchema

SCHEMA_VERSION: Final = 1
MOST_DONE: Final = 40
MOST_FACTS: Final = 60
MOST_NEXT: Final = 20
LONGEST_LINE: Final = 400
LONGEST_NOTES: Final = 4_000
# Of one artifact as JSON, what must be named left aside.
MOST_BYTES: Final = 24_000

Line = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LINE)]
_FORM: Final = ConfigDict(extra="forbid", frozen=True)


class Fact(BaseModel):
    """Something that is known, and the row that shows it: a committed operation, or the step in
    which a signal or an answer came."""

    model_config = _FORM

    text: Line
    operation: str = Field(default="", max_length=64, description="id of a COMMITTED operation")
    step: int = Field(default=0, ge=0, description="of a signal or an answer, else 0")
    # The observation that proves the operation; the runtime's own word.
    observation: SkipJsonSchema[int | None] = None


class OpenItem(BaseModel):
    """Something that is not settled, with the id and the status that the database has."""

    model_config = _FORM

    id: str = Field(max_length=64)
    status: str = Field(max_length=40)
    note: str = Field(default="", max_length=LONGEST_LINE)


class HandedOver(BaseModel):
    """What a run has from the one that started it: constraints that bind it too, and operations
    that prove facts though they are not its own."""

    model_config = _FORM

    constraints: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.constraints or self.operations)


NOTHING_HANDED_OVER: Final = HandedOver()


class Artifact(BaseModel):
    """What replaces everything before the newest events."""

    model_config = _FORM

    schema_version: SkipJsonSchema[Literal[1]] = 1
    done: tuple[Line, ...] = Field(
        default=(), max_length=MOST_DONE, description="what was done and decided, in order"
    )
    facts: tuple[Fact, ...] = Field(default=(), max_length=MOST_FACTS)
    open_items: tuple[OpenItem, ...] = Field(
        default=(), description="every item of not_settled, with its id and its status"
    )
    constraints: tuple[str, ...] = Field(default=(), description="all of the task, word for word")
    next_steps: tuple[Line, ...] = Field(default=(), max_length=MOST_NEXT)
    notes: str = Field(default="", max_length=LONGEST_NOTES)
    # From the run's row; the task says it whole.
    objective: SkipJsonSchema[str] = ""
    # The events up to this step are not shown any more.
    covers_step: SkipJsonSchema[int] = 0
    # Of a run to which another one handed over, through all its handoffs.
    handed_over: SkipJsonSchema[HandedOver | None] = None

    @property
    def free_bytes(self) -> int:
        """How long it is as JSON, without what it must name: that is as long as it is."""
        must = {"open_items", "constraints", "objective", "handed_over"}
        return len(self.model_dump_json(exclude=must).encode())

    @property
    def named_operations(self) -> frozenset[str]:
        return frozenset(fact.operation for fact in self.facts if fact.operation)

    @property
    def named_steps(self) -> frozenset[int]:
        return frozenset(fact.step for fact in self.facts if fact.step)


def schema_for_llm() -> dict[str, Any]:
    """JSON schema of what an llm writes."""
    return Artifact.model_json_schema()
