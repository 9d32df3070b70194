"""System checks of agents: what would fail at the first step is said at start."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from runs.agents import Agent, all_agents
from runs.built_in import BUILT_IN
from runs.deciders import Llm
from tools.canonical import check_json
from tools.errors import InvalidPayload, UnknownTool
from tools.registry import all_tools, get_tool
from tools.spec import ToolSpec


@register
def check_agents(**_: Any) -> list[CheckMessage]:
    """Every tool an agent names exists, its texts can be stored, and its pivots are known."""
    found: list[CheckMessage] = []
    for agent in all_agents():
        for name in agent.tools:
            try:
                get_tool(name)
            except UnknownTool as error:
                found.append(
                    Error(
                        f"Agent {agent.name!r} names a tool that is not registered: {error}",
                        hint="Correct the name, or add the tool's app to AGENTOPS_APPS.",
                        id="runs.E001",
                    )
                )
        found += _check_texts(agent)
        if agent.on_failure == "compensate":
            found += [_warn_of_pivot(agent, spec) for spec in _find_pivots(agent)]
    return found


def _check_texts(agent: Agent) -> Iterator[CheckMessage]:
    """What a worker puts on record before its first claim."""
    texts: dict[str, Any] = {"constraints": list(agent.constraints)}
    if isinstance(agent.decider, Llm):
        texts["instructions"] = agent.decider.instructions
    for name, text in texts.items():
        try:
            check_json(text, field=name)
        except InvalidPayload as error:
            yield Error(
                f"Agent {agent.name!r} has a text that cannot be stored: {error}",
                hint="No worker that serves it could put on record what it serves.",
                id="runs.E019",
            )


@register
def check_tool_names(**_: Any) -> list[CheckMessage]:
    """No tool is called like an operation of the kernel's own."""
    return [
        Error(
            f"The tool {spec.name!r} is called like what the kernel itself carries out.",
            hint='Give the tool another name: @tool(name="…").',
            id="runs.E020",
        )
        for spec in all_tools()
        if spec.name in BUILT_IN
    ]


def _find_pivots(agent: Agent) -> Iterator[ToolSpec]:
    """The agent's writes that nothing is declared to correct."""
    for name in agent.tools:
        with suppress(UnknownTool):
            spec = get_tool(name)
            if spec.effect_type.is_write and spec.compensation_handler is None:
                yield spec


def _warn_of_pivot(agent: Agent, spec: ToolSpec) -> CheckMessage:
    return Warning(
        f"Agent {agent.name!r} compensates on failure, and its tool {spec.name!r} has no "
        "compensation_handler: once that is committed (the pivot), a run waits for a person "
        "instead of being compensated.",
        hint="Give it a compensation_handler, or call it last.",
        id="runs.W002",
    )
