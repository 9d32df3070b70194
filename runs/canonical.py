"""The canonical state of a run, as whoever decides next is shown it.

Guarantees: it is read from rows alone, so any worker builds the same context; what was read
once is kept up to date in memory for as long as the run is held; it costs the same however long
the run is.

Does not ask anybody anything.
"""

from collections import deque
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from runs.agents import Agent
from runs.artifact import NOTHING_HANDED_OVER, HandedOver
from runs.budgets import limits_of
from runs.context import WINDOW, Context
from runs.deciders import Llm
from runs.handoff_rows import find_newest
from runs.history import load_window, to_received
from runs.standing import find_afterwards, find_proofs
from runs.state import RunState
from runs.work import Work

# An llm is shown what came since its newest handoff. Well before there are so many, another one
# is written: the rest is what one step may add to that.
MOST_OBSERVED: Final = 400
NEWEST_FACTS: Final = 20


def build_context(work: Work, agent: Agent) -> Context:
    """The input of the agent's decider for the open step, or for the next one."""
    is_llm = isinstance(agent.decider, Llm)
    if work.window is None:
        _read_window(work, agent)
    assert work.window is not None, "it was just read"
    context = Context(
        run_id=str(work.run_id),
        agent=work.agent,
        objective=work.objective,
        input=deepcopy(work.input),
        labels=dict(work.labels),
        step_number=work.step_number,
        position=work.position,
        observations=tuple(work.window),
        signals=to_received(work.window),
        constraints=tuple(dict.fromkeys((*agent.constraints, *find_handed_over(work).constraints))),
        handoff=work.handoff.to_context() if work.handoff is not None else None,
        bad_answers=tuple(work.bad_answers),
    )
    return replace(context, state=_read_state(work, agent, context)) if is_llm else context


def find_handed_over(work: Work) -> HandedOver:
    """What the run that started this one handed over to it, once the window was read."""
    handed = work.handoff.artifact.handed_over if work.handoff is not None else None
    return handed or NOTHING_HANDED_OVER


def newest_closed_step(work: Work) -> int:
    """The last step that may be spoken about: the open one has done nothing yet."""
    return work.step_number if work.state is RunState.READY else work.step_number - 1


def _read_window(work: Work, agent: Agent) -> None:
    is_llm = isinstance(agent.decider, Llm)
    # Nobody else's runs have one, and asking would cost each of their turns a query.
    is_told = work.parent_id is not None or work.origin is not None
    if is_llm or is_told or agent.on_version_change == "rebuild_context":
        work.handoff = find_newest(
            run_id=work.run_id, origin=work.origin, has_voided=work.voided_steps > 0
        )
    # A function's window is what it is: it may take having seen nothing for having done nothing.
    covered = work.handoff.covered if is_llm and work.handoff is not None else None
    most = MOST_OBSERVED if is_llm else WINDOW
    seen = load_window(
        run_id=work.run_id,
        before_step=newest_closed_step(work) + 1,
        origin=work.origin,
        covered=covered,
        most=most,
    )
    work.window = deque(seen, maxlen=most)


def _read_state(work: Work, agent: Agent, context: Context) -> dict[str, Any]:
    """What an llm is shown of the rows beside the events: as they are at this moment."""
    newest = {seen.operation_id: seen for seen in context.facts[-NEWEST_FACTS:]}
    handed = work.handoff.artifact.named_operations if work.handoff is not None else frozenset()
    proofs = find_proofs(
        work.run_id,
        origin=work.origin,
        operations=handed | newest.keys(),
        handed_over=find_handed_over(work).operations,
    )
    state: dict[str, Any] = {
        "time": f"{work.now:%Y-%m-%dT%H:%M:%SZ}",
        "facts": [
            {"operation": name, "tool": seen.tool, "step": seen.step_number}
            | {"observation": proofs[name]}
            for name, seen in newest.items()
            if name in proofs
        ],
        "not_settled": [item.to_json() for item in find_afterwards(work.run_id)],
    }
    if left := _budget_left(work, agent):
        state["budget_left"] = left
    # Said in a handoff, and corrected since: whoever reads it must not build on it.
    if gone := sorted(handed - proofs.keys()):
        state["handed_facts_that_hold_no_more"] = gone
    return state


def _budget_left(work: Work, agent: Agent) -> dict[str, Any]:
    limits = limits_of(own=work.budget, budget=agent.budget, created_at=work.created_at)
    left: dict[str, Any] = {}
    if limits.steps is not None:
        left["steps"] = max(0, limits.steps - work.spent.steps)
    if limits.tokens is not None:
        left["tokens"] = max(0, limits.tokens - work.spent.tokens)
    if limits.cost_usd is not None:
        left["cost_usd"] = f"{max(0, limits.cost_usd - work.spent.cost_usd):f}"
    if limits.until is not None:
        left["until"] = f"{limits.until:%Y-%m-%dT%H:%M:%SZ}"
    return left
