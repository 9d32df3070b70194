"""Calling a registered tool as the kernel does, without a kernel.

Guarantees: arguments are validated by the tool; every send of one operation has the same id, key
and arguments; what the function said and what a look-up said come back as the kernel would
read them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from tools import Call, Reconciled
from tools.execution import execute, look_up
from tools.outcome import Outcome
from tools.registry import get_tool

_numbers = count(1)


@dataclass
class Operation:
    """One intended effect: sent and looked up as often as the test says."""

    tool: str
    arguments: Mapping[str, Any]
    id: str = field(default_factory=lambda: f"op_{time.time_ns():x}_{next(_numbers)}")
    sends: int = 0
    late: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arguments = get_tool(self.tool).validate(self.arguments)

    def send(self, *, seconds: float = 20.0) -> Outcome:
        self.sends += 1
        call = self.call(seconds=seconds)
        return execute(spec=get_tool(self.tool), call=call, on_late=self.late.append)

    def look_up(self, *, seconds: float = 20.0) -> Reconciled[Any]:
        return look_up(spec=get_tool(self.tool), call=self.call(seconds=seconds))

    def call(self, *, seconds: float) -> Call:
        return new_call(self.id, arguments=self.arguments, attempt=self.sends, seconds=seconds)


def new_call(
    operation_id: str,
    *,
    arguments: Mapping[str, Any] | None = None,
    attempt: int = 1,
    seconds: float = 20.0,
) -> Call:
    """What a function is told about one execution that ends in so many seconds."""
    return Call(
        operation_id=operation_id,
        idempotency_key=operation_id,
        fence_token=attempt,
        attempt=attempt,
        run_id="run",
        step_number=1,
        arguments=arguments or {},
        deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        expires_at_monotonic=time.monotonic() + seconds,
    )
