"""Limits that limit nothing, or everything, are refused when the project starts."""

from datetime import timedelta
from typing import Any

import pytest

from tools import Call, EffectType, Provider, Rate, tool
from tools.checks_limits import check_limits


def _declare(**declared: Any) -> list[str]:
    @tool(effect_type=EffectType.READ, provider=Provider(name="bank", account="a", **declared))
    def look(call: Call) -> None:
        """Look."""

    messages = check_limits()
    assert all(message.hint and message.obj == "provider bank/a" for message in messages)
    return [str(message.id) for message in messages]


def test_sound_limits_are_passed_in_silence() -> None:
    assert _declare(rate=Rate(100, per=timedelta(minutes=1)), concurrency=5) == []


def test_a_provider_without_limits_is_passed_in_silence() -> None:
    assert _declare() == []


@pytest.mark.parametrize("given", [0, -1, 1.5, "3", True, 10_000], ids=repr)
def test_a_concurrency_that_is_no_number_of_requests_is_refused(given: Any) -> None:
    assert _declare(concurrency=given) == ["tools.E030"]


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("100/min", "tools.E031"),
        (5, "tools.E031"),
        (Rate(0, per=timedelta(seconds=1)), "tools.E032"),
        (Rate(True, per=timedelta(seconds=1)), "tools.E032"),
        (Rate(2.5, per=timedelta(seconds=1)), "tools.E032"),  # type: ignore[arg-type]
        (Rate(1, per=timedelta(0)), "tools.E033"),
        (Rate(1, per=timedelta(days=400)), "tools.E033"),
        (Rate(1, per=60), "tools.E033"),  # type: ignore[arg-type]
    ],
    ids=lambda given: str(given).replace("datetime.", ""),
)
def test_a_rate_that_is_none_is_refused(rate: Any, said: str) -> None:
    assert _declare(rate=rate) == [said]


def test_a_name_that_the_rows_cannot_hold_is_refused() -> None:
    @tool(effect_type=EffectType.READ, provider=Provider(name="b" * 250, concurrency=1))
    def look(call: Call) -> None:
        """Look."""

    assert [message.id for message in check_limits()] == ["tools.E034"]
