"""Gauges of unknown operations: effects that may or may not have happened.

Guarantees: the same figures as on the desk (`runs/desk.py`), by tool.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter

from prometheus_client.metrics_core import Metric

from agentops.metrics.declared import find_tools, name_tool
from agentops.metrics.families import gauge, gauges
from runs import desk
from tools.registry import all_tools


def read() -> Iterator[Metric]:
    """Read them."""
    unknown, declared = desk.count_unknown(), find_tools()

    def by_tool(figure: Callable[[desk.UnknownOfTool], float]) -> dict[str, float]:
        counted = dict.fromkeys([spec.name for spec in all_tools()], 0.0)
        for one in unknown:
            tool = name_tool(one.tool, declared)
            counted[tool] = counted.get(tool, 0) + figure(one)
        return counted

    yield gauges(
        "operations_unknown",
        "Operations whose outcome is unknown.",
        label="tool",
        values=by_tool(attrgetter("count")),
    )
    yield gauges(
        "operations_unknown_overdue",
        "Operations that have been unknown for longer than their tool's objective.",
        label="tool",
        values=by_tool(attrgetter("overdue")),
    )
    yield gauge(
        "operations_unknown_oldest_seconds",
        "For how long the oldest unknown operation has been so, in seconds.",
        max((one.oldest_seconds for one in unknown), default=0),
    )
    yield gauges(
        "operations_key_expiring",
        "Unknown operations whose idempotency key ends at the provider soon, or has ended.",
        label="tool",
        values=by_tool(attrgetter("key_ending")),
    )
