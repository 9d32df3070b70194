"""Which names hold secrets, wherever rows are shown.

Guarantees: what an operation recorded as sensitive and what its tool declares today are
both hidden, so a declaration that was added later hides what came before it. What
belongs to a run as a whole (input, result, decisions) is hidden by the names of its
agent's tools and of its operations.

Does not find a secret that was stored under a name that nobody declared.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from runs.agents import get_agent
from runs.built_in import is_delegation
from runs.errors import UnknownAgent
from runs.models import AgentRun, ToolOperation
from tools.errors import UnknownTool
from tools.redaction import REDACTED, find_secrets, redact, scrub
from tools.registry import all_tools, get_tool

# So many calls, the newest, are searched for what a text may repeat.
MOST_CALLS: Final = 500
# What is asked of each of the operations.
_SHOWN: Final = ("step_number", "tool", "tool_version", "arguments", "sensitive")


@dataclass(frozen=True)
class Secrets:
    """What is hidden in the texts of one run.

    `known` is JSON in which the values of sensitive names are found; `calls` are operations of
    the run, which know values and names of their own.
    """

    known: Any
    names: frozenset[str]
    calls: Sequence[ToolOperation] = ()

    def without(self, text: str) -> str:
        """A text about the run, or about a step of it."""
        for secret in self._values:
            text = text.replace(secret, REDACTED)
        return text

    @cached_property
    def _values(self) -> list[str]:
        found = set(find_secrets(self.known, self.names))
        for operation in self.calls:
            found.update(find_secrets(operation.arguments, names_of_operation(operation)))
        return sorted(found, key=len, reverse=True)

    def hide(self, value: Any) -> Any:
        """A JSON value, with its texts."""
        return self.scrub(redact(value, self.names))

    def scrub(self, value: Any) -> Any:
        """The same with its own names: of what the runtime wrote, where a secret may be called
        like one of them."""
        match value:
            case str():
                return self.without(value)
            case dict():
                return {key: self.scrub(item) for key, item in value.items()}
            case list():
                return [self.scrub(item) for item in value]
        return value


def load_secrets(
    run: AgentRun, *, steps: Collection[int], names: frozenset[str] | None = None
) -> Secrets:
    """For texts about these steps, which may repeat what calls before them were given; `names` are
    the run's, where they are known. One query; two for a run of very many calls."""
    calls = ToolOperation.objects.filter(run_id=run.pk).order_by("-step_number")
    shown = calls.filter(Q(step_number__in=steps) | ~Q(sensitive=[])).only(*_SHOWN)
    found = list(shown[:MOST_CALLS])
    if names is None and len(found) < MOST_CALLS:
        # All that recorded anything are among them.
        recorded = frozenset(name for call in found for name in call.sensitive)
        names = recorded | (_declared_by(run.agent) or frozenset())
    elif names is None:
        names = names_of_run(run_id=run.pk, agent=run.agent)
    return Secrets(known=run.input, names=names, calls=found)


def names_of_operation(operation: ToolOperation) -> frozenset[str]:
    """No query: what its row says, and what its tool says today.

    What another run is given, and answers, has the secrets of that run's agent.
    """
    names = frozenset(operation.sensitive) | _declared([operation.tool])
    if is_delegation(operation):
        names |= _declared_by(operation.arguments.get("agent", "")) or frozenset()
    return names


def names_of_call(tool: str) -> frozenset[str]:
    """Of a call that is no operation yet, or not any more: what its tool says today."""
    return _declared([tool])


def without_secrets(text: str, operation: ToolOperation | None) -> str:
    """A text about an operation without the values that are hidden of it."""
    if operation is None:
        return text
    return scrub(text, operation.arguments, names_of_operation(operation))


def names_of_run(*, run_id: UUID, agent: str) -> frozenset[str]:
    """For the page of one run. One query over its operations."""
    recorded = frozenset(name for _, name in _recorded([run_id]))
    return recorded | (_declared_by(agent) or frozenset())


def names_of_runs(agents: Mapping[UUID, str]) -> dict[UUID, frozenset[str]]:
    """For a page of runs, given each one's agent. At most one query, and as a rule none.

    The operations are asked only for runs whose agent is not registered here.
    """
    hidden = {run_id: _declared_by(agent) for run_id, agent in agents.items()}
    unserved = [run_id for run_id, names in hidden.items() if names is None]
    found = {run_id: names or frozenset() for run_id, names in hidden.items()}
    if unserved:
        for run_id, name in _recorded(unserved):
            found[run_id] |= {name}
    return found


def names_of_agent(agent: str) -> frozenset[str]:
    """For what is to be a run's input. Of an agent that is gone: what any tool declares."""
    declared = _declared_by(agent)
    return _declared(spec.name for spec in all_tools()) if declared is None else declared


def _declared_by(agent: str) -> frozenset[str] | None:
    """What the tools of an agent declare; None for an agent that is not registered."""
    try:
        # Whoever calls through the gateway may call tools that its agent does not name.
        return _declared(get_agent(agent).allowed_tools)
    except UnknownAgent:
        return None


def _declared(tools: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for tool in tools:
        try:
            names.update(get_tool(tool).sensitive)
        except UnknownTool:
            continue
    return frozenset(names)


def _recorded(run_ids: list[UUID]) -> Iterator[tuple[UUID, str]]:
    lists = (
        ToolOperation.objects.filter(run_id__in=run_ids)
        .exclude(sensitive=[])
        .order_by()
        .values_list("run_id", "sensitive")
        .distinct()
    )
    return ((run_id, name) for run_id, names in lists for name in names)
