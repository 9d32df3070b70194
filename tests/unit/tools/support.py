"""What tests of calls share: a spec from a function, and waiting for late answers."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tools import EffectType, tool
from tools.outcome import Outcome
from tools.spec import ToolSpec

SHORT = 0.05


def spec_of(function: Callable[..., Any], **declared: Any) -> ToolSpec:
    effect_type = declared.pop("effect_type", EffectType.IDEMPOTENT_WRITE)
    decorated = tool(effect_type=effect_type, **declared)(function)
    return decorated.spec  # type: ignore[attr-defined, no-any-return]


def never(outcome: object) -> None:
    pytest.fail(f"nothing was late, but {outcome} came")


class Late:
    """Collects what `on_late` is told, and waits for it."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.threads: list[int] = []
        self._came = threading.Event()

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.threads.append(threading.get_ident())
        self._came.set()

    def wait(self) -> Outcome:
        assert self._came.wait(10)
        return self.outcomes[0]


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to come to its last line."""
    waiting = threading.Event()
    for _ in range(2000):
        if condition():
            return
        waiting.wait(0.005)
    pytest.fail("it did not happen within 10 s")
