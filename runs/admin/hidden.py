"""Which names hold secrets on a page.

Guarantees: what an operation recorded as sensitive and what its tool declares now
are both hidden, so a declaration that was added later, or a call that was refused
before its declaration was copied, shows nothing either. For whatever belongs to a
run as a whole (input, result, decisions, checkpoints) the names of all its
operations and of all its agent's tools are hidden.

Does not find a secret that was stored under another name.
"""

from collections.abc import Iterable
from uuid import UUID

from runs.agents import get_agent
from runs.errors import UnknownAgent
from runs.models import ToolOperation
from tools.errors import UnknownTool
from tools.registry import get_tool


def names_of_operation(operation: ToolOperation) -> frozenset[str]:
    return frozenset(operation.sensitive) | _declared([operation.tool])


def names_of_run(*, run_id: UUID, agent: str) -> frozenset[str]:
    """One query: the distinct sensitive names of the run's operations."""
    recorded = (
        ToolOperation.objects.filter(run_id=run_id)
        .exclude(sensitive=[])
        .order_by()
        .values_list("sensitive", flat=True)
        .distinct()
    )
    return frozenset(name for names in recorded for name in names) | _declared(_tools_of(agent))


def _tools_of(agent: str) -> tuple[str, ...]:
    try:
        return get_agent(agent).tools
    except UnknownAgent:
        return ()


def _declared(tools: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for tool in tools:
        try:
            names.update(get_tool(tool).sensitive)
        except UnknownTool:
            continue
    return frozenset(names)
