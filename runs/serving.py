"""Which runs a worker can go on with: those whose agent and tools it knows.

Guarantees: a run that this worker does not serve is given back without a trace, for one
that does; what is unknown and served by nobody reaches a person after a day, never
silence. What may be under way needs its tool alone, not the agent that asked for it.
"""

from datetime import timedelta
from typing import Final

from runs.agents import Agent, get_agent
from runs.errors import UnknownAgent
from runs.models import ToolOperation
from runs.operations import open_operation
from runs.reconciliation import need_person
from runs.state import UNCERTAIN_STATES, UNDATED_STATES, RunState
from runs.work import Work
from tools.errors import UnknownTool
from tools.registry import get_tool

# A worker that lacks an agent or tool leaves the run to one that has it.
UNSERVED_SECONDS: Final = 15.0
# An unknown operation that nobody asked about for so long is served by nobody.
FORSAKEN: Final = timedelta(hours=24)


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
    is_unknown = work.state is RunState.TOOL_STATUS_UNKNOWN
    if is_unknown and operation is not None and _is_forsaken(work, operation):
        why = f"no worker that knows its tool, {operation.tool}, asked about it for {FORSAKEN}"
        return need_person(work, operation, why=why, overdue=True)
    # Whoever serves it comes at its own date; one without a date gets none.
    is_dated = work.due_at is not None or work.state not in UNDATED_STATES
    work.release(wake_in=UNSERVED_SECONDS if is_dated else None)


def _is_forsaken(work: Work, operation: ToolOperation) -> bool:
    """Whether nobody, this worker or another, learned anything about it for long."""
    since = work.now - FORSAKEN
    if operation.unknown_since is None or operation.unknown_since > since:
        return False
    return not operation.observations.filter(observed_at__gt=since).exists()


def knows_tool(tool: str) -> bool:
    """Whether this process has the tool."""
    try:
        get_tool(tool)
    except UnknownTool:
        return False
    return True
