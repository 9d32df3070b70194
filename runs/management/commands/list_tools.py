"""`list_tools`: what agents may call."""

from typing import Any

from runs.access import READ
from runs.agents import READ_RESULT
from runs.management.base import KernelCommand
from runs.presenting import present_tool
from runs.tables import tools_table
from tools.registry import all_tools


class Command(KernelCommand):
    help = "List the registered tools and how each is recovered."

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        tools = [present_tool(spec) for spec in all_tools()]
        self.show(tools, tools_table(tools))
        if {tool.name for tool in tools} <= {READ_RESULT}:
            self.say(
                "No tool of yours is registered; list the apps that hold yours in AGENTOPS_APPS."
            )
