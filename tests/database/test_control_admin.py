"""Requests in the admin: offered where they are possible, asked for first, sent as a POST."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs import (
    Agent,
    Ask,
    Budget,
    CallTools,
    Context,
    Decision,
    Delegate,
    Finish,
    ToolCall,
    WaitFor,
)
from runs.commands import signal_run
from runs.models import AgentRun
from tests.database.admin_pages import HOSTILE, browser_of, page_of, person
from tests.database.controlling import ANN, asked_of, completed, failed, finish, pause_in
from tests.database.gating import Start
from tests.database.kit import drive, scripted_tool

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("pause", "resume", "retry", "fork", "compensate", "cancel")


@pytest.fixture
def root() -> Client:
    return browser_of(person(superuser=True))


def _address(run: AgentRun, name: str) -> str:
    return reverse(f"admin:runs_agentrun_{name}", args=[run.pk])


def _offered(client: Client, run: AgentRun) -> set[str]:
    page = client.get(page_of(run)).content.decode()
    return {name for name in NAMES if _address(run, name) in page}


def test_a_request_is_offered_only_where_the_state_allows_it(root: Client, start: Start) -> None:
    run = start(decider=finish)
    assert _offered(root, run) == {"pause", "fork", "compensate", "cancel"}
    pause_in(run)
    assert _offered(root, run) == {"resume", "fork", "compensate", "cancel"}
    broken, _ = failed(start)
    assert _offered(root, broken) == {"retry", "fork", "compensate"}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_by_a_get_or_by_those_who_may_not(start: Start, name: str) -> None:
    run, _ = failed(start)
    before = AgentRun.objects.values().get(id=run.id)
    for user in (person("view_agentrun"), person()):
        assert browser_of(user).post(_address(run, name), {"step": "0"}).status_code == 403
    assert browser_of(person(superuser=True)).get(_address(run, name)).status_code == 200
    assert AgentRun.objects.values().get(id=run.id) == before
    assert (AgentRun.objects.count(), asked_of(run)) == (1, [])


def test_a_pause_and_its_reason(root: Client, start: Start) -> None:
    run = start(decider=finish)
    answer = root.post(_address(run, "pause"), {"reason": HOSTILE}, follow=True)
    page = answer.content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    assert len(asked_of(run)) == 1


def test_a_cancel_with_compensation(root: Client, start: Start) -> None:
    run = start(decider=finish)
    root.post(_address(run, "cancel"), {"compensate": "yes", "reason": "wrong"})
    run.refresh_from_db()
    assert run.cancel_compensates
    assert "with compensation" in root.get(page_of(run)).content.decode()


def test_a_budget_that_does_not_do_is_said_and_what_was_typed_is_kept(
    root: Client, start: Start
) -> None:
    scripted_tool(1, 2)

    def pay(context: Context) -> Decision:
        return CallTools(ToolCall("pay"))

    run = start(decider=pay, tools=("pay",), budget=Budget(steps=1, duration=timedelta(days=1)))
    drive(run)
    assert run.paused_at is not None
    short = root.post(_address(run, "resume"), {"add_seconds": "60"}).content.decode()
    assert "1 of 1 steps" in short
    assert 'value="60"' in short
    assert root.post(_address(run, "resume"), {"add_steps": "x"}).status_code == 200
    assert asked_of(run) == []
    root.post(_address(run, "resume"), {"add_steps": "2"})
    run.refresh_from_db()
    assert (run.paused_at, run.budget) == (None, {"steps": 3})


def test_a_retry(root: Client, start: Start) -> None:
    run, _ = failed(start)
    root.post(_address(run, "retry"))
    run.refresh_from_db()
    assert run.state == "READY"


def test_a_run_that_has_ended_is_corrected(root: Client, start: Start) -> None:
    paid = completed(start)
    root.post(_address(paid, "compensate"), {"reason": "wrong order"})
    assert "wrong order" in root.get(page_of(paid)).content.decode()


def test_a_fork_leads_to_the_fork_and_each_names_the_other(root: Client, start: Start) -> None:
    run, _ = failed(start)
    answer: Any = root.post(_address(run, "fork"), {"step": "1", "objective": "again"}, follow=True)
    fork = AgentRun.objects.get(forked_from=run)
    assert answer.redirect_chain[-1][0] == page_of(fork)
    assert page_of(run) in answer.content.decode()
    assert page_of(fork) in root.get(page_of(run)).content.decode()
    refused = root.post(_address(run, "fork"), {"step": "9"}).content.decode()
    assert "closed step: 1, 2, 3" in refused


def test_the_tree_of_runs_is_shown_both_ways(root: Client, start: Start) -> None:
    Agent(name="leaf", decider=finish)
    Agent(
        name="middle",
        decider=lambda context: Delegate("leaf") if context.last is None else Finish(),
    )
    top = start(decider=lambda context: Delegate("middle") if context.last is None else Finish())
    drive(top)
    middle = AgentRun.objects.get(agent="middle")
    drive(middle)
    leaf = AgentRun.objects.get(agent="leaf")
    page = root.get(page_of(top)).content.decode()
    assert page.index(page_of(middle)) < page.index(page_of(leaf))
    assert "Waits for" in page
    assert page_of(middle) in root.get(page_of(leaf)).content.decode()
    listed = root.get(reverse("admin:runs_agentrun_changelist", query={"parent": top.pk}))
    assert page_of(middle) in listed.content.decode()
    assert page_of(leaf) not in listed.content.decode()


def test_what_a_run_waits_for_is_said_at_the_top(root: Client, start: Start) -> None:
    run = start(decider=lambda context: WaitFor(f"paid {HOSTILE}"[:100]))
    drive(run)
    page = root.get(page_of(run)).content.decode()
    assert "Waits for" in page
    assert "A signal" in page
    assert "<script>alert" not in page


def test_a_question_is_led_to(root: Client, start: Start) -> None:
    run = start(decider=lambda context: Ask("Which size?", {"type": "string"}))
    drive(run)
    page = root.get(page_of(run)).content.decode()
    question = reverse("admin:runs_question_change", args=[run.questions.get().pk])
    assert f'href="{question}">Which size?' in page


def test_requests_and_signals_have_their_pages(root: Client, start: Start) -> None:
    run = start(decider=finish)
    root.post(_address(run, "pause"), {"reason": "hold on"})
    signal = signal_run(actor=ANN, run_id=run.id, name="paid", event_id="e", payload="hold on")
    for kind, row in (("controlrequest", run.requests.get()), ("signal", signal.signal)):
        listed = root.get(reverse(f"admin:runs_{kind}_changelist", query={"run": run.pk}))
        address = reverse(f"admin:runs_{kind}_change", args=[row.pk])
        assert address in listed.content.decode()
        assert "hold on" in root.get(address).content.decode()
        assert root.post(address).status_code == 405
