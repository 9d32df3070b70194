"""One byte form per JSON value."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.canonical import canonical_json, check_json, digest
from tools.errors import InvalidPayload

SAFE = 2**53 - 1
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(-SAFE, SAFE) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def _reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed_keys(value[key]) for key in reversed(value)}
    return [_reversed_keys(item) for item in value] if isinstance(value, list) else value


@settings(deadline=None, max_examples=100)
@given(VALUES)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_json(value) == canonical_json(_reversed_keys(value))


@settings(deadline=None, max_examples=100)
@given(VALUES)
def test_the_canonical_form_is_the_value(value: Any) -> None:
    check_json(value, field="value")
    assert json.loads(canonical_json(value)) == value


@settings(deadline=None, max_examples=100)
@given(VALUES, VALUES)
def test_different_values_have_different_digests(one: Any, other: Any) -> None:
    assert (digest(one) == digest(other)) == (canonical_json(one) == canonical_json(other))


def test_known_bytes() -> None:
    value = {"b": [1.0, 1e21, "é\n\u001f"], "a": None, "\u20ac": True}
    assert canonical_json(value) == '{"a":null,"b":[1,1e+21,"é\\n\\u001f"],"€":true}'.encode()
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("value", [float("nan"), 2**53, {1: 2}, "\ud800", object()])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidPayload):
        canonical_json(value)


@pytest.mark.parametrize(
    ("value", "field", "fix"),
    [
        ({"a": ["ok", "x\0"]}, "input.a[1]", "NUL"),
        ({"a\0": 1}, "input", "NUL"),
        ({"a": "\udfff"}, "input.a", "surrogate"),
        ([float("-inf")], "input[0]", "finite"),
        ({"a": {"b": 2**53}}, "input.a.b", "string"),
        ({"a": -(2**53)}, "input.a", "string"),
        ({"a": 1e300}, "input.a", "string"),
        ({"a": {1: 1}}, "input.a", "text"),
        ({"a": {1, 2}}, "input.a", "not set"),
        (b"x", "input", "not bytes"),
    ],
)
def test_a_refused_value_is_named_by_its_place(value: object, field: str, fix: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        check_json(value, field="input")
    assert refused.value.field == field
    assert fix in refused.value.fix


def test_thirty_two_levels_are_allowed_and_no_more() -> None:
    def nested(levels: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(levels - 1):
            value = [value]
        return value

    check_json(nested(32), field="input")
    with pytest.raises(InvalidPayload, match="32 levels"):
        check_json(nested(33), field="input")
    with pytest.raises(InvalidPayload):
        check_json(nested(100_000), field="input")


def test_the_size_is_counted_in_bytes() -> None:
    check_json("é" * 4, field="input", limit_bytes=10)
    with pytest.raises(InvalidPayload, match="11 bytes"):
        check_json("é" * 4 + "x", field="input", limit_bytes=10)


def test_a_complaint_shows_at_most_a_part_of_the_value() -> None:
    with pytest.raises(InvalidPayload) as refused:
        check_json({"k" * 5000: "\0" * 100_000}, field="input")
    assert len(str(refused.value)) < 500
    assert "\0" not in str(refused.value)
