"""Laws of stored decisions: what was encoded comes back, and nothing else is believed."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

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
    decode,
    encode,
)
from runs.errors import UndecodableDecision

_texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


def _call(
    tool: str, arguments: dict[str, Any], rationale: str, confidence: float | None
) -> ToolCall:
    return ToolCall(tool, **arguments).because(rationale, confidence=confidence)


_sure = st.none() | st.floats(min_value=0, max_value=1)
_calls = st.builds(_call, _texts, st.dictionaries(_texts, _json, max_size=3), _texts, _sure)
_names = st.text(alphabet="abc._", min_size=1, max_size=12)
_durations = st.integers(min_value=0, max_value=10**7).map(lambda ms: timedelta(milliseconds=ms))
_schemas = st.sampled_from(
    [
        {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
        {"enum": ["yes", "no"]},
        {},
    ]
)
_children = st.builds(Delegate, _names, _texts, _json, st.booleans())
_decisions: st.SearchStrategy[Decision] = st.one_of(
    st.builds(
        lambda calls, rationale, confidence: CallTools(
            *calls, rationale=rationale, confidence=confidence
        ),
        st.lists(_calls, max_size=4),
        _texts,
        _sure,
    ),
    st.builds(Finish, _json),
    st.builds(Fail, _texts),
    st.builds(Sleep, _durations),
    st.builds(
        lambda until: Sleep(until=until),
        st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)),
    ),
    st.builds(WaitFor, _names, st.none() | _durations),
    st.builds(
        Ask,
        _names,
        _schemas,
        groups=st.lists(_names, max_size=2),
        timeout=st.none() | _durations,
        escalate_to=st.lists(_names, max_size=2),
        escalate_after=st.none() | _durations,
        remind_after=st.none() | _durations,
    ),
    _children,
    st.lists(_children, min_size=1, max_size=3).map(lambda all_: DelegateAll(*all_)),
    st.builds(Compensate, _texts),
)


@given(_decisions)
def test_a_decision_comes_back_from_its_stored_form(decision: Decision) -> None:
    stored = json.loads(json.dumps(encode(decision)))
    assert decode(stored, where="run 1") == decision


@given(_decisions)
def test_encoding_what_was_decoded_gives_the_same_body(decision: Decision) -> None:
    body = encode(decision)
    assert encode(decode(body, where="run 1")) == body


@given(_json)
def test_any_json_is_decoded_or_refused_by_name(body: Any) -> None:
    with pytest.raises(UndecodableDecision, match="run 7 step 2"):
        decode(body, where="run 7 step 2")


@given(_decisions, _texts, _json)
def test_a_body_with_a_field_too_many_is_refused(decision: Decision, name: str, value: Any) -> None:
    body = encode(decision)
    if name in body:
        return
    with pytest.raises(UndecodableDecision):
        decode({**body, name: value}, where="run 1")


@given(_decisions, st.data())
def test_a_body_without_one_of_its_fields_is_refused(
    decision: Decision, data: st.DataObject
) -> None:
    body = encode(decision)
    body.pop(data.draw(st.sampled_from(sorted(body.keys() - {"rationale", "confidence"}))))
    with pytest.raises(UndecodableDecision):
        decode(body, where="run 1")


@pytest.mark.parametrize(
    "body",
    [
        {"v": 2, "kind": "finish", "result": 1},
        {"v": "1", "kind": "finish", "result": 1},
        {"v": 1, "kind": "guess", "result": 1},
        {"v": 1, "kind": "FINISH", "result": 1},
        {"v": 1, "kind": "fail", "reason": None},
        {"v": 1, "kind": "fail", "reason": ["a"]},
        {"v": 1, "kind": "call_tools", "calls": "refund"},
        {"v": 1, "kind": "call_tools", "calls": {"tool": "refund", "arguments": {}}},
        {"v": 1, "kind": "call_tools", "calls": ["refund"]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": "refund"}]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": 7, "arguments": {}}]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": "refund", "arguments": []}]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": "a", "arguments": {}, "id": "x"}]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": "a", "arguments": {}, "rationale": 1}]},
        {"v": 1, "kind": "call_tools", "calls": [{"tool": "a", "arguments": {}, "confidence": 2}]},
        None,
        [],
        "finish",
    ],
)
def test_a_form_that_was_never_written_is_refused(body: Any) -> None:
    with pytest.raises(UndecodableDecision) as refused:
        decode(body, where="run 3 step 9")
    assert "run 3 step 9" in str(refused.value)


def test_the_refusal_of_a_giant_body_is_short() -> None:
    with pytest.raises(UndecodableDecision) as refused:
        decode({"something": "x" * 100_000}, where="run 1")
    assert len(str(refused.value)) < 400


def test_what_code_decides_with_becomes_plain_json() -> None:
    class Order(BaseModel):
        number: int

    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    call = ToolCall(
        "refund", amount=Decimal("42.10"), on=date(2026, 1, 2), at=at, order=Order(number=7)
    )
    body = encode(CallTools(call))
    assert body["calls"] == [
        {
            "tool": "refund",
            "arguments": {
                "amount": "42.10",
                "on": "2026-01-02",
                "at": "2026-01-02T03:04:00Z",
                "order": {"number": 7},
            },
        }
    ]
    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize(
    "build", [lambda value: Finish(value), lambda value: ToolCall("t", a=value)]
)
def test_a_value_without_a_json_form_is_refused_before_it_is_stored(
    build: Callable[[Any], Finish | ToolCall],
) -> None:
    made = build(object())
    decision = CallTools(made) if isinstance(made, ToolCall) else made
    with pytest.raises(ValueError, match="serialize"):
        encode(decision)


def test_a_call_may_have_arguments_of_any_name() -> None:
    call = ToolCall("send", **{"self": 1, "tool": 2, "to-whom": 3})
    assert dict(call.arguments) == {"self": 1, "tool": 2, "to-whom": 3}
    assert decode(encode(CallTools(call)), where="run 1") == CallTools(call)


def test_the_arguments_of_a_call_cannot_be_changed_afterwards() -> None:
    given_arguments = {"amount": 1}
    call = ToolCall("refund", **given_arguments)
    given_arguments["amount"] = 2
    assert call.arguments["amount"] == 1
    with pytest.raises(TypeError):
        call.arguments["amount"] = 3  # type: ignore[index]


def test_a_reason_belongs_to_one_call_and_takes_no_name_from_its_arguments() -> None:
    plain = ToolCall("pay", rationale="an argument", confidence=7)
    reasoned = plain.because("it is owed", confidence=0.5)
    assert dict(reasoned.arguments) == {"rationale": "an argument", "confidence": 7}
    assert (reasoned.rationale, reasoned.confidence) == ("it is owed", 0.5)
    assert (plain.rationale, plain.confidence) == ("", None)
    assert plain != reasoned


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_a_confidence_is_from_0_to_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        ToolCall("pay").because("", confidence=confidence)
    with pytest.raises(ValueError, match="confidence"):
        CallTools(ToolCall("pay"), confidence=confidence)


def test_what_a_call_says_of_itself_counts_for_it() -> None:
    decision = CallTools(
        ToolCall("pay").because("sure of it", confidence=1.0), ToolCall("pay"), confidence=0.25
    )
    assert [decision.confidence_in(place) for place in range(3)] == [1.0, 0.25, 0.25]
