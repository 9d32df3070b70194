"""Schemas that people can be asked with, and answers that fit them or do not."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, Field

from runs.answers import find_problems, find_schema_problem, keep_order, ordered_fields

S: Any = {"type": "string"}


class Line(BaseModel):
    sku: str
    number: int = 1


class Everything(BaseModel):
    amount: Decimal
    why: str = Field(min_length=3)
    fine: bool
    kind: Literal["a", "b"] = "a"
    on: date | None = None
    at: datetime | None = None
    by: time | None = None
    within: timedelta | None = None
    page: AnyUrl | None = None
    host: IPv4Address | None = None
    id: UUID | None = None
    tags: list[Literal["x", "y"]] = []
    line: Line | None = None


NEEDED = {"amount": "1.50", "why": "because", "fine": True}


def told(answer: Any, schema: Any) -> list[str]:
    return [str(problem) for problem in find_problems(answer, schema)]


def test_a_pydantic_model_makes_a_schema_that_takes_what_the_model_takes() -> None:
    schema = Everything.model_json_schema()
    assert find_schema_problem(schema) == ""
    whole = Everything(
        **NEEDED,
        on=date(2026, 12, 24),
        at=datetime.fromisoformat("2026-12-24T18:00:00Z"),
        by=time(18, 0),
        within=timedelta(hours=3),
        page="https://example.com/a?b=c",
        host="192.0.2.1",
        id=UUID(int=7),
        tags=["x", "y"],
        line={"sku": "17"},
    )
    assert told(whole.model_dump(mode="json"), schema) == []
    assert told(NEEDED, schema) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kind": "c"}, "answer.kind (given: 'c'): Use one of: a, b."),
        ({"on": "2026-02-31"}, "answer.on (given: '2026-02-31'): Write a date, as 2026-12-24."),
        ({"on": "24.12.2026"}, "answer.on (given: '24.12.2026'): Write a date, as 2026-12-24."),
        (
            {"at": "2026-12-24T18:00:00"},
            "answer.at (given: '2026-12-24T18:00:00'): "
            "Write a time with its zone, as 2026-12-24T18:00:00Z.",
        ),
        ({"by": "25:00"}, "answer.by (given: '25:00'): Write a time of day, as 18:00."),
        ({"within": "3 h"}, "answer.within (given: '3 h'): Write a duration, as P2DT3H."),
        (
            {"page": "example.com"},
            "answer.page (given: 'example.com'): Write an address, as https://example.com/a.",
        ),
        ({"host": "1.2.3"}, "answer.host (given: '1.2.3'): Write an IPv4 address, as 192.0.2.1."),
        ({"tags": ["z"]}, "answer.tags[0] (given: 'z'): Use one of: x, y."),
        ({"tags": "x"}, "answer.tags (given: 'x'): Write a list."),
        ({"amount": []}, "answer.amount (given: []): Write a number or a text."),
        (
            {"line": {"sku": "1", "nmber": 2}},
            "answer.line.nmber (given: 2): Did you mean number? Possible are: sku, number.",
        ),
        ({"line": {}}, "answer.line.sku: It is required."),
        ({"line": "17"}, "answer.line (given: '17'): Write an object or null."),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_what_does_not_fit_names_the_field_the_value_and_the_fix(given: Any, problem: str) -> None:
    assert told(NEEDED | given, Everything.model_json_schema()) == [problem]


@pytest.mark.parametrize(
    ("schema", "answer", "fix"),
    [
        ({"maximum": 3}, 4, "Write a number of at most 3."),
        ({"exclusiveMinimum": 3}, 3, "Write a number greater than 3."),
        ({"multipleOf": 5}, 7, "Write a multiple of 5."),
        ({"maxLength": 1}, "ab", "Use at most 1 characters."),
        ({"pattern": "^a"}, "b", "It has to match the pattern ^a."),
        ({"minItems": 2}, ["a"], "Give at least 2."),
        ({"uniqueItems": True}, ["a", "a"], "Give each only once."),
        ({"const": 7}, 8, "It has to be 7."),
        ({"type": "integer"}, True, "Write a whole number."),
        ({"type": ["integer", "null"]}, "a", "Write a whole number or null."),
        ({"not": S}, "a", "It does not fit “not” of the schema."),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "c", "It fits none of the 2 forms"),
        ({"format": "email"}, "robin", "Write an e-mail address, as robin@example.com."),
        ({"enum": ["x" * 500]}, "a", "Use one of: xxx"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_every_keyword_has_words_of_its_own(schema: Any, answer: Any, fix: str) -> None:
    [problem] = find_problems(answer, schema)
    assert problem.field == "answer"
    assert problem.fix.startswith(fix)
    assert len(problem.fix) <= 300


@pytest.mark.parametrize(
    ("schema", "unknown"),
    [
        ({"properties": {"a": S}}, ["b"]),
        ({"properties": {"a": S}, "additionalProperties": False}, ["b"]),
        ({"properties": {"a": S}, "additionalProperties": True}, []),
        ({"properties": {"a": S}, "additionalProperties": S}, []),
        ({"properties": {"a": S}, "patternProperties": {"^b": S}}, []),
        ({"patternProperties": {"^b": S}, "additionalProperties": False}, ["a"]),
        ({"properties": {"a": S}, "unevaluatedProperties": True}, []),
        ({"type": "object"}, []),
        ({}, []),
        ({"allOf": [{"properties": {"a": S}}, {"properties": {"b": S}}]}, []),
        ({"allOf": [{"properties": {"a": S}}, {"required": ["a"]}]}, ["b"]),
        ({"anyOf": [{"properties": {"a": S}}, {"properties": {"c": S}}]}, ["b"]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": S}}}}, ["b"]),
        ({"if": {"required": ["a"]}, "then": {"properties": {"b": S}}}, ["a"]),
    ],
    ids=str,
)
def test_a_field_that_the_schema_does_not_name_is_refused_unless_it_allows_others(
    schema: Any, unknown: list[str]
) -> None:
    assert find_schema_problem(schema) == ""
    found = find_problems({"a": "1", "b": "2"}, schema)
    assert [problem.field for problem in found] == [f"answer.{name}" for name in unknown]


def test_fields_are_strict_at_any_depth() -> None:
    inner = {"properties": {"a": S}}
    schema = {"properties": {"list": {"items": inner}, "pair": {"prefixItems": [inner, {}]}}}
    answer = {"list": [{"a": "1"}, {"x": 1}], "pair": [{"y": 1}, {"z": 1}]}
    assert [one.field for one in find_problems(answer, schema)] == [
        "answer.list[1].x",
        "answer.pair[0].y",
    ]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (7, "a schema is a JSON object, not int"),
        ({"type": "strin"}, "schema.type: 'strin' is not valid"),
        ({"pattern": "("}, "schema.pattern: '(' is not a 'regex'"),
        ({"properties": []}, "schema.properties: [] is not of type 'object'"),
        ({"$ref": "https://example.com/s.json"}, "$ref 'https://example.com/s.json' leads to no"),
        ({"$ref": "file:///etc/passwd"}, "$ref 'file:///etc/passwd' leads to no part"),
        ({"$ref": "#/$defs/x"}, "$ref '#/$defs/x' leads to no part of this schema"),
        ({"properties": {"default": {"$ref": "#/x"}}}, "$ref '#/x' leads to no part"),
        ({"$ref": "#"}, "the schema refers to itself without an end"),
        ({"$defs": {"a": {"$anchor": "b"}}}, "$anchor is not supported"),
        ({"$defs": {"a": {"$id": "b"}}}, "$id is not supported"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema is another dialect"),
        ({"default": float("nan")}, "schema.default (given: nan): send a finite number"),
        ({"title": "a\0b"}, "schema.title (given: 'a\\x00b'): remove the NUL character"),
        ({"title": "x" * 40_000}, "schema (given: '40012 bytes'): send at most 32768 bytes"),
    ],
    ids=lambda one: str(one)[:40].replace("\0", "0"),
)
def test_a_schema_that_nobody_can_be_asked_with_is_named(schema: Any, problem: str) -> None:
    assert find_schema_problem(schema).startswith(problem)


def test_values_that_look_like_references_are_none() -> None:
    schema = {"enum": [{"$ref": "x"}], "default": {"$ref": "x"}}
    assert find_schema_problem(schema) == ""
    assert told({"$ref": "x"}, schema) == []


def test_a_schema_may_refer_to_itself_as_deep_as_the_answer_goes() -> None:
    schema = {"properties": {"more": {"$ref": "#"}, "a": S}}
    assert find_schema_problem(schema) == ""
    assert told({"more": {"more": {"a": "1"}}}, schema) == []
    assert [one.field for one in find_problems({"more": {"more": {"b": 1}}}, schema)] == [
        "answer.more.more.b"
    ]


def test_a_loop_that_only_an_answer_enters_ends_as_a_problem() -> None:
    schema = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert "refers to itself" in told({"a": 1}, schema)[0]


def test_hostile_values_and_names_are_bounded() -> None:
    schema = {"properties": {"a" * 300: S}}
    answer = {"b" * 300: "c" * 5_000, "a" * 300: 1}
    for problem in find_problems(answer, schema):
        assert max(len(problem.field), len(problem.value), len(problem.fix)) <= 400


def test_the_order_of_fields_is_kept_beside_them() -> None:
    schema = {
        "properties": {"zebra": S, "a": {"properties": {"y": S, "x": S}}, "properties": S},
        "$defs": {"d": {"properties": {"n": S, "m": S}}},
        "default": {"properties": {"b": 1, "a": 2}},
    }
    kept = keep_order(schema)
    # As jsonb gives it back.
    back = {**kept, "properties": dict(sorted(kept["properties"].items()))}
    assert list(ordered_fields(back)) == ["zebra", "a", "properties"]
    assert list(ordered_fields(back["properties"]["a"])) == ["y", "x"]
    assert list(ordered_fields(back["$defs"]["d"])) == ["n", "m"]
    assert kept["default"] == schema["default"]
    assert find_schema_problem(kept) == ""
    assert keep_order(kept) == kept


def test_without_a_kept_order_what_is_required_comes_first() -> None:
    schema = {"properties": {"a": S, "b": S, "c": S}, "required": ["c", "b", "gone"]}
    assert list(ordered_fields(schema)) == ["c", "b", "a"]
