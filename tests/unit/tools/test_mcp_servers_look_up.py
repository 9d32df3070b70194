"""The look-up that a file declares: it says committed or not found of nothing but the effect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.calls import new_call
from tools import Call
from tools.mcp_servers.declaring import declare_servers
from tools.mcp_servers.looking_up import NotGiven, fill, read_look_up
from tools.mcp_servers.shape import LookUp

FILE = """\
servers:
  shop:
    url: https://shop.example/mcp
    tools:
      refund:
        effect_type: NON_IDEMPOTENT_WRITE
        key_argument: key
        input_schema:
          type: object
          properties: {order_id: {type: string}, note: {type: string}, key: {type: string}}
        look_up: {tool: %s, arguments: {ref: %r}, found: order}
      other_refund: {effect_type: IRREVERSIBLE, input_schema: {}}
      find: {effect_type: READ, input_schema: {properties: {ref: {type: string}}}}
      find_by_id: {effect_type: READ, input_schema: {properties: {id: {type: string}}}}
"""
COMMITTED, NOT_FOUND, UNCLEAR = "committed", "not_found", "indeterminate"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    declare_servers(None)


def problems(path: Path, text: str) -> str:
    (path / "servers.yaml").write_text(text)
    return "\n".join(declare_servers(path / "servers.yaml").problems)


@pytest.mark.parametrize(
    ("structured", "verdict"),
    [
        ({"order": {"hit": {"id": 7}}}, COMMITTED),
        ({"order": {"hit": [{"id": 7}]}}, COMMITTED),
        ({"order": {"hit": "7"}}, COMMITTED),
        ({"order": {"hit": True}}, COMMITTED),
        ({"order": {"hit": [{"id": 7}, {"id": 8}]}}, UNCLEAR),
        ({"order": {"hit": None}}, NOT_FOUND),
        ({"order": {"hit": False}}, NOT_FOUND),
        ({"order": {"hit": []}}, NOT_FOUND),
        ({"order": {}}, UNCLEAR),
        ({"order": "down for maintenance"}, UNCLEAR),
        (None, UNCLEAR),
        # A count is no effect, and neither is an empty hull.
        *[
            ({"order": {"hit": hit}}, UNCLEAR)
            for hit in (
                0,
                1,
                0.0,
                [0],
                [7],
                [None],
                [{}],
                [[]],
                [""],
                " ",
                "0",
                "None",
                "not found",
            )
        ],
        *[
            ({"order": {"hit": hit}}, UNCLEAR)
            for hit in ({"total": 0}, {"id": None}, {"rows": [None]}, {"error": "none such"})
        ],
    ],
)
def test_a_look_up_says_not_found_only_where_its_place_is_there_and_empty(
    structured: Any, verdict: str
) -> None:
    look_up = LookUp(tool="find", found="order.hit", external_ref="id")
    found = read_look_up(look_up, structured)
    assert found.verdict == verdict
    is_object = verdict == COMMITTED and "id" in str(structured)
    assert found.external_ref == ("7" if is_object else None)


@pytest.mark.parametrize("reference", ["", "sessions.{order_id}", "{order_id}", "{{{order_id}}}"])
def test_names_that_a_call_has_are_taken(tmp_path: Path, reference: str) -> None:
    assert problems(tmp_path, FILE % ("find", reference)) == ""


@pytest.mark.parametrize(
    ("tool", "reference", "says"),
    [
        ("find", "{ordr_id}", "{ordr_id} is the name of nothing; there are: idempotency_key,"),
        ("find", "x {ordr_id}", "servers.shop.tools.refund"),
        ("find", "{ order_id }", "is the name of nothing"),
        ("find", "{}", "a brace that is meant is written twice"),
        ("find", "{order_id", "is the name of nothing"),
        # Filled in by us, so no call has it.
        ("find", "{key}", "{key} is the name of nothing"),
        ("find_by_id", "{order_id}", "find_by_id takes no ref; its arguments are: id"),
        ("refund", "{order_id}", "look_up.tool: refund is a write"),
        ("other_refund", "{order_id}", "look_up.tool: other_refund is a write"),
    ],
)
def test_a_look_up_that_would_find_nothing_is_refused_at_the_start(
    tmp_path: Path, tool: str, reference: str, says: str
) -> None:
    assert says in problems(tmp_path, FILE % (tool, reference))


def test_a_name_that_means_two_things_is_refused_at_the_start(tmp_path: Path) -> None:
    text = (FILE % ("find", "{operation_id}")).replace("note:", "operation_id:")
    assert "is an argument of the call and a name here" in problems(tmp_path, text)


def test_a_look_up_is_asked_for_the_operation_whatever_its_arguments_are_called() -> None:
    call: Call = new_call("op_1", arguments={"n": 5, "deep": {"a": True}, "idempotency_key": "sly"})
    template = {
        "key": "{idempotency_key}",
        "n": "{n}",
        "text": "n={n} {{other}} {deep}",
        "deep": [{"a": "{n}"}],
        "braces": "{{",
    }
    assert fill(template, call) == {
        "key": "op_1",
        "n": 5,
        "text": 'n=5 {other} {"a": true}',
        "deep": [{"a": 5}],
        "braces": "{",
    }


@pytest.mark.parametrize("template", ["{note}", "about {note}", ["{note}"], {"a": "{note}"}])
def test_nothing_is_looked_up_by_what_the_call_was_not_given(template: Any) -> None:
    call: Call = new_call("op_1", arguments={"note": None})
    with pytest.raises(NotGiven, match="asks by note, which the call was not given"):
        fill(template, call)
