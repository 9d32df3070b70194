"""Whatever goes wrong is answered as a problem document."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from rest_framework.exceptions import Throttled
from rest_framework.test import APIRequestFactory

from agentops.problems import exception_handler
from runs import errors as runs
from runs.requests import InvalidRequest, MalformedJson, TooLarge
from tests.database.callers import Caller, caller
from tools import errors as tools

REQUEST_ERRORS = {
    runs.NotPermitted(actor="robin", scope="read"): 403,
    runs.UnknownAgent(name="quik", known=["quick"]): 400,
    runs.UnknownRun(run_id="r"): 404,
    runs.UnknownOperation(operation_id="o"): 404,
    runs.KeyReused(key="k", run_id="r"): 422,
    runs.KeyInUse(key="k"): 409,
    runs.InvalidInput(field="input", value="x", fix="Mend it."): 400,
    runs.WrongState(run_id="r", state="COMPLETED", request="cancel"): 409,
    runs.AlreadySettled(operation_id="o", status="COMMITTED"): 409,
    runs.StillInFlight(operation_id="o", until=datetime(2026, 1, 1, tzinfo=UTC)): 409,
    runs.ProvenCommitted(operation_id="o", source="a look-up", external_ref="re_1"): 409,
    runs.RunHeld(run_id="r", operation_id="o"): 409,
    InvalidRequest([tools.Problem("agent", "", "it is required")]): 400,
    MalformedJson(field="body", why="it is empty"): 400,
    TooLarge(field="body", limit=10): 413,
    tools.UnknownTool("refnd", near=["refund"]): 400,
    tools.InvalidArguments("refund", [tools.Problem("amount", "x", "send a number")]): 400,
    tools.InvalidPayload(field="input.a", value="\0", fix="remove the NUL character"): 400,
    OperationalError("connection refused by 192.0.2.7"): 503,
}


def handled(error: Exception) -> Any:
    request = APIRequestFactory().get("/api/v1/runs/")
    return exception_handler(error, {"request": request})


@pytest.mark.parametrize(
    ("error", "status"), REQUEST_ERRORS.items(), ids=lambda one: type(one).__name__
)
def test_every_condition_of_a_request_is_a_problem(error: Exception, status: int) -> None:
    answer = handled(error)
    assert answer.status_code == answer.data["status"] == status
    assert answer.data["type"].startswith("urn:agentops:problem:")
    assert answer.data["title"]
    assert answer.data["detail"]
    assert answer.data["instance"] == "/api/v1/runs/"
    if status < 500:
        assert answer.data["field"]
        assert answer.data["fix"]


def test_a_problem_type_means_one_condition() -> None:
    kinds = [handled(error).data["type"] for error in REQUEST_ERRORS]
    assert len(kinds) == len(set(kinds))


def test_what_a_server_said_stays_inside() -> None:
    answer = handled(OperationalError("connection refused by 192.0.2.7"))
    assert "192.0.2.7" not in str(answer.data)
    assert answer["Retry-After"] == "1"


def test_hostile_text_is_bounded_and_storable() -> None:
    said = handled(runs.UnknownAgent(name="\ud800\0" + "x" * 100_000, known=[])).data
    assert len(str(said)) < 4_000
    str(said).encode("utf-8")


def test_a_throttled_caller_is_told_when_to_come_back() -> None:
    answer = handled(Throttled(wait=7.2))
    assert answer.status_code == 429
    assert answer["Retry-After"] == "8"


def test_an_unforeseen_error_is_left_to_the_log() -> None:
    assert handled(RuntimeError("secret")) is None


@pytest.mark.django_db
def test_a_bug_is_a_500_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("runs.api.find_runs", broken)
    answer = caller().get("runs/")
    assert answer.status_code == answer.json()["status"] == 500
    assert answer["Content-Type"] == "application/problem+json"
    assert "secret" not in answer.content.decode()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("address", ["", "nothing/", "runs/a/b/", "/api/", "/api/v2/runs/"])
def test_an_unknown_address_is_a_problem_too(method: str, address: str) -> None:
    answer = Caller(client=Client(enforce_csrf_checks=True)).send(method, address)
    assert answer.status_code == answer.json()["status"] == 404
    assert answer["Content-Type"] == "application/problem+json"


def test_a_forgotten_last_slash_is_redirected_with_method_and_query() -> None:
    answer = Caller().send("POST", "runs?a=b")
    assert answer.status_code == 308
    assert answer["Location"] == "/api/v1/runs/?a=b"


def test_a_redirect_never_leaves_this_server() -> None:
    answer = Caller().send("GET", "/api//example.org/runs")
    assert answer.status_code == 404


def test_a_foreign_host_is_told_the_setting() -> None:
    answer = Client(headers={"Host": "elsewhere.example"}).get("/api/v1/runs/")
    assert answer.status_code == answer.json()["status"] == 400
    assert "AGENTOPS_ALLOWED_HOSTS" in answer.json()["detail"]


def test_pages_for_people_keep_their_own_errors() -> None:
    answer = Client().get("/nothing/")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")
