"""`list_agents`: what may be started."""

from typing import Any

from runs.access import READ
from runs.agents import all_agents
from runs.management.base import KernelCommand
from runs.presenting import present_agent
from runs.tables import agents_table


class Command(KernelCommand):
    help = "List the registered agents."

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        agents = [present_agent(agent) for agent in all_agents()]
        self.show(agents, agents_table(agents))
        if not agents:
            self.say("No agent is registered; list the apps that hold yours in AGENTOPS_APPS.")
