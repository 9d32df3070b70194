"""A handoff built from rows, without an llm: what no llm need be trusted for.

Guarantees: what is built passes `handoff_checks.py`, whatever the rows hold; sensitive values are
hidden in it; the newest survives where not everything fits, and what was left out is said.

Does not understand what happened: it lists it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runs.artifact import (
    LONGEST_LINE,
    LONGEST_NOTES,
    MOST_BYTES,
    MOST_DONE,
    MOST_FACTS,
    Artifact,
    Fact,
    OpenItem,
)
from runs.context import Observed
from runs.llm.rendering import hide, hide_in_text, take, to_json
from runs.standing import Standing
from tools.redaction import bound_text

_VALUE_BYTES: Final = 120
_LONGEST: Final = LONGEST_LINE // 2
_LEFT_OUT: Final = "(older facts and deeds are left out here; they are in the record)"


@dataclass(frozen=True)
class Named:
    """The rows that a handoff may name as proof: operations, and steps that told something."""

    operations: frozenset[str]
    steps: frozenset[int]


def find_named(previous: Artifact | None, seen: Iterable[Observed]) -> Named:
    """What has to be looked up before `build`."""
    operations = set(previous.named_operations if previous else ())
    steps = set(previous.named_steps if previous else ())
    for one in seen:
        if one.operation_id:
            operations.add(one.operation_id)
        elif one.committed:
            steps.add(one.step_number)
    return Named(frozenset(operations), frozenset(steps))


def build(
    previous: Artifact | None,
    seen: Sequence[Observed],
    standing: Standing,
    *,
    names: Collection[str],
) -> Artifact:
    """What the previous handoff said and still holds, and what came since."""
    told = [_to_fact(one, names) for one in seen if _is_fact(one)]
    facts = [*(previous.facts if previous else ()), *told]
    facts = [fact for fact in facts if _holds(fact, standing)]
    done = [*(previous.done if previous else ()), *(_to_line(one, names) for one in seen)]
    notes = previous.notes if previous else ""
    is_cut = len(facts) > MOST_FACTS or len(done) > MOST_DONE
    facts, done = facts[-MOST_FACTS:], done[-MOST_DONE:]
    while _size(facts, done, notes) > MOST_BYTES:
        is_cut = True
        # Facts last: a deed without proof is worth less.
        longer = done if len(done) >= len(facts) // 2 and done else facts
        del longer[: max(1, len(longer) // 4)]
    if is_cut and _LEFT_OUT not in notes:
        notes = f"{notes[: LONGEST_NOTES - len(_LEFT_OUT) - 1]}\n{_LEFT_OUT}".strip()
    return Artifact(
        done=tuple(done),
        facts=tuple(facts),
        open_items=tuple(
            OpenItem(id=one.id, status=one.status, note=_line(f"{one.what}: {one.due}"))
            for one in standing.items
        ),
        constraints=standing.constraints,
        notes=notes,
    )


def _is_fact(seen: Observed) -> bool:
    """Writes, and what the run was told: what was read may have changed since."""
    return seen.committed and (seen.is_write or seen.kind != "call") and not seen.corrected


def _to_fact(seen: Observed, names: Collection[str]) -> Fact:
    if seen.operation_id:
        return Fact(text=_to_line(seen, names), operation=seen.operation_id)
    return Fact(text=_to_line(seen, names), step=seen.step_number)


def _holds(fact: Fact, standing: Standing) -> bool:
    if fact.operation:
        return fact.operation in standing.proofs
    return fact.step in standing.told_steps


def _to_line(seen: Observed, names: Collection[str]) -> str:
    who = f"{seen.kind} " if seen.kind != "call" else ""
    line = f"step {seen.step_number}: {who}{seen.tool[:100]}"
    if seen.kind == "call":
        line += f" {_short(dict(seen.arguments), names)}"
    if seen.author:
        line += f" by {seen.author[:60]}"
    line += f" {seen.status}"
    if seen.external_ref:
        line += f" as {seen.external_ref[:80]}"
    if seen.committed:
        line += f": {_short(seen.result, names)}"
    elif seen.error:
        line += f": {hide_in_text(seen.error, seen, names)}"
    return _line(line)


def _short(value: Any, names: Collection[str]) -> str:
    text = to_json(hide(value, names))
    kept = take(text, most_bytes=_VALUE_BYTES)
    return text if len(kept) == len(text) else f"{kept}…"


def _line(text: str) -> str:
    return bound_text(text, _LONGEST)


def _size(facts: list[Fact], done: list[str], notes: str) -> int:
    artifact = Artifact(facts=tuple(facts), done=tuple(done), notes=notes)
    return len(artifact.model_dump_json(exclude={"open_items", "constraints"}).encode())
