"""Starting runs over the API: once per key, and nothing from bad input."""

import json
import threading
from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.db import connection, transaction

from runs import Agent, Finish
from runs.access import READ, RUNS_WRITE, SCOPES, Actor
from runs.api import RunsView
from runs.commands import start_run
from runs.models import AgentRun, Transition
from tests.database.callers import RUN_FIELDS, Caller, caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Caller:
    return caller(username="robin")


@pytest.fixture(autouse=True)
def agent() -> Agent:
    return Agent(name="quick", decider=lambda context: Finish(context.input))


# -- Start -----------------------------------------------------------------------


def test_a_started_run_has_every_field_of_the_contract(api: Caller) -> None:
    answer = api.post(
        "runs/",
        {"agent": "quick", "objective": "Greet", "input": {"a": [1, None]}, "labels": {"k": "v"}},
    )
    assert answer.status_code == 201
    run = answer.json()
    assert set(run) == RUN_FIELDS
    assert run["spent"] == {"steps": 0, "tokens": 0, "cost_usd": "0"}
    assert (
        run
        | {
            "agent": "quick",
            "state": "READY",
            "objective": "Greet",
            "input": {"a": [1, None]},
            "result": None,
            "error": None,
            "labels": {"k": "v"},
            "fence_token": 0,
            "version": 1,
            "lease": None,
            "uncertain": False,
            "finished_at": None,
            "created_by": "robin",
        }
        == run
    )
    assert run["wake_at"] is not None
    assert api.get(answer["Location"]).json() == run


def test_only_the_agent_is_needed(api: Caller) -> None:
    run = api.post("runs/", {"agent": "quick"}).json()
    assert (run["objective"], run["input"], run["labels"]) == ("", {}, {})


def test_the_same_request_under_one_key_is_one_run(api: Caller) -> None:
    body = {"agent": "quick", "input": {"b": 1, "a": 2}}
    first = api.post("runs/", body, key="k1")
    second = api.post("runs/", {"input": {"a": 2, "b": 1}, "agent": "quick"}, key="k1")
    assert (first.status_code, second.status_code) == (201, 200)
    assert "Idempotent-Replayed" not in first
    assert second["Idempotent-Replayed"] == "true"
    assert second["Location"] == first["Location"]
    assert second.json()["id"] == first.json()["id"]
    assert AgentRun.objects.count() == 1


def test_a_key_with_another_body_is_422_and_starts_nothing(api: Caller) -> None:
    first = api.post("runs/", {"agent": "quick", "input": 1}, key="k1").json()
    second = api.post("runs/", {"agent": "quick", "input": 2}, key="k1")
    assert second.status_code == 422
    assert second.json()["field"] == "Idempotency-Key"
    assert first["id"] in second.json()["detail"]
    assert AgentRun.objects.count() == 1


def test_a_key_is_its_callers_own(api: Caller) -> None:
    api.post("runs/", {"agent": "quick", "input": 1}, key="k1")
    assert caller().post("runs/", {"agent": "quick", "input": 2}, key="k1").status_code == 201


def test_two_tokens_of_one_owner_share_their_keys(api: Caller) -> None:
    api.post("runs/", {"agent": "quick"}, key="k1")
    again = caller(RUNS_WRITE, username="robin").post("runs/", {"agent": "quick"}, key="k1")
    assert again.status_code == 200


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_unusable_key_is_refused_by_name(api: Caller, key: str) -> None:
    answer = api.post("runs/", {"agent": "quick"}, key=key)
    assert answer.status_code == 400
    assert answer.json()["field"] == "Idempotency-Key"
    assert not AgentRun.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_key_whose_first_request_is_still_being_written_is_409(api: Caller) -> None:
    written, over = threading.Event(), threading.Event()

    def first() -> None:
        with transaction.atomic():
            actor = Actor(name="robin", scopes=frozenset(SCOPES))
            start_run(actor=actor, agent="quick", idempotency_key="k1")
            written.set()
            over.wait(30)
        connection.close()

    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '200ms'")
    slow = threading.Thread(target=first)
    slow.start()
    try:
        assert written.wait(30)
        answer = api.post("runs/", {"agent": "quick"}, key="k1")
    finally:
        over.set()
        slow.join()
        connection.close()
    assert answer.status_code == 409
    assert answer["Retry-After"] == "1"
    assert answer.json()["field"] == "Idempotency-Key"
    again = api.post("runs/", {"agent": "quick"}, key="k1")
    assert (again.status_code, AgentRun.objects.count()) == (200, 1)


def test_a_body_in_chunks_is_read_whole(api: Caller) -> None:
    assert sent_in_chunks(api, b'{"agent": "quick", "objective": "x"}') == 201
    assert AgentRun.objects.get().objective == "x"


def test_a_body_in_chunks_is_limited_too(api: Caller) -> None:
    body = b'{"agent": "quick", "input": "' + b"x" * 262_144 + b'"}'
    assert sent_in_chunks(api, body) == 413


