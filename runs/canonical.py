"""The canonical state of a run, as whoever decides next is shown it.

Guarantees: it is read from rows alone, so any worker builds the same context; what was read
once is kept up to date in memory for as long as the run is held.

Does not ask anybody anything.
"""

from collections import deque
from copy import deepcopy

from runs.agents import Agent
from runs.context import WINDOW, Context
from runs.history import load_window, to_received
from runs.work import Work


def build_context(work: Work, agent: Agent) -> Context:
    """The input of the agent's decider for the open step."""
    if work.window is None:
        seen = load_window(run_id=work.run_id, before_step=work.step_number, origin=work.origin)
        work.window = deque(seen, maxlen=WINDOW)
    return Context(
        run_id=str(work.run_id),
        agent=work.agent,
        objective=work.objective,
        input=deepcopy(work.input),
        labels=dict(work.labels),
        step_number=work.step_number,
        position=work.position,
        observations=tuple(work.window),
        signals=to_received(work.window),
        constraints=agent.constraints,
    )
