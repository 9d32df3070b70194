"""Whether an artifact agrees with the database.

Guarantees: nothing that is not settled can be left out or told otherwise than it stands; no
constraint can be dropped, changed or made up; no fact counts that no row of this run shows.

Does not judge prose: what stands in `done`, `next_steps` and `notes` is said, and not known.
"""

from collections.abc import Iterator

from runs.artifact import MOST_BYTES, Artifact, Fact
from runs.standing import Standing
from tools.canonical import check_json
from tools.errors import InvalidPayload


def find_problems(artifact: Artifact, standing: Standing) -> list[str]:
    """What is wrong with it, each in one sentence; none if it may be stored.

    `standing` has to know of every operation and step that the artifact names.
    """
    body = artifact.model_dump(mode="json")
    try:
        check_json(body, field="handoff")
    except InvalidPayload as error:
        return [str(error)]
    return [
        *_check_items(artifact, standing),
        *_check_constraints(artifact, standing),
        *(problem for fact in artifact.facts for problem in _check_fact(fact, standing)),
        *_check_size(artifact),
    ]


def complete(artifact: Artifact, standing: Standing, *, covers_step: int) -> Artifact:
    """The artifact as it is stored: with what the rows alone may say."""
    facts = [
        fact.model_copy(update={"observation": standing.proofs.get(fact.operation)})
        for fact in artifact.facts
    ]
    return artifact.model_copy(
        update={
            "facts": tuple(facts),
            # They agree, but one may stand there many times.
            "constraints": standing.constraints,
            "objective": standing.objective,
            "covers_step": covers_step,
            "handed_over": standing.handed_over or None,
        }
    )


def _check_items(artifact: Artifact, standing: Standing) -> Iterator[str]:
    stands = {item.id: item for item in standing.items}
    said = {item.id: item.status for item in artifact.open_items}
    for item in standing.items:
        if item.id not in said:
            yield f"open_items: {item.id} ({item.what}, {item.status}) is missing"
        elif said[item.id] != item.status:
            yield f"open_items: {item.id} is {item.status}, not {said[item.id]}"
    for name in said:
        if name not in stands:
            yield f"open_items: nothing that is not settled is called {name!r}"
    if len(said) != len(artifact.open_items):
        yield "open_items: an id stands there twice"


def _check_constraints(artifact: Artifact, standing: Standing) -> Iterator[str]:
    for constraint in standing.constraints:
        if constraint not in artifact.constraints:
            yield f"constraints: this one is missing or changed: {constraint!r}"
    for said in artifact.constraints:
        if said not in standing.constraints:
            yield f"constraints: the task has none like this: {said[:200]!r}"


def _check_fact(fact: Fact, standing: Standing) -> Iterator[str]:
    named = f"facts: {fact.text[:80]!r}"
    if not fact.operation and not fact.step:
        yield f"{named} names neither the operation nor the step that shows it"
    if fact.operation and fact.operation not in standing.proofs:
        yield (
            f"{named} names operation {fact.operation!r}, which is no committed operation of this "
            "run whose effect still stands"
        )
    if fact.step and fact.step not in standing.told_steps:
        yield f"{named} names step {fact.step}, in which no signal and no answer came"


def _check_size(artifact: Artifact) -> Iterator[str]:
    if (size := artifact.free_bytes) > MOST_BYTES:
        yield f"it is {size} bytes long without what it must name; {MOST_BYTES} are the most"
