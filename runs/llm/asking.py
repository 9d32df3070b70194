"""Asking an llm for the next decision.

Guarantees: every request that left is noted in `context.requests`, whatever came of it.

Does not record anything, and does not ask again: `deciding.py` does, from rows.
"""

from runs.agents import Agent
from runs.context import Context
from runs.deciders import Llm
from runs.decisions import Decision
from runs.errors import LlmUnavailable


def ask_llm(llm: Llm, agent: Agent, context: Context) -> Decision:
    """The llm's decision. Raises `LlmUnavailable` or `UnusableAnswer`."""
    raise LlmUnavailable(llm=llm.name, why="not served yet")
