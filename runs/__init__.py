"""The durable kernel: runs, leases, commits, operations, reconciliation.

What agents are written with is importable from here, before Django is set up.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runs.agents import Agent, Budget, LlmLimits
    from runs.context import Context, Observed, Received
    from runs.deciders import External, Llm, Script
    from runs.decisions import (
        Ask,
        CallTools,
        Compensate,
        Decision,
        Delegate,
        DelegateAll,
        Fail,
        Finish,
        Sleep,
        ToolCall,
        WaitFor,
    )
    from runs.slo.objectives import Objectives

_HOME = {
    "Agent": "agents",
    "Ask": "decisions",
    "Budget": "agents",
    "CallTools": "decisions",
    "Compensate": "decisions",
    "Context": "context",
    "Decision": "decisions",
    "Delegate": "decisions",
    "DelegateAll": "decisions",
    "External": "deciders",
    "Fail": "decisions",
    "Finish": "decisions",
    "Llm": "deciders",
    "LlmLimits": "agents",
    "Objectives": "slo.objectives",
    "Observed": "context",
    "Received": "context",
    "Script": "deciders",
    "Sleep": "decisions",
    "ToolCall": "decisions",
    "WaitFor": "decisions",
}

__all__ = [
    "Agent",
    "Ask",
    "Budget",
    "CallTools",
    "Compensate",
    "Context",
    "Decision",
    "Delegate",
    "DelegateAll",
    "External",
    "Fail",
    "Finish",
    "Llm",
    "LlmLimits",
    "Objectives",
    "Observed",
    "Received",
    "Script",
    "Sleep",
    "ToolCall",
    "WaitFor",
]


def __getattr__(name: str) -> Any:
    # Lazy, because Django imports this package before its models may be loaded.
    if name in _HOME:
        return getattr(import_module(f"runs.{_HOME[name]}"), name)
    raise AttributeError(f"module 'runs' has no attribute {name!r}")
