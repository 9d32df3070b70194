"""System checks over agents' limits: a value that orders or limits nothing is an error at start.

Guarantees: a `concurrency` or a `priority` that the database could not count or sort with is
named with its agent, its value and what to write in its place.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage, Error, register

from runs.agents import Agent, all_agents
from tools.checks_limits import is_number

MOST_HELD: Final = 100_000
MOST_PRIORITY: Final = 100


@register
def check_agent_limits(**_: Any) -> list[CheckMessage]:
    """All messages about the limits of all agents."""
    return [message for agent in all_agents() for message in _check(agent)]


def _check(agent: Agent) -> Iterator[CheckMessage]:
    concurrency, priority = agent.concurrency, agent.priority
    if concurrency is not None and not is_number(concurrency, least=1, most=MOST_HELD):
        yield Error(
            f"concurrency={concurrency!r} is no number of runs at one time.",
            hint=f"Give a whole number from 1 to {MOST_HELD}, or leave it out for no limit.",
            obj=f"agent {agent.name}",
            id="runs.E010",
        )
    if not is_number(priority, least=-MOST_PRIORITY, most=MOST_PRIORITY):
        yield Error(
            f"priority={priority!r} is no priority.",
            hint=f"Give a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}: higher is first.",
            obj=f"agent {agent.name}",
            id="runs.E011",
        )
