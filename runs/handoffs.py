"""Handoffs: a checked artifact that replaces everything before the newest events.

Guarantees: what is planned agrees with the rows, whoever wrote it; once it is written, the context
is built from canonical state alone. Where the llm writes none that the rows agree with, it is
built from the rows.

Does not write it, and does not decide what the run does next: `deciding.py` does.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from runs.agents import Agent
from runs.artifact import SCHEMA_VERSION, Artifact
from runs.canonical import build_context, find_handed_over, newest_closed_step
from runs.context import Context
from runs.deciders import Llm
from runs.handoff_asking import MOST_TRIES, Written, ask_for_handoff
from runs.handoff_building import build, fill_in, find_named
from runs.handoff_checks import complete, find_problems
from runs.handoff_rows import Handed, count_handoffs
from runs.llm.messages import find_kept_from, is_full
from runs.llm.rendering import make_hider
from runs.models import AgentRun, Handoff
from runs.standing import Standing, load_standing
from runs.work import Work
from tools.redaction import bound_text

BY_ROWS: Final = "rows"
_NAME_LENGTH: Final = 100


def hand_off_if_full(work: Work, agent: Agent, context: Context) -> bool:
    """Plan a handoff where the llm's window is full, and say whether one is planned.

    Raises `LlmUnavailable` where nobody answers who would write it.
    """
    llm = agent.decider
    # A function or a script has a window of its own.
    if not isinstance(llm, Llm) or not is_full(llm, context):
        return False
    covers_step = newest_closed_step(work)
    if (kept_from := find_kept_from(llm, context)) is not None:
        # No further than that: a greater number is a step that a fork inherits.
        covers_step = min(kept_from - 1, covers_step)
    if covers_step <= _covered_so_far(work):
        # All that is left is one step, and that is shown in part.
        return False
    load = partial(_load, work, agent, context)
    if (asked := ask_for_handoff(llm, agent, context, load=load)) is None:
        written = _build(work, context, load(None), repairs=MOST_TRIES - 1)
    else:
        built = _build(work, context, asked.standing, repairs=0)
        written = replace(asked, artifact=fill_in(asked.artifact, built.artifact))
    _plan(work, written, covers_step=covers_step, reason=Handoff.Reason.WINDOW)
    return True


def rebuild(work: Work, agent: Agent, *, reason: Handoff.Reason = Handoff.Reason.VERSION) -> None:
    """Plan a handoff that is built from rows, so that the next context starts from it alone.

    It is written with the commit that the caller makes. Nothing is planned where no step was
    closed since the newest one.
    """
    context = build_context(work, agent)
    covers_step = newest_closed_step(work)
    if covers_step <= _covered_so_far(work):
        return
    written = _build(work, context, _load(work, agent, context, None), repairs=0)
    _plan(work, written, covers_step=covers_step, reason=reason)


def _own(work: Work) -> Handed | None:
    """The newest handoff, unless it is inherited."""
    is_own = work.handoff is not None and work.handoff.run_id == work.run_id
    return work.handoff if is_own else None


def _covered_so_far(work: Work) -> int:
    """The newest step that is covered; below 0 while not even what a fork inherits is."""
    if (own := _own(work)) is not None:
        return own.artifact.covers_step
    return 0 if work.origin is None else -1


def _load(work: Work, agent: Agent, context: Context, artifact: Artifact | None) -> Standing:
    """How the run stands, with the proofs that the artifact names, and those that one could."""
    named = find_named(_previous(work), context.observations)
    operations, steps = named.operations, named.steps
    if artifact is not None:
        operations |= artifact.named_operations
        steps |= artifact.named_steps
    return load_standing(
        AgentRun.objects.get(id=work.run_id),
        constraints=agent.constraints,
        operations=operations,
        steps=steps,
        handed_over=find_handed_over(work),
    )


def _build(work: Work, context: Context, standing: Standing, *, repairs: int) -> Written:
    hider = make_hider(context)
    artifact = build(_previous(work), context.observations, standing, hider=hider)
    problems = find_problems(artifact, standing)
    assert not problems, f"what is built from rows agrees with them: {problems}"
    return Written(artifact, standing, by=BY_ROWS, repairs=repairs)


def _previous(work: Work) -> Artifact | None:
    return work.handoff.artifact if work.handoff is not None else None


def _plan(work: Work, written: Written, *, covers_step: int, reason: Handoff.Reason) -> None:
    artifact = complete(written.artifact, written.standing, covers_step=covers_step)
    work.change.new_handoff = Handoff(
        number=count_handoffs(work.run_id) + 1,
        through_step=newest_closed_step(work),
        reason=reason,
        schema_version=SCHEMA_VERSION,
        body=artifact.model_dump(mode="json"),
        written_by=bound_text(written.by, _NAME_LENGTH),
        repairs=written.repairs,
    )
    # Read again from the rows, once it is one of them.
    work.window = work.handoff = None
