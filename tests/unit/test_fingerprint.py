"""What a signature is a signature on: one action, all of it, and nothing beside it."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.fingerprint import VERSION, Action, differences, fingerprint
from tools.errors import InvalidPayload

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
NUMBER = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT, VALUE, max_size=4)
ACTION = st.builds(
    Action,
    operation_id=TEXT,
    run_id=TEXT,
    step_number=st.integers(0, 10_000),
    tool=TEXT,
    tool_version=TEXT,
    arguments=ARGUMENTS,
    provider=TEXT,
    account=TEXT,
    resource_version=TEXT,
    policy_version=TEXT,
    requester=TEXT,
)
FIELDS = [one.name for one in dataclasses.fields(Action)]

REFUND = Action(
    operation_id="op_1",
    run_id="run_1",
    step_number=2,
    tool="refund",
    tool_version="a1",
    arguments={"order": "17", "amount": "12.50"},
    provider="payments",
    account="acct_main",
    resource_version="7",
    policy_version="p1",
    requester="shopper",
)


def print_of(action: Action) -> str:
    return fingerprint(action.covered())


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are one JSON value: 1 and 1.0 are, True and 1 are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return float(one) == float(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return type(one) is type(other) and bool(one == other)


@settings(max_examples=50)
@given(one=ACTION, other=ACTION)
def test_two_actions_have_one_fingerprint_only_if_they_are_one(one: Action, other: Action) -> None:
    is_one = same_json(one.covered(), other.covered())
    assert (print_of(one) == print_of(other)) is is_one


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=25)
@given(other=ACTION)
def test_any_change_of_any_field_changes_it(name: str, other: Action) -> None:
    changed = dataclasses.replace(REFUND, **{name: getattr(other, name)})
    is_same = same_json(REFUND.covered()[name], changed.covered()[name])
    assert (print_of(changed) == print_of(REFUND)) is is_same


@given(name=TEXT, value=VALUE)
def test_any_change_of_any_argument_changes_it(name: str, value: Any) -> None:
    arguments = {**REFUND.arguments, name: value}
    changed = dataclasses.replace(REFUND, arguments=arguments)
    is_same = same_json(dict(REFUND.arguments), arguments)
    assert (print_of(changed) == print_of(REFUND)) is is_same


@given(action=ACTION)
def test_it_survives_being_stored_and_read(action: Action) -> None:
    stored = json.loads(json.dumps(action.covered()))
    assert fingerprint(stored) == print_of(action)


@given(action=ACTION, salt=st.randoms())
def test_the_order_of_arguments_is_no_part_of_it(action: Action, salt: Any) -> None:
    names = list(action.arguments)
    salt.shuffle(names)
    shuffled = dataclasses.replace(action, arguments={n: action.arguments[n] for n in names})
    assert print_of(shuffled) == print_of(action)


def test_one_text_does_not_pass_for_two_fields() -> None:
    one = dataclasses.replace(REFUND, provider="pay", account="ments")
    other = dataclasses.replace(REFUND, provider="payments", account="")
    quoting = dataclasses.replace(REFUND, provider='pay","account":"ments', account="ments")
    assert len({print_of(one), print_of(other), print_of(quoting)}) == 3


def test_an_amount_as_text_is_not_the_number() -> None:
    texts = dataclasses.replace(REFUND, arguments={"amount": "12"})
    number = dataclasses.replace(REFUND, arguments={"amount": 12})
    assert print_of(texts) != print_of(number)


def test_the_encoding_s_version_stands_in_front_and_is_covered() -> None:
    made = print_of(REFUND)
    assert made.startswith(f"{VERSION}:")
    # Written down once: if this changes, signatures that wait lose their force on a deployment.
    assert made == "v1:dac8efed8f532dcd73c4625ed938bd2e085d035bd4f54b4a3fd3e58746b39adb"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 2**60, {1: 2}])
def test_what_has_no_json_form_has_no_fingerprint(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        print_of(dataclasses.replace(REFUND, arguments={"amount": value}))


def test_differences_name_the_fields_and_each_argument() -> None:
    later = dataclasses.replace(
        REFUND, arguments={"order": "17", "amount": "99", "note": "x"}, resource_version="8"
    )
    found = differences(REFUND.covered(), later.covered())
    assert found == ["arguments.amount", "arguments.note", "resource_version"]
    assert differences(REFUND.covered(), REFUND.covered()) == []
