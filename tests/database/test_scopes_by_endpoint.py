"""Every endpoint with every scope: the table, which is complete, and what it says.

A route that is added without a line here fails, and so does a line without its route.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from runs.access import (
    APPROVALS_DECIDE,
    CALL_EVERY_TOOL,
    CALL_PREFIX,
    OPERATIONS_RESOLVE,
    QUESTIONS_ANSWER,
    READ,
    RUNS_WRITE,
    SCOPES,
)
from runs.models import AgentRun
from tests.database.callers import Caller, caller
from tests.database.kit import scripted_tool

pytestmark = pytest.mark.django_db

API: Final = "api/v1/"
# The scope of one tool, and those that let somebody call at least one.
ONE_TOOL: Final = f"{CALL_PREFIX}pay"
CALLERS: Final = (CALL_EVERY_TOOL, ONE_TOOL)
# Method and route, and the scopes of which any one will do.
ENDPOINTS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("GET", "runs/"): (READ,),
    ("POST", "runs/"): (RUNS_WRITE,),
    ("GET", "runs/<run_id>/"): (READ,),
    ("GET", "runs/<run_id>/timeline/"): (READ,),
    ("POST", "runs/<run_id>/cancel/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/pause/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/resume/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/retry/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/compensate/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/fork/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/signals/"): (RUNS_WRITE,),
    ("POST", "runs/<run_id>/finish/"): CALLERS,
    ("GET", "operations/"): (READ,),
    ("POST", "operations/"): CALLERS,
    # Whose call it was may look at it besides.
    ("GET", "operations/<operation_id>/"): (READ,),
    ("POST", "operations/<operation_id>/resolve/"): (OPERATIONS_RESOLVE,),
    ("POST", "operations/<operation_id>/correct/"): (OPERATIONS_RESOLVE,),
    ("GET", "schedules/"): (READ,),
    ("GET", "schedules/<name>/"): (READ,),
    ("GET", "slo/"): (READ,),
    ("GET", "agents/"): (READ,),
    ("GET", "tools/"): (READ,),
    ("GET", "approvals/"): (READ,),
    ("GET", "approvals/<approval_id>/"): (READ,),
    ("POST", "approvals/<approval_id>/verdict/"): (APPROVALS_DECIDE,),
    ("POST", "approvals/<approval_id>/propose/"): (APPROVALS_DECIDE,),
    ("GET", "questions/"): (READ,),
    ("GET", "questions/<question_id>/"): (READ,),
    ("POST", "questions/<question_id>/answer/"): (QUESTIONS_ANSWER,),
}
# For everybody: what the API looks like, that an address does not exist, and what keeps a process
# under watch, which names no run.
OPEN: Final = {"api/v1/schema/", "api/v1/docs/", "^api/", "healthz", "readyz", "metrics"}
# Pages that a person reaches before they are known.
BEFORE_THE_LOGIN: Final = {"admin/login/", "admin/logout/"}
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
EVERY_SCOPE: Final = (*SCOPES, ONE_TOOL)
NO_SUCH_ID: Final = "00000000-0000-7000-8000-000000000000"


def routes() -> Iterator[tuple[str, URLPattern]]:
    """Every address of the web process, with the names of its ids."""

    def walk(
        patterns: list[URLPattern | URLResolver], before: str
    ) -> Iterator[tuple[str, URLPattern]]:
        for one in patterns:
            address = before + str(one.pattern)
            if isinstance(one, URLResolver):
                yield from walk(one.url_patterns, address)
            else:
                yield re.sub(r"<\w+:", "<", address), one

    yield from walk(get_resolver().url_patterns, "")


def endpoints() -> set[tuple[str, str]]:
    """Method and route of everything below the API that is not open."""
    return {
        (method, address.removeprefix(API))
        for address, route in routes()
        if address.startswith("api/") and address not in OPEN
        for method in METHODS
        if hasattr(view := getattr(route.callback, "cls", None), method.lower())
        and method.lower() in getattr(view, "http_method_names", ())
    }


def admin_addresses() -> list[str]:
    return [
        "/" + re.sub(r"<\w+>", "1", address)
        for address, _ in routes()
        if address.startswith("admin/") and "(?P" not in address and address not in BEFORE_THE_LOGIN
    ]


@pytest.fixture(autouse=True)
def tool() -> None:
    scripted_tool("done", name="pay")


def asked(who: Caller, method: str, route: str) -> tuple[int, str]:
    answer = who.send(method, re.sub(r"<\w+>", NO_SUCH_ID, route))
    if answer.status_code >= 400:
        assert answer["Content-Type"] == "application/problem+json"
    return answer.status_code, answer.json().get("type", "").rpartition(":")[2]


def test_every_address_is_in_the_table_open_or_behind_the_login() -> None:
    assert endpoints() == set(ENDPOINTS)
    for address, _ in routes():
        assert address.startswith((API, "admin/")) or address in OPEN, address


def test_every_scope_there_is_is_tried() -> None:
    assert {scope for scopes in ENDPOINTS.values() for scope in scopes} <= set(EVERY_SCOPE)


@pytest.mark.parametrize("scope", EVERY_SCOPE)
def test_a_scope_opens_what_the_table_says_and_nothing_else(scope: str) -> None:
    who = caller(scope)
    for (method, route), scopes in ENDPOINTS.items():
        status, problem = asked(who, method, route)
        if scope in scopes:
            assert problem != "not-permitted", (method, route)
            assert status in {200, 400, 403, 404}, (method, route, status, problem)
        else:
            assert (status, problem) == (403, "not-permitted"), (method, route)
    assert not AgentRun.objects.exists()


def test_all_scopes_but_the_right_ones_open_nothing() -> None:
    for (method, route), scopes in ENDPOINTS.items():
        others = [scope for scope in EVERY_SCOPE if scope not in scopes]
        assert asked(caller(*others), method, route) == (403, "not-permitted"), (method, route)


@pytest.mark.parametrize(("method", "route"), ENDPOINTS)
def test_nobody_gets_in_without_a_token(method: str, route: str) -> None:
    assert asked(Caller(), method, route)[0] == 401
    assert asked(Caller(token="aot_00000000_guessed"), method, route)[0] == 401


def test_a_token_of_one_tool_calls_no_other() -> None:
    scripted_tool("done", name="refund")
    body = {"tool": "refund", "arguments": {}}
    refused = caller(ONE_TOOL).post("operations/", body, key="k")
    assert (refused.status_code, refused.json()["value"]) == (403, f"{CALL_PREFIX}refund")


@pytest.mark.django_db(transaction=True)
def test_whoever_calls_sees_that_call_and_nobody_elses() -> None:
    ours, theirs = caller(ONE_TOOL), caller(ONE_TOOL)
    body = {"tool": "pay", "arguments": {"amount": 1}, "wait_seconds": 0}
    operation_id = ours.post("operations/", body, key="k").json()["operation_id"]
    assert ours.get(f"operations/{operation_id}/").status_code == 200
    assert theirs.get(f"operations/{operation_id}/").status_code == 403
    assert caller(READ).get(f"operations/{operation_id}/").status_code == 200


def test_no_page_of_the_admin_is_for_strangers_or_for_tokens() -> None:
    addresses = admin_addresses()
    assert len(addresses) > 100
    who = Client(headers={"Authorization": f"Token {caller().token}"})
    for address in addresses:
        for answer in (who.get(address), who.post(address)):
            assert answer.status_code == 302, address
            assert answer["Location"].startswith(("/admin/login/", "/admin/")), address
            if not answer["Location"].startswith("/admin/login/"):
                # Only on to another page, which is tried too.
                assert answer["Location"].rstrip("/") != address.rstrip("/"), address
