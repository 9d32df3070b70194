"""The durable kernel: runs, leases, commits, operations, reconciliation.

What agents are written with is importable from here, before Django is set up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runs.agents import Agent, Budget
    from runs.context import Context, Observed
    from runs.deciders import Llm, Script
    from runs.decisions import CallTools, Decision, Fail, Finish, ToolCall

_HOME = {
    "Agent": "agents",
    "Budget": "agents",
    "CallTools": "decisions",
    "Context": "context",
    "Decision": "decisions",
    "Fail": "decisions",
    "Finish": "decisions",
    "Llm": "deciders",
    "Observed": "context",
    "Script": "deciders",
    "ToolCall": "decisions",
}

__all__ = [
    "Agent",
    "Budget",
    "CallTools",
    "Context",
    "Decision",
    "Fail",
    "Finish",
    "Llm",
    "Observed",
    "Script",
    "ToolCall",
]


def __getattr__(name: str) -> Any:
    # Lazy, because Django imports this package before its models may be loaded.
    if name in _HOME:
        return getattr(import_module(f"runs.{_HOME[name]}"), name)
    raise AttributeError(f"module 'runs' has no attribute {name!r}")
