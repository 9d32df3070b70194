"""Handing over: what a run tells the ones that it starts and that go on for it.

Guarantees: such a run has the handoff from its first moment on, by the statement that starts it,
so whoever decides for it finds the same one. It is built from the rows of the run that hands
over, without an llm, and is checked against them like every handoff. Its facts prove themselves
by operations of that run, and stay facts in the handoffs that come after; its constraints bind
from then on.

Does not tell what comes later: what was open stays the affair of the run that handed over.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from runs.agents import Agent
from runs.artifact import (
    LONGEST_NOTES,
    NOTHING_HANDED_OVER,
    SCHEMA_VERSION,
    Artifact,
    HandedOver,
)
from runs.canonical import MOST_OBSERVED, newest_closed_step
from runs.context import Context, Observed
from runs.handoff_building import build, find_named
from runs.handoff_checks import complete, find_problems
from runs.handoff_rows import find_newest
from runs.handoffs import BY_ROWS
from runs.hiding import Hider
from runs.history import load_window
from runs.llm.rendering import make_hider
from runs.models import AgentRun, Handoff, ToolOperation
from runs.standing import load_standing
from runs.work import Work
from tools.redaction import bound_text

_LONGEST_OBJECTIVE: Final = 1_000


def hand_over(
    work: Work,
    agent: Agent,
    *,
    begun: Mapping[ToolOperation, AgentRun],
    to: Sequence[AgentRun],
) -> None:
    """Plan the handoffs with which the runs of `to` begin; `begun` are all that the step starts."""
    handed = find_newest(run_id=work.run_id, origin=work.origin, has_voided=work.voided_steps > 0)
    seen = load_window(
        run_id=work.run_id,
        before_step=newest_closed_step(work) + 1,
        origin=work.origin,
        covered=handed.covered if handed is not None else None,
        most=MOST_OBSERVED,
    )
    previous = handed.artifact if handed is not None else Artifact()
    standing = load_standing(
        AgentRun.objects.get(id=work.run_id),
        constraints=agent.constraints,
        operations=find_named(previous, seen).operations,
        handed_over=previous.handed_over or NOTHING_HANDED_OVER,
        begun=begun,
    )
    hider = make_hider(_as_context(work, seen))
    built = build(_introduce(work, previous, hider), seen, standing, hider=hider, whose=work.agent)
    problems = find_problems(built, standing)
    assert not problems, f"what is built from rows agrees with them: {problems}"
    proven = HandedOver(
        constraints=standing.constraints, operations=tuple(sorted(built.named_operations))
    )
    whole = complete(built, standing, covers_step=0)
    body = whole.model_copy(update={"handed_over": proven or None}).model_dump(mode="json")
    work.change.handed_over += [
        Handoff(
            run_id=child.id,
            number=1,
            through_step=0,
            reason=Handoff.Reason.DELEGATED,
            schema_version=SCHEMA_VERSION,
            body=body,
            written_by=BY_ROWS,
            repairs=0,
        )
        for child in to
    ]


def _as_context(work: Work, seen: Sequence[Observed]) -> Context:
    return Context(
        run_id=str(work.run_id),
        agent=work.agent,
        objective=work.objective,
        input=work.input,
        step_number=work.step_number,
        observations=tuple(seen),
    )


def _introduce(work: Work, previous: Artifact, hider: Hider) -> Artifact:
    """What the run knows of what came before, and who it is. What it was told stands in a step of
    its own, which proves nothing elsewhere: it is kept as something that was done."""
    objective = bound_text(hider.scrub(work.objective), _LONGEST_OBJECTIVE)
    said = f"handed over by run {work.run_id} of {work.agent}, whose objective is: {objective}"
    told = [fact.text for fact in previous.facts if not fact.operation]
    return previous.model_copy(
        update={
            "notes": f"{said}\n{previous.notes}"[:LONGEST_NOTES].strip(),
            "done": (*told, *previous.done),
        }
    )
