"""Which runs a worker can go on with: those whose agent and tools it knows.

Guarantees: a run that this worker does not serve is given back without a trace, for one
that does; what is unknown and served by nobody reaches a person after an hour, never
silence. What may be under way needs its tool alone, not the agent that asked for it.
"""

from typing import Final

from runs.agents import Agent, get_agent
from runs.errors import UnknownAgent
from runs.operations import open_operation
from runs.reconciliation import need_person
from runs.state import UNCERTAIN_STATES, UNDATED_STATES, RunState
from runs.work import Work
from tools.errors import UnknownTool
from tools.registry import get_tool
from tools.spec import RECONCILE_WITHIN

# A worker that lacks an agent or tool leaves the run to one that has it.
UNSERVED_SECONDS: Final = 15.0


def find_agent(work: Work) -> Agent | None:
    """The run's agent, if this worker knows it."""
    try:
        return get_agent(work.agent)
    except UnknownAgent:
        return None


def is_served(work: Work, agent: Agent | None) -> bool:
    """Whether this worker can do what is next. What may be under way needs its tool alone."""
    operation = open_operation(work)
    if operation is not None and not knows_tool(operation.tool):
        return False
    return agent is not None or work.state in (RunState.TOOL_RUNNING, *UNCERTAIN_STATES)


def leave_to_others(work: Work) -> None:
    """Give back what another worker may serve; but what is unknown is said, and not for ever."""
    operation = open_operation(work)
    if work.state is RunState.TOOL_STATUS_UNKNOWN and operation is not None:
        unknown_for = work.now - (operation.unknown_since or work.now)
        if unknown_for > RECONCILE_WITHIN:
            why = f"no worker knew its tool, {operation.tool}, within {RECONCILE_WITHIN}"
            return need_person(work, operation, why=why, overdue=True)
    work.release(wake_in=None if work.state in UNDATED_STATES else UNSERVED_SECONDS)


def knows_tool(tool: str) -> bool:
    """Whether this process has the tool."""
    try:
        get_tool(tool)
    except UnknownTool:
        return False
    return True
