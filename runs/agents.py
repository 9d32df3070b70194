"""Agents: a decider plus what it may use, registered by name.

Guarantees: an agent has one version, a digest of what decides its behaviour, and
every run and decision records it. Names are unique.

Does not say whether an agent is well formed; `checks.py` does, at start.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel

from runs.deciders import External, Llm, Script
from runs.errors import UnknownAgent
from runs.slo.objectives import Objectives
from tools.declarations import Limits, Rate, in_order
from tools.errors import UnknownTool
from tools.registry import all_tools, get_tool

Decider = Script | Llm | External | Callable[..., Any]
# The tool of `runs.tools` with which an llm reads what it was shown in part.
READ_RESULT: Final = "read_result"


@dataclass(frozen=True)
class Budget:
    """What one run may spend, its child runs included. None is no limit.

    `steps` counts decisions, `duration` runs from creation, `tokens` and `cost_usd` (a
    decimal string) count llm use. A run that would go beyond is paused and asks for more.
    `step_tokens` and `step_cost_usd` are the most that one decision (or one handoff) may use: they
    are reserved before the decider is asked, and what it did not use is given back with its answer.
    """

    steps: int | None = None
    tokens: int | None = None
    cost_usd: str | None = None
    duration: timedelta | None = None
    step_tokens: int = 0
    step_cost_usd: str = "0"


@dataclass(frozen=True)
class LlmLimits:
    """How much one llm is asked at most, over all workers and all agents that name it.

    A decision counts once, and so does a handoff: the second try of one is beside it, and an llm
    that is asked in place of this one has no limits of its own.
    """

    llm: str
    rate: Rate | None = None
    concurrency: int | None = None

    @property
    def name(self) -> str:
        return f"llm {self.llm}"

    @property
    def limits(self) -> Limits:
        return Limits(rate=self.rate, concurrency=self.concurrency)


@dataclass(frozen=True)
class Agent:
    """A decider, the tools it may call, and its limits. Creating one registers it.

    `concurrency` is how many of its runs may be at work at one time over all workers;
    `priority` orders its runs among each other (-100 to 100, higher first). After
    `repeats_allowed` equal calls with equal answers in a row a run is paused. `llm_limits` are
    kept before the decider is asked. `output` is the model that a final result fits, whoever
    decides. `constraints` are sentences that every context and every handoff carries whole.
    `objectives` are what its runs are held against in reports.
    """

    name: str
    decider: Decider
    tools: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    on_version_change: Literal["next_step", "rebuild_context", "reapprove", "finish_on_old"] = (
        "next_step"
    )
    on_failure: Literal["stop", "compensate"] = "stop"
    concurrency: int | None = None
    priority: int = 0
    repeats_allowed: int = 5
    llm_limits: LlmLimits | None = None
    output: type[BaseModel] | None = None
    constraints: tuple[str, ...] = ()
    objectives: Objectives = field(default_factory=Objectives)
    # Of a function: the text that this process runs. Before anybody asks, its file may be another.
    source: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("tools", "constraints"):
            match getattr(self, name):
                case str(alone):
                    # Not its letters.
                    object.__setattr__(self, name, (alone,))
                case list() | AbstractSet() as several:
                    object.__setattr__(self, name, in_order(several))
        object.__setattr__(self, "source", _read_source(self.decider))
        _register(self)

    @property
    def decider_name(self) -> str:
        match self.decider:
            case Script():
                return "script"
            case Llm() as llm:
                return f"llm {llm.name}"
            case External():
                return "external"
            case _:
                return f"function {getattr(self.decider, '__qualname__', 'decider')}"

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """What its decisions may call: its tools, and what every llm may read with."""
        match self.decider:
            case Llm():
                return (*self.tools, READ_RESULT)
            case External(any_tool=True):
                return tuple(spec.name for spec in all_tools() if spec.name != READ_RESULT)
            case _:
                return self.tools

    @property
    def version(self) -> str:
        """A digest of what decides: the decider's own text, the tools in their versions, the output
        and the constraints."""
        return _version_of(self)

    @property
    def content(self) -> dict[str, Any]:
        """What `version` is a digest of, as JSON."""
        return _content_of(self)


class DuplicateAgent(Exception):
    """Two agents of one name were created."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Two agents are called {name!r}; names are unique.")


_AGENTS: Final[dict[str, Agent]] = {}
_VERSIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {}


# Who calls through the gateway and is no agent of anybody's here.
EXTERNAL: Final = "external"


def get_agent(name: str) -> Agent:
    """The registered agent; raises `UnknownAgent`."""
    try:
        return _AGENTS[name]
    except KeyError:
        raise UnknownAgent(name=name, known=_AGENTS) from None


def all_agents() -> tuple[Agent, ...]:
    """Every registered agent, by name."""
    return tuple(_AGENTS[name] for name in sorted(_AGENTS))


def forget_agents(names: Iterable[str]) -> None:
    """Take agents out of the registry again: for tests that define some."""
    for name in names:
        _AGENTS.pop(name, None)
        _VERSIONS.pop(name, None)


def _register(agent: Agent) -> None:
    if agent.name in _AGENTS:
        raise DuplicateAgent(agent.name)
    _AGENTS[agent.name] = agent


def _version_of(agent: Agent) -> str:
    # Tools register after the agents that name them, and in tests again and again.
    key = (agent.name, *_tool_versions(agent).values())
    known, version = _VERSIONS.get(agent.name, ((), ""))
    if known != key:
        what = json.dumps(_content_of(agent), sort_keys=True)
        version = hashlib.sha256(what.encode()).hexdigest()[:16]
        _VERSIONS[agent.name] = (key, version)
    return version


def may_be_called(name: str) -> bool:
    """Whether calls of an agent elsewhere may stand behind what the agent of this name does.

    So they may where it is not known here: of what others serve, operations are settled too.
    """
    agent = _AGENTS.get(name)
    return agent is None or isinstance(agent.decider, External)


def _content_of(agent: Agent) -> dict[str, Any]:
    return {
        "name": agent.name,
        "decider": agent.source or repr((agent.decider_name, agent.decider)),
        "tools": _tool_versions(agent),
        "output": agent.output.model_json_schema() if agent.output is not None else None,
        "constraints": list(agent.constraints),
    }


def _tool_versions(agent: Agent) -> dict[str, str]:
    versions: dict[str, str] = {}
    if isinstance(agent.decider, External) and agent.decider.any_tool:
        # It decides nothing by them, and is no other agent for each tool that is added.
        return versions
    for name in agent.allowed_tools:
        try:
            versions[name] = get_tool(name).version
        except UnknownTool:
            versions[name] = ""
    return versions


def _read_source(decider: Decider) -> str:
    if isinstance(decider, Script | Llm | External):
        return ""
    try:
        return inspect.getsource(decider)
    except (OSError, TypeError):
        # Built at run time: its qualified name is all there is.
        return repr(getattr(decider, "__qualname__", type(decider)))


Agent(name=EXTERNAL, decider=External(any_tool=True), repeats_allowed=50)
