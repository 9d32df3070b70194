"""Every kind of field: what the page shows for it, and the answer that comes of what is typed."""

import html
import re
from typing import Any

import pytest
from django.urls import reverse

from runs.models import Question
from tests.database.approval_pages import opened, text_of
from tests.database.asking import Start, asked
from tests.database.question_pages import answer_page, clerk, page_of, typed

pytestmark = pytest.mark.django_db(transaction=True)

LETTERS = [letter * 3 for letter in "abcdefghij"]
DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d+)?$"}]}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}}
CHECKED = re.compile(r'<input type="(?:radio|checkbox)" name="field-[^>]* checked')

# (schema of the field, what stands on the page, what is typed, what is answered)
FIELDS: dict[str, tuple[dict[str, Any], str, Any, Any]] = {
    "text": ({"type": "string", "maxLength": 50}, '<input type="text"', " p-17", " p-17"),
    "pattern": ({"type": "string", "pattern": "^p"}, '<input type="text"', "p-17", "p-17"),
    "long text": ({"type": "string"}, "<textarea", "one\r\ntwo", "one\ntwo"),
    "integer": ({"type": "integer"}, 'inputmode="decimal"', " 12 ", 12),
    "number": ({"type": "number"}, 'inputmode="decimal"', "12.50", 12.5),
    "decimal": (DECIMAL, 'inputmode="decimal"', "0.10", 0.1),
    "exact decimal": (
        DECIMAL,
        'inputmode="decimal"',
        "12345678901.000000001",
        "12345678901.000000001",
    ),
    "yes": ({"type": "boolean"}, 'type="radio"', "0", True),
    "no": ({"type": "boolean"}, 'type="radio"', "1", False),
    "few choices": ({"enum": ["a", "b"]}, 'type="radio"', "1", "b"),
    "many choices": ({"enum": LETTERS}, "<select", "9", "jjj"),
    "numbers to choose": ({"enum": [1, True, None, 2.5]}, 'type="radio"', "1", True),
    "one choice": ({"const": "agreed"}, 'type="radio"', "0", "agreed"),
    "choices with words": (
        {"oneOf": [{"const": 1, "title": "one"}, {"const": 2, "title": "two"}]},
        "two",
        "1",
        2,
    ),
    "ticks": (
        {"type": "array", "items": {"enum": ["x", "y", "z"]}},
        'type="checkbox"',
        ["0", "2"],
        ["x", "z"],
    ),
    "date": ({"type": "string", "format": "date"}, 'type="date"', "2026-12-24", "2026-12-24"),
    "time": ({"type": "string", "format": "time"}, 'type="time"', "18:00", "18:00"),
    "date and time": (
        {"type": "string", "format": "date-time"},
        'type="datetime-local"',
        "2026-12-24T18:00",
        "2026-12-24T18:00:00Z",
    ),
    "object": (PERSON, "Written as JSON", '{"name": "Kim"}', {"name": "Kim"}),
    "list": ({"type": "array", "items": {"type": "integer"}}, "<textarea", "[1, 2]", [1, 2]),
    "anything": ({}, "Written as JSON", '["x", null]', ["x", None]),
    "reference": ({"$ref": "#/$defs/kind"}, 'type="radio"', "1", "big"),
    "or null": (
        {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]},
        '<input type="text"',
        "x",
        "x",
    ),
    "null": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "<textarea", "", None),
}
ROOT = {"$defs": {"kind": {"enum": ["small", "big"]}}}


def schema_of(field: Any, *, needed: bool = True) -> dict[str, Any]:
    required = ["value"] if needed else []
    return {**ROOT, "type": "object", "properties": {"value": field}, "required": required}


@pytest.mark.parametrize("kind", FIELDS)
def test_each_kind_of_field_is_shown_and_read(start: Start, kind: str) -> None:
    declared, shown, given, answer = FIELDS[kind]
    question, (_, client) = asked(start, schema=schema_of(declared)), clerk()
    assert shown in opened(client, page_of(question))
    answered = answer_page(client, question, typed(given))
    assert answered.status_code == 302, text_of(answered.content.decode())
    question.refresh_from_db()
    assert question.answer == {"value": answer}
    assert type(question.answer["value"]) is type(answer)


