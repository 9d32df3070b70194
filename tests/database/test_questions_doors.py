"""Questions by the API and on the command line: what is shown, and what each refusal is called."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from approvals.question_shapes import Question as Shown
from runs.models import Question
from tests.database.asking import (
    ANSWER,
    SCHEMA,
    TEXT,
    Start,
    answerer,
    asked,
    end,
    let_run_out,
    say,
    written,
)
from tests.database.callers import Caller, caller
from tests.database.kit import scripted_tool

pytestmark = pytest.mark.django_db(transaction=True)

# What a question looks like to callers, spelled out so that a change of it is meant.
FIELDS = {
    "id", "status", "run", "agent", "step_number", "question", "schema", "groups", "escalate_to",
    "asked_at", "answer_by", "escalated_at", "answer", "answered_by", "ended_at",
}  # fmt: skip


@pytest.fixture
def robin() -> User:
    return answerer("robin")


@pytest.fixture
def api(robin: User) -> Caller:
    return caller(username="robin")


def answer_of(question: Question) -> str:
    return f"questions/{question.id}/answer/"


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_a_question_is_shown_with_the_schema_of_its_answer(api: Caller, start: Start) -> None:
    question = asked(start, groups=["finance"], escalate_to=["board"])
    [listed] = api.get("questions/", status="open").json()["results"]
    shown = api.get(f"questions/{question.id}/").json()
    assert listed == shown
    assert set(shown) == FIELDS
    assert (shown["question"], shown["schema"]) == (TEXT, SCHEMA)
    assert (shown["groups"], shown["escalate_to"]) == (["finance"], ["board"])
    assert (shown["run"], shown["agent"]) == (str(question.run_id), question.run.agent)
    assert (shown["status"], shown["answer"], shown["answered_by"]) == ("open", None, None)


def test_an_answer_is_heard_and_shown(api: Caller, start: Start) -> None:
    question = asked(start)
    heard = api.post(answer_of(question), {"answer": ANSWER, "event_id": "e-1"})
    assert (heard.status_code, "Idempotent-Replayed" in heard) == (200, False)
    assert (heard.json()["status"], heard.json()["answer"]) == ("answered", ANSWER)
    assert heard.json()["answered_by"] == "robin"
    again = api.post(answer_of(question), {"answer": ANSWER, "event_id": "e-1"})
    assert (again.status_code, again["Idempotent-Replayed"]) == (200, "true")
    assert again.json() == heard.json()


def test_lists_are_narrowed_and_read_on_from_a_cursor(api: Caller, start: Start) -> None:
    questions = [asked(start, groups=["finance"]), asked(start), asked(start, groups=["legal"])]
    second = asked(start, groups=["x"], escalate_to=["legal"], escalated_at=Now())
    end(questions[1], "expired")

    def ids(**query: str) -> list[str]:
        return [one["id"] for one in api.get("questions/", **query).json()["results"]]

    a, b, c, d = (str(one.id) for one in [*questions, second])
    assert ids() == [d, c, b, a]
    assert ids(status="open") == [d, c, a]
    assert ids(status="expired") == [b]
    assert ids(run=str(questions[0].run_id)) == [a]
    assert ids(group="legal") == [d, c]
    assert ids(mine="true") == []
    first = api.get("questions/", page_size="3").json()
    rest = api.get(first["next"]).json()
    assert [one["id"] for one in rest["results"]] == [a]
    assert [one["id"] for one in api.get(rest["previous"]).json()["results"]] == [d, c, b]


def test_a_page_costs_the_same_few_queries_however_long_it_is(api: Caller, start: Start) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert api.get("questions/").status_code == 200
        return len(queries)

    asked(start)
    cost()  # the token's first use is noted
    few = cost()
    for _ in range(5):
        asked(start)
    assert cost() == few


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"status": "new"}, "status"),
        ({"run": "17"}, "run"),
        ({"group": "a\0b"}, "group"),
        ({"mine": "perhaps"}, "mine"),
        ({"cursor": "x"}, "cursor"),
        ({"stat": "open"}, "stat"),
    ],
)
def test_a_filter_that_cannot_match_is_refused_by_name(api: Caller, query: Any, field: str) -> None:
    answer = api.get("questions/", **query)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_every_refusal_has_its_status_and_says_what_to_do(api: Caller, start: Start) -> None:
    answered, others, late, gone = (asked(start) for _ in range(4))
    say(answered, answerer("kim"))
    for_others = asked(start, groups=["finance"])
    let_run_out(late)
    end(gone, "cancelled")
    refusals = [
        (answered, ANSWER, 409, "already-answered", "kim answered"),
        (late, ANSWER, 409, "question-expired", "ran out at"),
        (gone, ANSWER, 409, "question-cancelled", "does not wait"),
        (for_others, ANSWER, 403, "not-asked", "groups that are asked: finance"),
        (others, {"parcel": 1}, 400, "unfit-answer", "Write a text."),
    ]
    for question, answer, status, kind, words in refusals:
        before = written(question)
        refused = api.post(answer_of(question), {"answer": answer})
        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (status, f"urn:agentops:problem:{kind}")
        assert words in problem["detail"]
        assert problem["field"]
        assert problem["fix"]
        assert written(question) == before


def test_each_field_that_does_not_fit_is_named(api: Caller, start: Start) -> None:
    refused = api.post(answer_of(asked(start)), {"answer": {"sure": "x", "parcle": "p-1"}})
    errors = {one["field"]: one["fix"] for one in refused.json()["errors"]}
    assert errors == {
        "answer.parcel": "It is required.",
        "answer.parcle": "Did you mean parcel? Possible are: sure, parcel.",
        "answer.sure": "Write true or false.",
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "answer"),
        ({"answer": ANSWER, "event_id": 7}, "event_id"),
        ({"answer": ANSWER, "event_id": "e" * 256}, "event_id"),
        ({"answer": ANSWER, "anser": 1}, "anser"),
        ({"answer": {"parcel": "a\0b"}}, "answer.parcel"),
        (b'{"answer": {"parcel": NaN}}', "answer.parcel"),
        (b'{"answer": {"parcel": "p-1", "parcel": "p-2"}}', "body"),
    ],
    ids=["none", "number", "long", "unknown", "NUL", "NaN", "twice"],
)
def test_a_body_that_cannot_be_stored_is_refused(
    api: Caller, start: Start, body: Any, field: str
) -> None:
    question = asked(start)
    before = written(question)
    raw = body if isinstance(body, bytes) else json.dumps(body)
    refused = api.post_raw(answer_of(question), raw)
    assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert written(question) == before


def test_reading_needs_no_right_to_answer_and_answering_its_scope(
    robin: User, start: Start
) -> None:
    question = asked(start)
    reader = caller("read", "runs:write", "approvals:decide", username="robin")
    assert reader.get(f"questions/{question.id}/").status_code == 200
    refused = reader.post(answer_of(question), {"answer": ANSWER})
    assert (refused.status_code, refused.json()["value"]) == (403, "questions:answer")


def test_every_status_of_a_row_can_be_shown() -> None:
    statuses = set(Shown.model_json_schema()["properties"]["status"]["enum"])
    assert statuses == {str(status) for status in Question.Status}


def test_what_tools_declare_sensitive_is_hidden_in_questions_and_answers(
    api: Caller, start: Start
) -> None:
    scripted_tool(name="pay", sensitive=("card",))
    run = start(decider=lambda context: None, tools=("pay",), input={"card": "4111-1111"})
    question = asked(start, run=run, text="Is 4111-1111 still good?", schema={})
    say(question, answerer(), {"card": "4242-4242", "good": False})
    shown = api.get(f"questions/{question.id}/")
    assert shown.json()["question"] == "Is [redacted] still good?"
    assert shown.json()["answer"] == {"card": "[redacted]", "good": False}
    assert "4111-1111" not in shown.content.decode()


# -- The command line --------------------------------------------------------------


def test_list_questions_shows_what_waits(start: Start, robin: User) -> None:
    question = asked(start, text="A\x1b[31m question", answer_by=Now() + timedelta(hours=1))
    out = told("list_questions", "--status", "open", "--mine-as", "robin")
    assert str(question.id) in out
    assert "\x1b" not in out
    assert json.loads(told("list_questions", "--json", "--group", "finance")) == []
    [shown] = json.loads(told("list_questions", "--json"))
    assert set(shown) == FIELDS
    assert told("list_questions", "--status", "expired").strip().endswith("No question matches.")


def test_answer_question_answers_as_a_user(start: Start, robin: User, tmp_path: Path) -> None:
    question = asked(start)
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(ANSWER))
    command = ["answer_question", str(question.id), "--answer", f"@{file}", "--as", "robin"]
    command += ["--event-id", "e-1"]
    assert "is answered: " in told(*command)
    assert "It had been heard before." in told(*command)
    shown = json.loads(told(*command, "--json"))
    assert (shown["answer"], shown["answered_by"]) == (ANSWER, "robin")
    with pytest.raises(CommandError, match="robin answered question"):
        told(*command[:-2])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"--as": "nobody"}, "--as: 'nobody' is not possible"),
        ({"--answer": "{"}, "--answer: this is no JSON"),
        ({"--answer": "@/no/such/file"}, "--answer: '@/no/such/file' is not possible"),
        ({"--answer": '{"parcel": 1}'}, r"answer.parcel \(given: 1\): Write a text."),
        ({"--event-id": ""}, "event_id: 0 characters is not possible"),
        ({"ID": "17"}, "No question has the id '17'"),
    ],
    ids=lambda one: "" if isinstance(one, str) else "-".join(one),
)
def test_answer_question_says_what_is_wrong_and_writes_nothing(
    start: Start, robin: User, changed: Any, words: str
) -> None:
    question = asked(start)
    before = written(question)
    given = {"ID": str(question.id), "--answer": json.dumps(ANSWER), "--as": "robin"} | changed
    options = [text for name, value in given.items() if name != "ID" for text in (name, value)]
    with pytest.raises(CommandError, match=words):
        told("answer_question", given["ID"], *options)
    assert written(question) == before


def test_a_token_with_the_scope_comes_with_the_permission() -> None:
    made = json.loads(told("create_token", "desk", "--scopes", "questions:answer", "--json"))
    assert made["permissions_given"] == ["runs.answer_question"]
    both = "questions:answer,approvals:decide"
    made = json.loads(told("create_token", "more", "--user", "desk", "--scopes", both, "--json"))
    assert made["permissions_given"] == ["runs.decide_approval"]
    assert User.objects.get(username="desk").has_perm("runs.answer_question")
