"""Runs over the API: find, show, cancel."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs import Agent, CallTools, Context, Decision, Finish, ToolCall
from runs.access import operator
from runs.agents import forget_agents
from runs.commands import start_run
from runs.engine import advance
from runs.models import AgentRun
from tests.database.callers import RUN_FIELDS, Caller, caller
from tools import Call, EffectType, tool

NOBODY = "01900000-0000-7000-8000-000000000000"

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Caller:
    return caller(username="robin")


@pytest.fixture(autouse=True)
def agent() -> Agent:
    return Agent(name="quick", decider=lambda context: Finish(context.input))


def many(count: int, **options: Any) -> list[AgentRun]:
    return [start_run(actor=operator(), agent="quick", **options).run for _ in range(count)]


# -- Find ------------------------------------------------------------------------


def test_runs_come_newest_first_in_pages_that_lead_to_each_other(api: Caller) -> None:
    ids = [str(run.id) for run in reversed(many(7))]
    first = api.get("runs/", page_size=3).json()
    second = api.get(first["next"]).json()
    third = api.get(second["next"]).json()
    pages = [[run["id"] for run in page["results"]] for page in (first, second, third)]
    assert pages == [ids[:3], ids[3:6], ids[6:]]
    assert (first["previous"], third["next"]) == (None, None)
    back = api.get(third["previous"]).json()
    assert [run["id"] for run in back["results"]] == pages[1]
    assert [run["id"] for run in api.get(back["previous"]).json()["results"]] == pages[0]
    assert api.get(api.get(back["previous"]).json()["next"]).json()["results"] == second["results"]


def test_runs_of_one_moment_are_each_shown_once(api: Caller) -> None:
    many(6)
    AgentRun.objects.update(created_at=timezone.now())
    seen: list[str] = []
    address: str | None = "runs/?page_size=2"
    while address:
        page = api.get(address).json()
        seen += [run["id"] for run in page["results"]]
        address = page["next"]
    assert len(seen) == len(set(seen)) == 6


def test_a_run_that_comes_in_meanwhile_shifts_no_page(api: Caller) -> None:
    many(4)
    first = api.get("runs/", page_size=2).json()
    many(3)
    second = api.get(first["next"]).json()
    seen = [run["id"] for page in (first, second) for run in page["results"]]
    assert len(set(seen)) == 4
    newer = api.get(second["previous"]).json()
    assert newer["results"] == first["results"]


def test_filters_narrow_together(api: Caller) -> None:
    Agent(name="other", decider=lambda context: Finish())
    many(1, labels={"team": "a:b", "tier": "1"})
    many(1, labels={"team": "a:b", "tier": "2"})
    start_run(actor=operator(), agent="other", labels={"tier": "1"})

    def count(query: str) -> int:
        return len(api.get(f"runs/?{query}").json()["results"])

    assert count("agent=quick") == 2
    assert count("agent=nobody") == 0
    assert count("label=tier:1") == 2
    assert count("label=team:a:b&label=tier:1") == 1
    assert count("state=READY") == count("state=ready") == 3
    assert count("state=COMPLETED") == 0
    assert count("uncertain=false") == 3
    assert count("uncertain=true") == 0


@pytest.mark.parametrize(
    ("query", "field", "told"),
    [
        ("state=REDY", "state", "READY"),
        ("stat=READY", "stat", "state"),
        ("uncertain=perhaps", "uncertain", "true or false"),
        ("label=team", "label", "name:value"),
        ("label=:v", "label", "name:value"),
        ("agent=%00", "agent", "NUL"),
        ("label=a:%00", "label", "NUL"),
        ("state=READY&state=FAILED", "state", "once"),
        ("page_size=0", "page_size", "500"),
        ("page_size=501", "page_size", "500"),
        ("page_size=many", "page_size", "500"),
        ("page_size=%C2%B2", "page_size", "500"),
        ("cursor=nonsense", "cursor", "links"),
        ("cursor=", "cursor", "links"),
        ("cursor=%00", "cursor", "links"),
        ("cursor=eyJhdCI6IjIwMjYtMDEtMDFUMDA6MDA6MDBaIiwiaWQiOiJ4In0", "cursor", "links"),
    ],
)
def test_a_bad_filter_is_refused_by_name(api: Caller, query: str, field: str, told: str) -> None:
    answer = api.get(f"runs/?{query}")
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert told in answer.json()["fix"]


def test_a_list_costs_the_same_for_one_run_and_for_many(api: Caller) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("runs/").status_code == 200
        return len(captured)

    many(1)
    queries()
    one = queries()
    many(20)
    assert queries() == one <= 3


# -- Show and cancel ---------------------------------------------------------------


@pytest.mark.parametrize("address", ["", "timeline/"])
@pytest.mark.parametrize("run_id", [NOBODY, "nonsense", "%00", "1" * 500, "'--"])
def test_an_unknown_run_is_404(api: Caller, run_id: str, address: str) -> None:
    answer = api.get(f"runs/{run_id}/{address}")
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert len(answer.content) < 2_000


def test_cancelling_an_unknown_run_is_404(api: Caller) -> None:
    assert api.post(f"runs/{uuid4()}/cancel/").status_code == 404
    assert api.post("runs/nonsense/cancel/").status_code == 404


def test_cancel_is_a_request_that_may_be_repeated(api: Caller) -> None:
    (run,) = many(1)
    first, second = api.post(f"runs/{run.id}/cancel/"), api.post(f"runs/{run.id}/cancel/")
    assert (first.status_code, second.status_code) == (202, 202)
    assert set(first.json()) == RUN_FIELDS
    run.refresh_from_db()
    assert run.cancel_requested_by == "robin"


def test_cancel_needs_no_body(api: Caller) -> None:
    (run,) = many(1)
    assert api.post_raw(f"runs/{run.id}/cancel/", "", content_type="").status_code == 202


@pytest.mark.django_db(transaction=True)
def test_a_run_that_has_ended_cannot_be_cancelled(api: Caller) -> None:
    (run,) = many(1)
    advance(run_id=run.id, owner="test")
    answer = api.post(f"runs/{run.id}/cancel/")
    assert answer.status_code == 409
    assert answer.json()["value"] == "COMPLETED"


@pytest.mark.django_db(transaction=True)
def test_a_run_that_ended_shows_how(api: Caller) -> None:
    (run,) = many(1, input={"a": 1})
    advance(run_id=run.id, owner="test")
    shown = api.get(f"runs/{run.id}/").json()
    assert (shown["state"], shown["result"], shown["lease"]) == ("COMPLETED", {"a": 1}, None)
    assert shown["finished_at"] is not None
    assert shown["spent"]["steps"] == 1


def test_a_held_run_shows_its_lease(api: Caller) -> None:
    (run,) = many(1)
    until = timezone.now() + timedelta(seconds=30)
    AgentRun.objects.filter(id=run.id).update(lease_owner="worker-1", lease_expires_at=until)
    lease = api.get(f"runs/{run.id}/").json()["lease"]
    assert lease["owner"] == "worker-1"
    assert lease["expires_at"].startswith(until.strftime("%Y-%m-%dT%H:%M:%S"))


def test_what_tools_call_sensitive_is_hidden_in_the_run(api: Caller) -> None:
    @tool(effect_type=EffectType.READ, sensitive=("card_number",))
    def charge(call: Call, card_number: str) -> str:
        return "ok"

    Agent(name="cashier", decider=lambda context: Finish(), tools=("charge",))
    secret = "4111-1111"
    asked = {"agent": "cashier", "input": {"deep": [{"Card_Number": secret}], "amount": 5}}
    answer = api.post("runs/", asked)
    assert answer.json()["input"] == {"deep": [{"Card_Number": "[redacted]"}], "amount": 5}
    assert secret not in api.get("runs/").content.decode()


@pytest.mark.django_db(transaction=True)
def test_secrets_of_an_agent_that_is_gone_stay_hidden(
    api: Caller, start: Callable[..., AgentRun]
) -> None:
    @tool(effect_type=EffectType.READ, sensitive=("card_number",))
    def charge(call: Call, card_number: str) -> str:
        return "ok"

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("charge", card_number=context.input["card_number"]))
        return Finish()

    run = start(decider=decide, tools=("charge",), input={"card_number": "4111-1111"})
    advance(run_id=run.id, owner="test")
    forget_agents([run.agent])
    assert api.get(f"runs/{run.id}/").json()["input"] == {"card_number": "[redacted]"}