@pytest.mark.parametrize("kind", [kind for kind in FIELDS if kind != "null"])
def test_what_may_be_left_out_and_is_left_empty_is_left_out(start: Start, kind: str) -> None:
    declared = FIELDS[kind][0]
    question, (_, client) = asked(start, schema=schema_of(declared, needed=False)), clerk()
    said = text_of(opened(client, page_of(question)))
    assert "(may be left" in said
    # A browser posts nothing of boxes that nobody has ticked.
    nothing = typed([] if kind == "ticks" else "")
    assert answer_page(client, question, nothing).status_code == 302
    question.refresh_from_db()
    assert question.answer == {}


NEEDED = [kind for kind in FIELDS if kind not in ("null", "or null", "ticks")]


@pytest.mark.parametrize("kind", NEEDED)
def test_what_is_needed_and_left_empty_is_asked_for_at_its_field(start: Start, kind: str) -> None:
    question, (_, client) = asked(start, schema=schema_of(FIELDS[kind][0])), clerk()
    refused = answer_page(client, question, typed(" "))
    assert refused.status_code == 400
    page = refused.content.decode()
    assert re.search(r'id="field-0-error">It is required\.<', page)
    assert 'href="#field-0"' in page
    assert Question.objects.get(id=question.id).status == "open"


@pytest.mark.parametrize(
    ("declared", "given", "error", "kept"),
    [
        ({"type": "integer"}, "twelve", "Write a number, as 12 or 12.50.", "twelve"),
        ({"type": "integer"}, "12.5", "Write a whole number.", "12.5"),
        ({"type": "number", "maximum": 5}, "7", "Write a number of at most 5.", "7"),
        ({"type": "number"}, "true", "Write a number, as 12 or 12.50.", "true"),
        ({"type": "number"}, "NaN", "send a finite number", "NaN"),
        ({"type": "string", "maxLength": 3}, "<b>long", "Use at most 3 characters.", "<b>long"),
        ({"type": "string", "format": "date"}, "24.12.", "Write a date", "24.12."),
        ({"enum": ["a", "b"]}, "7", "Choose one of these.", None),
        ({"enum": ["a", "b"]}, "a", "Choose one of these.", None),
        ({"type": "array", "items": {"enum": ["a"]}}, ["0", "x"], "Choose one of these.", None),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
            ["1"],
            "Give at least 2.",
            None,
        ),
        (PERSON, '{"name": ', "This is no JSON", '{"name": '),
        (PERSON, '{"nam": 1}', "Did you mean name?", '{"nam": 1}'),
        (PERSON, '{"name": 1, "name": 2}', "is given twice", '{"name": 1, "name": 2}'),
    ],
    ids=str,
)
def test_what_does_not_fit_is_said_at_its_field_with_what_was_typed_still_there(
    start: Start, declared: Any, given: Any, error: str, kept: str | None
) -> None:
    question, (_, client) = asked(start, schema=schema_of(declared)), clerk()
    refused = answer_page(client, question, typed(given))
    assert refused.status_code == 400
    page = refused.content.decode()
    said = re.search(r'<p class="ao-error" id="field-0-error">(.*?)</p>', page)
    assert said is not None
    assert error in html.unescape(said[1])
    if kept is not None:
        assert kept in html.unescape(re.sub(r"<p class=.*?</p>", "", page))
        assert 'aria-invalid="true"' in page
    assert Question.objects.get(id=question.id).status == "open"


def test_ticked_boxes_and_chosen_buttons_stay_so(start: Start) -> None:
    schema = {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}},
            "kind": {"enum": ["a", "b"]},
            "number": {"type": "integer"},
        },
        "required": ["kind", "number", "tags"],
    }
    question, (_, client) = asked(start, schema=schema), clerk()
    given = {"field-0": "1", "field-1": "x", "field-2": ["0", "1"]}
    page = answer_page(client, question, given).content.decode()
    assert len(CHECKED.findall(page)) == 3


