"""A schema that somebody else wrote, as the arguments of a tool of ours."""

from typing import Any

import pytest

from tools import Approve, Call, EffectType, tool
from tools.checks import check_tools
from tools.errors import InvalidArguments, InvalidTool
from tools.expression_types import find_never_equal
from tools.registry import isolated_registry
from tools.schema_arguments import LARGEST_SCHEMA, SchemaArguments
from tools.spec import ToolSpec

TICKET: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Ticket",
    "properties": {
        "title": {"type": "string", "minLength": 3, "description": "What it is about."},
        "priority": {"type": "integer", "default": 2},
        "owner": {"type": "string"},
        "due": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}},
        "title_of_call": {"const": "x", "default": 7},
    },
    "required": ["title"],
    "$defs": {"label": {"type": "object", "properties": {"secret": {"type": "string"}}}},
}


def of(schema: dict[str, Any] = TICKET) -> SchemaArguments:
    return SchemaArguments(tool="ticket", schema=schema)


def spec_of(schema: dict[str, Any], **declared: Any) -> ToolSpec:
    def act(call: Call, /, **_: Any) -> None:
        """Open a ticket."""

    tool(
        name="ticket",
        effect_type=EffectType.NON_IDEMPOTENT_WRITE,
        argument_model=of(schema),
        **declared,
    )(act)
    spec: ToolSpec = act.spec  # type: ignore[attr-defined]
    return spec


def refused(raw: Any, *, schema: dict[str, Any] = TICKET, sensitive: tuple[str, ...] = ()) -> str:
    with pytest.raises(InvalidArguments) as caught:
        of(schema).validate(raw, sensitive=sensitive)
    return str(caught.value)


def test_every_argument_has_a_value_and_what_was_left_out_is_left_out_again() -> None:
    normal = of().validate({"title": "Fire"}, sensitive=())
    assert normal == {
        "title": "Fire",
        "priority": 2,
        "owner": None,
        "due": None,
        "labels": None,
        # Its default does not fit, so nobody meant it.
        "title_of_call": None,
    }
    assert of().given(normal) == {"title": "Fire", "priority": 2}
    assert of().validate(normal, sensitive=()) == normal
    assert of().bind(normal, sensitive=()) == normal


def test_null_is_kept_where_an_argument_has_to_be_given() -> None:
    schema = {"properties": {"parent": {"type": ["string", "null"]}}, "required": ["parent"]}
    normal = of(schema).validate({"parent": None}, sensitive=())
    assert of(schema).given(normal) == {"parent": None}


def test_what_does_not_fit_is_named_with_its_place_its_value_and_the_rule() -> None:
    assert "title: it is required" in refused({})
    assert "title (given: 'F'): it has to fit minLength: 3" in refused({"title": "F"})
    assert "priority (given: '2'): it has to fit type: 'integer'" in refused(
        {"title": "Fire", "priority": "2"}
    )
    assert "labels.0 (given: 'x'): it has to fit type: 'object'" in refused(
        {"title": "Fire", "labels": ["x"]}
    )


def test_unknown_names_are_refused_even_by_a_schema_that_takes_them() -> None:
    said = refused({"title": "Fire", "sly": 1}, schema={**TICKET, "additionalProperties": True})
    assert "sly: remove it; the arguments are: title, priority" in said


@pytest.mark.parametrize("raw", [{"title": "a\0b"}, {"title": float("nan")}, {"title": "\ud800"}])
def test_what_cannot_be_stored_is_refused(raw: dict[str, Any]) -> None:
    assert "title" in refused(raw)


def test_values_of_sensitive_arguments_are_not_shown() -> None:
    assert "hunter2" not in refused({"title": ["hunter2"]}, sensitive=("title",))
    nested = {"title": "Fire", "labels": [{"secret": ["hunter2"]}]}
    assert "hunter2" not in refused(nested, sensitive=("secret",))
    assert "hunter2" not in refused({"title": "Fire", "labels": nested}, sensitive=("secret",))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array"}, "not that of an object"),
        ({"properties": {"a": {"type": "strng"}}}, "no JSON schema, at properties.a.type"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "which is elsewhere"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "which is elsewhere"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}}, "which is not in it"),
        ({"description": "x" * LARGEST_SCHEMA}, "bytes"),
        ({"description": "a\0b"}, "NUL"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTool, match="cannot be a tool") as caught:
        of(schema)
    assert says in str(caught.value)


def test_a_schema_that_goes_in_a_circle_refuses_and_does_not_break() -> None:
    circle = {"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}
    assert "cannot be used" in refused({"a": 1}, schema=circle)


def test_a_changed_schema_is_another_version_and_changed_words_are_not() -> None:
    first = spec_of(TICKET)
    words = {**TICKET, "description": "Other words.", "title": "Other"}
    other = {**TICKET, "required": ["title", "owner"]}
    assert of(words).json_schema() != of().json_schema()
    with isolated_registry():
        reworded = spec_of(words)
    with isolated_registry():
        changed = spec_of(other)
    assert (first.version, first.arguments_version) == (
        reworded.version,
        reworded.arguments_version,
    )
    assert first.version != changed.version
    assert first.arguments_version != changed.arguments_version


def test_an_argument_that_was_left_out_is_no_part_of_the_intent() -> None:
    spec = spec_of(TICKET)
    said = spec.intent_values(spec.validate({"title": "Fire"}))
    assert said == {"title": "Fire", "priority": 2}


def test_rules_over_its_arguments_are_checked_as_those_of_any_tool() -> None:
    odd = {"a-b": True, "in": False, "kind": {"enum": ["bug", "task"]}, "mixed": {"enum": [1, "x"]}}
    schema = {"properties": {**TICKET["properties"], **odd}, "required": ["title"]}
    spec = spec_of(
        {**schema, "$defs": TICKET["$defs"]}, approval_policy=Approve(when="title != ''")
    )
    assert [message for message in check_tools() if message.is_serious()] == []
    assert find_never_equal("title == 17", [spec]) is not None
    assert find_never_equal("kind == 'bugs'", [spec]) is not None
    for possible in ("title == 'x'", "kind == 'bug'", "mixed == 'x'", "due == 1", "priority == 2"):
        assert find_never_equal(possible, [spec]) is None
    assert all(isinstance(one, dict) for one in spec.arguments_schema()["properties"].values())
