"""One sentence for people on what a call would do."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tools import Approve, Call, EffectType, tool
from tools.describing import describe_call
from tools.registry import isolated_registry
from tools.spec import ToolSpec


def spec_of(describe: Any, **declared: Any) -> ToolSpec:
    with isolated_registry():

        @tool(effect_type=EffectType.IDEMPOTENT_WRITE, describe=describe, **declared)
        def refund(call: Call, amount: Decimal, order: str, card: str = "4111") -> None: ...

    return refund.spec  # type: ignore[attr-defined, no-any-return]


def said(describe: Any, *, order: str = "17", **declared: Any) -> str:
    spec = spec_of(describe, **declared)
    return describe_call(spec, spec.validate({"amount": "1.50", "order": order}))


def test_a_template_is_filled_with_the_arguments() -> None:
    assert said("Refund {amount} of order {order}") == "Refund 1.50 of order 17"
    assert said("{{braces}} {order}") == "{braces} 17"


def test_a_function_is_given_the_arguments() -> None:
    assert said(lambda amount, **more: f"Refund {amount + 1}") == "Refund 2.50"


def test_without_one_there_is_no_sentence() -> None:
    assert said(None) == ""


def test_what_an_argument_says_is_no_template() -> None:
    assert said("Order {order}", order="{amount} {0}") == "Order {amount} {0}"


@pytest.mark.parametrize("describe", ["{card}", lambda card, **more: card])
def test_a_secret_is_hidden(describe: Any) -> None:
    assert "4111" not in said(describe, sensitive=("card",))


@pytest.mark.parametrize(
    "broken", ["{order.__class__}", "{nothing}", "{", lambda **given: 1 / 0, lambda: "x"]
)
def test_what_cannot_be_described_is_not(broken: Any) -> None:
    assert said(broken) == ""


def test_a_sentence_is_one_bounded_line() -> None:
    told = said("{order}", order="a\nb" + "x" * 1000)
    assert told.startswith("a b")
    assert len(told) == 300


def test_other_words_make_no_other_version() -> None:
    assert spec_of("Refund {amount}").version == spec_of(None).version
    asked = [
        Approve(escalate_to=("board",), escalate_after=timedelta(hours=hours)) for hours in (1, 2)
    ]
    one, two = (spec_of(None, approval_policy=approve).version for approve in asked)
    assert one != two