def test_fields_are_filled_in_with_their_defaults(start: Start) -> None:
    fields = {
        "text": {"type": "string", "default": "as <usual>", "maxLength": 99},
        "number": {"type": "number", "default": 2.5},
        "flag": {"type": "boolean", "default": False},
        "kind": {"enum": ["a", "b"], "default": "b"},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "default": ["y"]},
        "more": {"type": "object", "default": {"a": 1}},
        "at": {"type": "string", "format": "date-time", "default": "2026-12-24T18:00:00Z"},
    }
    question, (_, client) = asked(start, schema={"properties": fields}), clerk()
    page = opened(client, page_of(question))
    for text in ('value="as &lt;usual&gt;"', 'value="2.5"', 'value="2026-12-24T18:00:00"'):
        assert text in page
    assert len(CHECKED.findall(page)) == 3
    assert "{\n  &quot;a&quot;: 1\n}" in page


@pytest.mark.parametrize(
    ("schema", "given", "answer"),
    [
        ({"type": "boolean", "title": "Shall it be sent?"}, "1", False),
        ({"type": "string"}, "a word", "a word"),
        ({"type": "integer"}, "7", 7),
        ({"enum": ["a", "b"]}, "0", "a"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["1"], ["b"]),
        ({}, '{"a": 1}', {"a": 1}),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"anyOf": [PERSON, {"type": "string"}]}, '"Kim"', "Kim"),
        ({"type": ["string", "null"]}, "", None),
        ({"$ref": "#/$defs/p", "$defs": {"p": PERSON}}, "Kim", {"name": "Kim"}),
    ],
    ids=str,
)
def test_an_answer_that_is_no_object_has_one_field_and_an_unusual_one_a_box_of_json(
    start: Start, schema: Any, given: Any, answer: Any
) -> None:
    question, (_, client) = asked(start, schema=schema), clerk()
    opened(client, page_of(question))
    assert answer_page(client, question, typed(given)).status_code == 302
    question.refresh_from_db()
    assert (question.status, question.answer) == ("answered", answer)
    assert question.pk
    assert "Answered" in text_of(opened(client, page_of(question)))


def test_labels_and_help_come_from_the_schema_in_the_order_that_was_kept(start: Start) -> None:
    fields = {
        "b": {"type": "string", "title": "The parcel", "description": "As on its label."},
        "a": {"type": "integer", "minimum": 1, "maximum": 9},
        "how_many": {"type": "integer"},
    }
    schema = {"properties": fields, "x-order": ["how_many", "b", "a"]}
    question, (_, client) = asked(start, schema=schema), clerk()
    said = text_of(opened(client, page_of(question)))
    places = [said.index(word) for word in ("How many", "The parcel", "As on its label.")]
    assert places == sorted(places)
    assert "A number from 1 up to 9." in said or "A whole number from 1 up to 9." in said


def test_nothing_that_an_agent_wrote_becomes_part_of_the_page(start: Start) -> None:
    evil = '"><script>alert(1)</script><b x="'
    unseen = "\u202egnp.exe"
    fields = {
        f"a{evil}": {"type": "string", "title": evil + unseen, "description": evil + unseen},
        f"b{evil}": {"enum": [evil, unseen], "title": ""},
        f"c{evil}": {"type": "array", "items": {"enum": [evil]}, "default": [evil]},
        f"d{evil}": {"type": "string", "default": evil, "maxLength": 150},
        f"e{evil}": {"type": "string", "pattern": evil, "format": evil},
    }
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    question, (_, client) = asked(start, schema=schema, text=evil + unseen), clerk()
    pages = [
        opened(client, page_of(question)),
        opened(client, reverse("admin:runs_question_changelist")),
        answer_page(client, question, {"field-4": "x"}).content.decode(),
    ]
    given = {"field-0": evil, "field-1": "0", "field-2": "0", "field-3": evil, "field-4": "x"}
    refused = answer_page(client, question, given)
    for page in [*pages, refused.content.decode()]:
        assert "<script>alert" not in page
        assert evil not in page
        assert "\u202e" not in page
        assert "\\u202egnp.exe" in page


def test_a_huge_schema_becomes_a_box_of_json(start: Start) -> None:
    fields = {f"field{number}": {"type": "string"} for number in range(200)}
    question, (_, client) = asked(start, schema={"properties": fields}), clerk()
    assert opened(client, page_of(question)).count("<textarea") == 1
    assert answer_page(client, question, typed('{"field7": "x"}')).status_code == 302
    question.refresh_from_db()
    assert question.answer == {"field7": "x"}
