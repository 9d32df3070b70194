"""Every route: it is closed, and the schema is true.

Which scope opens what is in `test_scopes_by_endpoint.py`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db.models.functions import Now
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from jsonschema import validate  # type: ignore[import-untyped]
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from agentops.problems import no_such_address
from runs import ToolCall
from runs.access import READ
from runs.models import AgentRun
from runs.rest import KernelView
from tests.database import asking
from tests.database.approving import asked, held_run, person
from tests.database.callers import Caller, caller
from tests.database.controlling import failed
from tests.database.kit import call_once, drive, scripted_tool
from tests.database.scheduling import schedule
from tests.database.stories import Start, uncertain_run

pytestmark = pytest.mark.django_db

# Open to everybody: what the API looks like, and that an address does not exist.
OPEN = {SpectacularAPIView, SpectacularSwaggerSplitView, no_such_address}


def api_routes() -> Iterator[tuple[str, object]]:
    """Every pattern below /api/, as an address with stand-ins for its ids, and its view."""

    def walk(patterns: list[URLPattern | URLResolver], before: str) -> Iterator[tuple[str, object]]:
        for one in patterns:
            address = before + str(one.pattern)
            if isinstance(one, URLResolver):
                yield from walk(one.url_patterns, address)
            elif address.startswith(("api/", "^api/")):
                yield address, getattr(one.callback, "cls", one.callback)

    for address, view in walk(get_resolver().url_patterns, ""):
        for name in ("run_id", "operation_id", "approval_id", "question_id"):
            address = address.replace(f"<str:{name}>", "00000000-0000-7000-8000-000000000000")
        yield "/" + address.lstrip("^"), view


def closed_calls() -> list[tuple[str, str]]:
    """Method and address of everything that needs a token."""
    return [
        (method, address)
        for address, view in api_routes()
        if isinstance(view, type) and issubclass(view, KernelView)
        for method in ("GET", "POST")
        if hasattr(view, method.lower())
    ]


def test_every_route_is_closed_or_known_to_be_open() -> None:
    for address, view in api_routes():
        assert view in OPEN or (isinstance(view, type) and issubclass(view, KernelView)), address
    assert len(closed_calls()) >= 9


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_405_with_a_token_and_401_without(method: str) -> None:
    refused = caller().send(method, "runs/")
    assert refused.status_code == 405
    assert refused["Content-Type"] == "application/problem+json"
    assert "GET" in refused["Allow"]
    assert Caller().send(method, "runs/").status_code == 401


def test_head_needs_the_scope_of_get() -> None:
    assert caller(READ).send("HEAD", "runs/").status_code == 200
    assert caller("runs:write").send("HEAD", "runs/").status_code == 403


def test_a_view_that_forgets_its_scope_lets_nobody_in() -> None:
    class Forgetful(KernelView):
        def get(self, request: Request) -> Response:
            return Response({"secret": True})

    request = APIRequestFactory().get("/", headers={"Authorization": f"Token {caller().token}"})
    answer = Forgetful.as_view()(request)
    assert answer.status_code == 403
    assert "secret" not in answer.data


def published_schema() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call, no-any-return]


def test_the_schema_is_valid_and_nothing_in_it_is_guessed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = published_schema()
    validate_schema(schema)  # type: ignore[no-untyped-call]
    assert capsys.readouterr().err == ""


def test_the_schema_says_that_every_call_needs_a_token() -> None:
    calls = [call for path in published_schema()["paths"].values() for call in path.values()]
    assert len(calls) == len(closed_calls())
    assert all(call["security"] == [{"token": []}] for call in calls)


@pytest.mark.django_db(transaction=True)
def test_every_answer_is_what_the_schema_says(start: Start) -> None:
    """Every documented call is made; each answer has the fields of its schema and no others."""
    run = uncertain_run(start)
    operation = run.operations.get()
    signed, changed, question = asked(start), asked(start), asking.asked(start)
    paused, planned = held_run(start), schedule(agent=run.agent)
    broken, _ = failed(start)
    scripted_tool("done", name="donate")
    drive(donor := start(decider=call_once(ToolCall("donate")), tools=("donate",)))
    effect = donor.operations.get()
    AgentRun.objects.filter(id=paused.id).update(paused_at=Now())
    schema = published_schema()
    user = person()
    user.user_permissions.add(Permission.objects.get(codename="answer_question"))
    api = caller(username=user.username)
    calling = {"tool": "donate", "arguments": {}, "wait_seconds": 0}
    threaded = api.post("operations/", calling | {"thread": "t"}, key="of the thread").json()
    bodies = {
        "operations_call": calling,
        "runs_start": {"agent": run.agent},
        "operations_resolve": {"outcome": "committed", "evidence": "seen at the provider"},
        "operations_correct": {"evidence": "taken back at the provider"},
        "runs_fork": {"step": 0},
        "runs_signal": {"name": "paid", "event_id": "1"},
        "approvals_verdict": {"verdict": "approve", "fingerprint": signed.fingerprint},
        "questions_answer": {"answer": asking.ANSWER},
        "approvals_propose": {
            "arguments": {"order": "17", "amount": 4},
            "fingerprint": changed.fingerprint,
            "reason": "less",
        },
    }
    for path, calls in schema["paths"].items():
        runs = {"resume": paused.id, "retry": broken.id, "finish": threaded["run"]}
        address = path.replace("{run_id}", str(runs.get(path.split("/")[-2], run.id)))
        about = effect if path.endswith("correct/") else operation
        address = address.replace("{operation_id}", about.id)
        approval = changed if path.endswith("propose/") else signed
        address = address.replace("{approval_id}", str(approval.id))
        address = address.replace("{question_id}", str(question.id))
        address = address.replace("{name}", planned.name)
        for method, call in calls.items():
            body = bodies.get(call["operationId"])
            key = "k" if call["operationId"] == "operations_call" else None
            answer = api.post(address, body, key=key) if method == "post" else api.get(address)
            assert answer.status_code < 400, answer.content
            documented = call["responses"][str(answer.status_code)]["content"]
            ((kind, content),) = documented.items()
            assert answer["Content-Type"] == kind
            validate(answer.json(), content["schema"] | {"components": schema["components"]})
            assert set(answer.json()) == set(_resolve(schema, content["schema"])["properties"])


def _resolve(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    name = part["$ref"].removeprefix("#/components/schemas/")
    found: dict[str, Any] = schema["components"]["schemas"][name]
    return found


def test_schema_and_docs_are_open() -> None:
    assert Caller().get("schema/").status_code == 200
    assert Caller().get("docs/").status_code == 200
