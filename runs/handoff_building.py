"""A handoff built from rows, without an llm: what no llm need be trusted for.

Guarantees: what is built passes `handoff_checks.py`, whatever the rows hold; sensitive values are
hidden in it; the newest survives where not everything fits, and what was left out is said.

Does not understand what happened: it lists it.
"""

from collections.abc import Iterable, Sequence
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
from runs.hiding import Hider
from runs.llm.rendering import show_error, take, to_json
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
    hider: Hider,
    whose: str = "",
) -> Artifact:
    """What the previous handoff said and still holds, and what came since; with `whose` that is
    where another run is told."""
    told = [_to_fact(one, hider) for one in seen if _is_fact(one)]
    facts = [*(previous.facts if previous else ()), *told]
    done = [*(previous.done if previous else ()), *(_to_line(one, hider) for one in seen)]
    if whose:
        facts = [one.model_copy(update={"text": _of(whose, one.text)}) for one in facts]
        done = [_of(whose, line) for line in done]
    bare = Artifact(
        open_items=tuple(
            OpenItem(id=one.id, status=one.status, note=_line(f"{one.what}: {one.due}"))
            for one in standing.items
        ),
        constraints=standing.constraints,
        notes=previous.notes if previous else "",
    )
    return _put_before(bare, [fact for fact in facts if _holds(fact, standing)], done)


def fill_in(artifact: Artifact, built: Artifact) -> Artifact:
    """What an llm wrote, with the facts that it left out of those that the rows show, and with all
    that they show where it does not say what was done."""
    facts = [fact for fact in built.facts if not _is_named(fact, artifact)]
    if artifact.done:
        return _put_before(artifact, facts, [])
    silent = artifact.model_copy(update={"notes": artifact.notes or built.notes})
    return _put_before(silent, facts, list(built.done))


def _put_before(artifact: Artifact, facts: list[Fact], done: list[str]) -> Artifact:
    """The artifact with these before its own, the newest of them where not all fit."""
    notes = artifact.notes
    kept_facts = facts[max(0, len(facts) + len(artifact.facts) - MOST_FACTS) :]
    kept_done = done[max(0, len(done) + len(artifact.done) - MOST_DONE) :]
    while True:
        is_cut = len(kept_facts) < len(facts) or len(kept_done) < len(done)
        whole = artifact.model_copy(
            update={
                "facts": (*kept_facts, *artifact.facts),
                "done": (*kept_done, *artifact.done),
                "notes": _say_left_out(notes) if is_cut else notes,
            }
        )
        if whole.free_bytes <= MOST_BYTES:
            return whole
        if kept_facts or kept_done:
            # Facts last: a deed without proof is worth less.
            longer = kept_done if len(kept_done) > len(kept_facts) // 2 else kept_facts
            del longer[: max(1, len(longer) // 4)]
        elif notes:
            # Of control characters each takes six bytes as JSON.
            notes = notes[: len(notes) // 2]
        else:
            return artifact


def _say_left_out(notes: str) -> str:
    if _LEFT_OUT in notes:
        return notes
    return f"{notes[: LONGEST_NOTES - len(_LEFT_OUT) - 1]}\n{_LEFT_OUT}".strip()


def _is_named(fact: Fact, artifact: Artifact) -> bool:
    if fact.operation:
        return fact.operation in artifact.named_operations
    return fact.step in artifact.named_steps


def _is_fact(seen: Observed) -> bool:
    """Writes, and what the run was told: what was read may have changed since."""
    return seen.committed and (seen.is_write or seen.kind != "call") and not seen.corrected


def _to_fact(seen: Observed, hider: Hider) -> Fact:
    if seen.operation_id:
        return Fact(text=_to_line(seen, hider), operation=seen.operation_id)
    return Fact(text=_to_line(seen, hider), step=seen.step_number)


def _holds(fact: Fact, standing: Standing) -> bool:
    if fact.step and fact.step not in standing.told_steps:
        return False
    return not fact.operation or fact.operation in standing.proofs


def _to_line(seen: Observed, hider: Hider) -> str:
    who = f"{seen.kind} " if seen.kind != "call" else ""
    line = f"step {seen.step_number}: {who}{hider.scrub(seen.tool)[:100]}"
    if seen.kind == "call":
        line += f" {_short(dict(seen.arguments), hider)}"
    if seen.author:
        line += f" by {seen.author[:60]}"
    line += f" {seen.status}"
    if seen.external_ref:
        line += f" as {seen.external_ref[:80]}"
    if seen.committed:
        line += f": {_short(seen.result, hider)}"
    elif seen.error:
        line += f": {show_error(seen, hider)}"
    return _line(line)


def _of(whose: str, text: str) -> str:
    return bound_text(f"{whose}: {text}", LONGEST_LINE)


def _short(value: Any, hider: Hider) -> str:
    text = to_json(hider.hide(value))
    kept = take(text, most_bytes=_VALUE_BYTES)
    return text if len(kept) == len(text) else f"{kept}…"


def _line(text: str) -> str:
    return bound_text(text, _LONGEST)
