"""Two decisions differ where the kernel would do something else."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import Ask, CallTools, Compensate, Decision, Fail, Finish, Sleep, ToolCall
from runs.cases.comparing import find_differences
from runs.decisions import encode
from tools import Call, EffectType, tool

DAY = 86_400.0


def _differences(
    expected: Decision | dict[str, Any], decided: Decision, *, is_llm: bool = False
) -> list[tuple[str, Any, Any]]:
    body = expected if isinstance(expected, dict) else encode(expected)
    found = find_differences(body, encode(decided), is_llm=is_llm)
    return [(one.path, one.expected, one.decided) for one in found]


def _call(**arguments: Any) -> CallTools:
    return CallTools(ToolCall("pay", **arguments))


@pytest.fixture
def pay() -> Iterator[None]:
    @tool(effect_type=EffectType.READ)
    def pay(call: Call, amount: Decimal, to: str = "ann") -> str:
        """Pay."""
        return "paid"

    return


def test_another_kind_is_one_difference() -> None:
    assert _differences(Finish(1), Fail("no")) == [("kind", "finish", "fail")]


def test_another_tool_or_argument_is_a_difference() -> None:
    assert _differences(_call(amount=1), CallTools(ToolCall("ship", amount=1))) == [
        ("calls[0].tool", "pay", "ship")
    ]
    assert _differences(_call(amount=1), _call(amount=2)) == [("calls[0].arguments.amount", 1, 2)]
    assert _differences(_call(to="a"), _call(to="a", amount=2)) == [
        ("calls[0].arguments.amount", "(nothing)", 2)
    ]


def test_one_call_more_or_less_is_a_difference() -> None:
    one, two = _call(a=1), CallTools(ToolCall("pay", a=1), ToolCall("pay", a=2))
    more = {"tool": "pay", "arguments": {"a": 2}}
    assert _differences(one, two) == [("calls[1]", "(nothing)", more)]
    assert _differences(two, one) == [("calls[1]", more, "(nothing)")]


def test_true_is_not_one() -> None:
    assert _differences(Finish(1), Finish(True)) == [("result", 1, True)]
    assert _differences(Finish([1]), Finish([1.0])) == []


def test_arguments_are_compared_as_their_tool_reads_them(pay: None) -> None:
    assert _differences(_call(amount="12.50"), _call(amount=12.5, to="ann")) == []
    assert _differences(_call(amount="12.50"), _call(amount="12.51")) != []
    assert _differences(_call(amount="no number"), _call(amount="neither")) != []


def test_reasons_do_not_count() -> None:
    calls = (ToolCall("pay", amount=1),)
    said = CallTools(*calls, rationale="because", confidence=0.5)
    assert _differences(said, CallTools(*calls)) == []
    assert _differences(CallTools(calls[0].because("so")), CallTools(*calls)) == []


def test_anything_equals_a_wildcard(pay: None) -> None:
    for wildcard in ("[any]", "[redacted]"):
        assert _differences(_call(amount=wildcard), _call(amount="3")) == []
        assert _differences(Finish({"a": [wildcard, 1]}), Finish({"a": [{"b": 2}, 1]})) == []
        # In place of a value: what is not there is no value.
        assert _differences(Finish({"a": wildcard}), Finish({})) == [
            ("result.a", wildcard, "(nothing)")
        ]
        # What was decided is no pattern.
        assert _differences(Finish("a"), Finish(wildcard)) == [("result", "a", wildcard)]


def test_the_words_of_an_llm_do_not_count_and_those_of_code_do() -> None:
    pairs: list[tuple[Decision, Decision]] = [
        (Finish("All done."), Finish("It is done.")),
        (Fail("no"), Fail("never")),
        (Compensate("no"), Compensate("never")),
        (Ask("How large?", {"type": "integer"}), Ask("What size?", {"type": "integer"})),
    ]
    for expected, decided in pairs:
        assert _differences(expected, decided, is_llm=True) == []
        assert _differences(expected, decided) != []
    assert _differences(Finish("text"), Finish({"size": 1}), is_llm=True) != []
    assert _differences(Finish({"size": 2}), Finish({"size": 1}), is_llm=True) != []


def test_how_long_to_sleep_counts() -> None:
    from datetime import UTC, datetime, timedelta

    assert _differences(Sleep(timedelta(days=1)), Sleep(timedelta(days=2))) == [
        ("for", DAY, 2 * DAY)
    ]
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    assert _differences(Sleep(until=first), Sleep(until=second)) == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(_JSON, _JSON)
def test_equal_decisions_have_no_difference_and_others_have_one(one: Any, other: Any) -> None:
    assert _differences(Finish(one), Finish(one)) == []
    is_equal = repr(_sorted(one)) == repr(_sorted(other))
    has_wildcard = any(word in repr(one) for word in ("[any]", "[redacted]"))
    assert has_wildcard or (_differences(Finish(one), Finish(other)) == []) is is_equal


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value
