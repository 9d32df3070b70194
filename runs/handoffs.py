"""Handoffs: a checked artifact that replaces everything before a step.

Guarantees: what is stored agrees with the rows.

Does not decide what the run does next.
"""

from runs.agents import Agent
from runs.context import Context
from runs.work import Work


def hand_off_if_full(work: Work, agent: Agent, context: Context) -> Context:
    """The context to decide with: the given one, or one that begins with a new handoff.

    Raises `LlmUnavailable` where nobody answers who would write it.
    """
    return context