def sent_in_chunks(api: Caller, body: bytes) -> int:
    """The status of a POST whose length nobody announced, as the ASGI server hands it on."""
    headers = {
        b"host": b"localhost",
        b"authorization": f"Token {api.token}".encode(),
        b"content-type": b"application/json",
        b"transfer-encoding": b"chunked",
    }
    scope = {"type": "http", "method": "POST", "path": "/", "headers": list(headers.items())}
    return int(RunsView.as_view()(ASGIRequest(scope, BytesIO(body))).status_code)


# -- Bad input ---------------------------------------------------------------------


def deep(levels: int) -> str:
    return '{"agent": "quick", "input": ' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("", 400, "agent"),
        ("{", 400, "body"),
        ("[]", 400, "body"),
        ('"text"', 400, "body"),
        ("null", 400, "body"),
        (b"\xff\xfe", 400, "body"),
        ('{"agent": "quick", "agent": "quick"}', 400, "body"),
        ('{"agent": "quick", "input": ' + "9" * 5000 + "}", 400, "body"),
        ("{}", 400, "agent"),
        ('{"agent": 7}', 400, "agent"),
        ('{"agent": null}', 400, "agent"),
        ('{"agent": "' + "x" * 101 + '"}', 400, "agent"),
        ('{"agent": "quicker"}', 400, "agent"),
        ('{"agent": "qu\\u0000ick"}', 400, "agent"),
        ('{"agent": "\\ud800"}', 400, "agent"),
        ('{"agent": "quick", "inptu": {}}', 400, "inptu"),
        ('{"agent": "quick", "objective": 5}', 400, "objective"),
        ('{"agent": "quick", "objective": "a\\u0000b"}', 400, "objective"),
        ('{"agent": "quick", "input": {"amount": NaN}}', 400, "input.amount"),
        ('{"agent": "quick", "input": [1, {"x": -Infinity}]}', 400, "input[1].x"),
        ('{"agent": "quick", "input": {"t": "a\\u0000b"}}', 400, "input.t"),
        ('{"agent": "quick", "input": {"t": "\\ud800"}}', 400, "input.t"),
        ('{"agent": "quick", "input": {"n": 12345678901234567890}}', 400, "input.n"),
        ('{"agent": "quick", "labels": ["a"]}', 400, "labels"),
        ('{"agent": "quick", "labels": {"a": 1}}', 400, "labels.a"),
        ('{"agent": "quick", "labels": {"a": "\\u0000"}}', 400, "labels.a"),
        ('{"agent": "quick", "labels": {"": "x"}}', 400, "labels."),
        ('{"agent": "quick", "labels": {"\\ud800": "x"}}', 400, None),
        ('{"agent": "quick", "input": {"\\ud800": 1, "\\u0000": 2}}', 400, "input"),
        (json.dumps({"agent": "quick", "labels": {str(n): "" for n in range(21)}}), 400, "labels"),
        (json.dumps({"agent": "quick", "input": "x" * 262_144}), 413, "body"),
        (deep(40), 400, None),
        (deep(100_000), 400, "body"),
    ],
)
def test_bad_input_is_refused_by_name_and_writes_nothing(
    api: Caller, body: str | bytes, status: int, field: str | None
) -> None:
    answer = api.post_raw("runs/", body, key="k1")
    problem = answer.json()
    assert answer.status_code == problem["status"] == status
    assert answer["Content-Type"] == "application/problem+json"
    if field is not None:
        assert problem["field"] == field
    assert problem["fix"]
    assert len(answer.content) < 4_000
    assert not AgentRun.objects.exists()
    assert not Transition.objects.exists()
    assert api.post("runs/", {"agent": "quick"}, key="k1").status_code == 201


def test_every_field_that_does_not_fit_is_named(api: Caller) -> None:
    problem = api.post("runs/", {"objective": 1, "labels": {"a": 2}}).json()
    assert [one["field"] for one in problem["errors"]] == ["agent", "objective", "labels.a"]


def test_a_near_agent_is_suggested(api: Caller) -> None:
    problem = api.post("runs/", {"agent": "quik"}).json()
    assert problem["type"].endswith("unknown-agent")
    assert "quick" in problem["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "nonsense"])
def test_another_media_type_is_415(api: Caller, kind: str) -> None:
    assert api.post_raw("runs/", '{"agent": "quick"}', content_type=kind).status_code == 415


def test_json_with_a_charset_is_json(api: Caller) -> None:
    answer = api.post_raw(
        "runs/", '{"agent": "quick"}', content_type="application/json; charset=utf-8"
    )
    assert answer.status_code == 201


def test_reading_starts_nothing() -> None:
    assert caller(READ).post("runs/", {"agent": "quick"}).status_code == 403
    assert not AgentRun.objects.exists()
