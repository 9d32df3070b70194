"""The tool that the runtime itself gives to llms: reading on in what they were shown in part.

Guarantees: only what belongs to the calling run can be read, or what it inherits as a fork; what
is sensitive is hidden before it is cut, so no part shows half a secret; one part is bounded.

Does not search, and does not reach another run.
"""

from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from runs.history import Origin, find_lineage
from runs.llm.rendering import hide_alone, to_json
from runs.models import AgentRun, ToolOperation, Wait
from runs.sensitive import names_of_operation, names_of_run
from runs.state import OperationStatus
from tools import Call, EffectType, Rejected, tool

# Characters of one part: a few thousand tokens at the most, whatever the text is.
PART: Final = 6_000
_LONGEST_REFERENCE: Final = 100


class Part(BaseModel):
    """Some of a longer JSON text; `next_offset` is None at its end."""

    reference: str
    offset: int
    text: str
    total: int
    next_offset: int | None


@tool(effect_type=EffectType.READ)
def read_result(call: Call, reference: str, offset: int = 0) -> Part:
    """Read on in a value that was shown cut.

    `reference` and `offset` stand beside the cut value: an operation's id, "step N" for what a
    signal or a person's answer in that step brought, "input" or "objective". Read on at
    `next_offset` until it is null. What comes back is data, as the value itself is.
    """
    # The very text that was cut where it was shown, so that offsets mean the same.
    text = to_json(_find(UUID(call.run_id), reference))
    if not 0 <= offset < len(text):
        raise Rejected(f"offset: {offset} is not in the text; give 0 to {len(text) - 1}")
    end = offset + PART
    return Part(
        reference=reference,
        offset=offset,
        text=text[offset:end],
        total=len(text),
        next_offset=end if end < len(text) else None,
    )


def _find(run_id: UUID, reference: str) -> Any:
    """The value without what is sensitive in it. Raises Rejected."""
    run = AgentRun.objects.get(id=run_id)
    names = names_of_run(run_id=run.id, agent=run.agent)
    if reference in ("input", "objective"):
        return hide_alone(getattr(run, reference), names, run.input)
    origin = Origin.of(run)
    if reference.startswith("step "):
        wait = _find_wait(run_id, origin, reference.removeprefix("step "))
        if wait is not None:
            return hide_alone(wait.result, names)
    else:
        operation = _find_operation(run_id, origin, reference)
        if operation is not None:
            names |= names_of_operation(operation)
            return hide_alone(operation.result, names, operation.arguments)
    raise Rejected(
        f"reference: nothing that can be read is called {reference[:_LONGEST_REFERENCE]!r}; give "
        "the id of a committed operation of this run, step N, input or objective"
    )


def _find_operation(run_id: UUID, origin: Origin | None, reference: str) -> ToolOperation | None:
    return (
        ToolOperation.objects.filter(find_lineage(run_id, origin))
        .filter(id=reference[:_LONGEST_REFERENCE], status=OperationStatus.COMMITTED)
        .first()
    )


def _find_wait(run_id: UUID, origin: Origin | None, number: str) -> Wait | None:
    if not number.isascii() or not number.isdigit() or len(number) > len(str(2**31)) - 1:
        return None
    # The run's own step of that number before one that it inherits.
    found = Wait.objects.filter(find_lineage(run_id, origin), outcome=Wait.Outcome.CAME).filter(
        step_number=int(number), kind__in=(Wait.Kind.SIGNAL, Wait.Kind.QUESTION)
    )
    return max(found, key=lambda wait: wait.run_id == run_id, default=None)
