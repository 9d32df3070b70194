"""Which runs a worker can go on with: those whose agent and tools it knows.

Guarantees: a run that this worker does not serve is given back without a journal row, for one
that does, and a call that waits for its tool says so; what is unknown and served by nobody
reaches a person after a day, never silence. What may be under way needs its tool alone, not
the agent that asked for it, nor its version; nothing else is done to a run whose agent this
worker does not have, or may not take over.
"""

from datetime import timedelta
from typing import Final

from runs.agents import Agent, get_agent
from runs.batches import find_reach
from runs.built_in import is_built_in
from runs.errors import UnknownAgent
from runs.models import TEXT_LIMIT, ToolOperation
from runs.outcomes import need_person, park, park_unknown
from runs.state import UNCERTAIN_STATES, UNDATED_STATES, OperationStatus, RunState
from runs.versions import is_arguments_version_served
from runs.work import Work
from tools.errors import UnknownTool
from tools.redaction import bound_text
from tools.registry import get_tool

# A worker that lacks an agent or tool leaves the run to one that has it.
UNSERVED_SECONDS: Final = 15.0
# An unknown operation that nobody asked about for so long is served by nobody.
FORSAKEN: Final = timedelta(hours=24)


def find_agent(work: Work) -> Agent | None:
    """The run's agent, if this worker knows it."""
    return _find_agent(work.agent)


def is_served(work: Work, agent: Agent | None) -> bool:
    """Whether this worker can do what is next. What may be under way needs its tool alone."""
    reach = find_reach(work)
    if reach and not any(knows_tool(operation) for operation in reach):
        return False
    if work.saga is not None:
        return True
    return agent is not None or work.state in (RunState.TOOL_RUNNING, *UNCERTAIN_STATES)


def settles_only(work: Work, agent: Agent | None) -> bool:
    """Whether what may be under way is all that this worker may touch of the run."""
    if work.saga is not None:
        return False
    if agent is None:
        return True
    return agent.on_version_change == "finish_on_old" and agent.version != work.agent_version


def leave_to_others(work: Work) -> None:
    """Give back what another worker may serve; but what is unknown is said, and not for ever."""
    before = work.state
    for operation in find_reach(work):
        leave_operation(work, operation)
    # Whoever serves it comes at its own date; one without a date gets none.
    was_dated = work.due_at is not None and work.state is before
    is_dated = was_dated or work.state not in UNDATED_STATES
    work.release(wake_in=UNSERVED_SECONDS if is_dated else None)


def leave_operation(work: Work, operation: ToolOperation) -> None:
    """Leave an operation whose tool is not known here to others; one that is unknown and that
    nobody serves gets to a person."""
    is_asked_about = operation.status == OperationStatus.UNKNOWN
    if is_asked_about and operation.needs_person_since is None and _is_forsaken(work, operation):
        why = f"no worker that knows its tool, {operation.tool}, asked about it for {FORSAKEN}"
        need_person(work, operation, why=why, overdue=True)
        return park_unknown(work, operation, seconds=None)
    if operation.status == OperationStatus.PREPARED and not knows_tool(operation):
        why = f"not sent yet: the worker that looked at it last has no tool {operation.tool}"
        if operation.error != (error := bound_text(why, TEXT_LIMIT)):
            operation.error = error
            work.change.touch(operation)
    park(work, operation, seconds=UNSERVED_SECONDS)


def _is_forsaken(work: Work, operation: ToolOperation) -> bool:
    """Whether nobody, this worker or another, learned anything about it for long."""
    since = work.now - FORSAKEN
    if operation.unknown_since is None or operation.unknown_since > since:
        return False
    return not operation.observations.filter(observed_at__gt=since).exists()


def may_others_send(operation: ToolOperation, *, agent: str, pinned: str) -> bool:
    """Whether a living worker takes the operation's arguments as they were stored, and may claim
    its run: of a run that is pinned to this process's version, it has an older one."""
    ours = _find_agent(agent)
    if ours is not None and ours.version == pinned:
        return False
    return is_arguments_version_served(operation.tool, operation.arguments_version)


def knows_tool(operation: ToolOperation) -> bool:
    """Whether this process has its tool; what the kernel itself carries out, each has."""
    if is_built_in(operation):
        return True
    try:
        get_tool(operation.tool)
    except UnknownTool:
        return False
    return True


def _find_agent(name: str) -> Agent | None:
    try:
        return get_agent(name)
    except UnknownAgent:
        return None
