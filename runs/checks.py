"""System checks of agents: what would fail at the first step is said at start."""

from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from runs.agents import all_agents
from runs.deciders import Llm
from tools.errors import UnknownTool
from tools.registry import get_tool


@register
def check_agents(**_: Any) -> list[CheckMessage]:
    """Every tool an agent names exists, and its decider can be asked."""
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
        if agent.on_failure == "compensate":
            found.append(
                Error(
                    f"Agent {agent.name!r} compensates on failure, which is not served yet.",
                    hint='Use on_failure="stop", and correct committed effects by hand.',
                    id="runs.E002",
                )
            )
        if isinstance(agent.decider, Llm):
            found.append(
                Warning(
                    f"Agent {agent.name!r} decides with an llm, which is not served yet.",
                    hint="Use a Script or a function until it is.",
                    id="runs.W001",
                )
            )
    return found
