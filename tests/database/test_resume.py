"""A paused run goes on when a person says so, and only then."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from runs import Budget, CallTools, Context, Decision, Finish, ToolCall
from runs.access import Actor, operator
from runs.commands import Raise, cancel_run, resume_run
from runs.errors import InvalidInput, NotPermitted, OverBudget, UnknownRun, WrongState
from runs.models import AgentRun
from tests.database.callers import caller
from tests.database.gating import Start
from tests.database.kit import drive, run_edges, scripted_tool

pytestmark = pytest.mark.django_db(transaction=True)


def finish(context: Context) -> Decision:
    return Finish("done")


@pytest.fixture
def paused(start: Start) -> AgentRun:
    """A run that was paused before its first step."""
    run = start(decider=finish)
    AgentRun.objects.filter(id=run.id).update(
        paused_at=Now(), pause_reason="it insists", wake_at=None, sweep_at=None
    )
    run.refresh_from_db()
    return run


def test_a_paused_run_opens_no_step_even_if_it_is_due(paused: AgentRun) -> None:
    AgentRun.objects.filter(id=paused.id).update(wake_at=Now())
    drive(paused)
    assert (paused.state, paused.step_number, paused.wake_at) == ("READY", 0, None)


def test_it_goes_on_once_it_is_resumed_and_the_journal_says_who(paused: AgentRun) -> None:
    resume_run(actor=operator("robin"), run_id=paused.id)
    drive(paused)
    assert (paused.state, paused.paused_at, paused.pause_reason) == ("COMPLETED", None, "")
    resumed = paused.journal.get(event="RESUME")
    assert (resumed.actor, "it insists" in resumed.reason) == ("robin", True)
    assert run_edges(paused)[:2] == ["CREATE", "RESUME"]


def test_a_paused_run_can_be_cancelled(paused: AgentRun) -> None:
    cancel_run(actor=operator(), run_id=paused.id)
    drive(paused)
    assert paused.state == "CANCELLED"


def test_what_is_not_paused_is_not_resumed(start: Start, paused: AgentRun) -> None:
    with pytest.raises(WrongState):
        resume_run(actor=operator(), run_id=start(decider=finish).id)
    resume_run(actor=operator(), run_id=paused.id)
    with pytest.raises(WrongState):
        resume_run(actor=operator(), run_id=paused.id)
    with pytest.raises(UnknownRun):
        resume_run(actor=operator(), run_id="01900000-0000-7000-8000-000000000000")  # type: ignore[arg-type]


def test_nobody_resumes_without_the_scope(paused: AgentRun) -> None:
    with pytest.raises(NotPermitted):
        resume_run(actor=Actor(name="reader", scopes=frozenset({"read"})), run_id=paused.id)
    assert caller("read").post(f"runs/{paused.id}/resume/").status_code == 403
    paused.refresh_from_db()
    assert paused.paused_at is not None


def test_the_api_resumes_and_says_409_where_there_is_nothing_to_resume(paused: AgentRun) -> None:
    address = f"runs/{paused.id}/resume/"
    answer = caller().post(address)
    assert (answer.status_code, answer.json()["paused_at"]) == (202, None)
    assert caller().post(address).status_code == 409


def test_the_command_resumes(paused: AgentRun, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("resume_run", str(paused.id))
    assert "goes on" in capsys.readouterr().out
    with pytest.raises(CommandError, match="not paused"):
        call_command("resume_run", str(paused.id))


def test_the_admin_asks_and_a_post_resumes(paused: AgentRun) -> None:
    User.objects.create_superuser("root")
    client = Client()
    client.force_login(User.objects.get())
    page = client.get(reverse("admin:runs_agentrun_change", args=[paused.id])).content.decode()
    address = reverse("admin:runs_agentrun_resume", args=[paused.id])
    assert address in page
    assert "it insists" in page
    assert "Resume run" in client.get(address).content.decode()
    paused.refresh_from_db()
    assert paused.paused_at is not None
    client.post(address)
    paused.refresh_from_db()
    assert paused.paused_at is None


# -- A larger budget ----------------------------------------------------------------------------


def _out_of_budget(start: Start, **budget: Any) -> AgentRun:
    """A run that its budget let open one step, and that asks for more."""
    scripted_tool(1, 2, 3)

    def pay(context: Context) -> Decision:
        # Another amount each time: the same action again would be a loop.
        return CallTools(ToolCall("pay", amount=context.step_number))

    run = start(decider=pay, tools=("pay",), budget=Budget(**{"steps": 1} | budget))
    drive(run)
    assert (run.state, run.step_number) == ("READY", 1)
    assert run.paused_at is not None
    return run


def test_a_run_that_needs_more_is_not_resumed_without_it(start: Start) -> None:
    run = _out_of_budget(start)
    with pytest.raises(OverBudget, match="1 of 1 steps") as refused:
        resume_run(actor=operator(), run_id=run.id)
    assert "spent so far" in refused.value.breach
    run.refresh_from_db()
    assert run.paused_at is not None
    assert not run.requests.exists()
    answer = caller().post(f"runs/{run.id}/resume/")
    assert (answer.status_code, answer.json()["field"]) == (409, "budget")


def test_what_is_added_is_spent_and_kept_with_who_added_it(start: Start) -> None:
    run = _out_of_budget(start)
    resumed = resume_run(actor=operator("robin"), run_id=run.id, add=Raise(steps=1))
    assert resumed.budget == {"steps": 2}
    asked = run.requests.get()
    assert (asked.by, asked.details) == ("robin", {"add_steps": 1})
    drive(run)
    assert run.step_number == 2
    assert run.paused_at is not None


def test_each_limit_can_be_raised(start: Start) -> None:
    run = _out_of_budget(start, tokens=10, cost_usd="1.50", duration=timedelta(hours=1))
    more = Raise(steps=5, tokens=7, cost_usd="0.25", seconds=60)
    budget = resume_run(actor=operator(), run_id=run.id, add=more).budget
    assert budget is not None
    assert (budget["steps"], budget["tokens"], budget["cost_usd"]) == (6, 17, "1.75")
    until = run.created_at + timedelta(hours=1, seconds=60)
    assert datetime.fromisoformat(budget["until"]) == until


def test_time_that_is_over_is_given_anew_from_now(start: Start) -> None:
    run = start(decider=finish, budget=Budget(duration=timedelta(0)))
    drive(run)
    assert run.paused_at is not None
    with pytest.raises(OverBudget, match="time"):
        resume_run(actor=operator(), run_id=run.id)
    resume_run(actor=operator(), run_id=run.id, add=Raise(seconds=600))
    drive(run)
    assert run.state == "COMPLETED"


@pytest.mark.parametrize(
    ("add", "field"),
    [
        (Raise(steps=-1), "add_steps"),
        (Raise(steps=10**7), "add_steps"),
        (Raise(steps=True), "add_steps"),
        (Raise(tokens=10**13), "add_tokens"),
        (Raise(cost_usd="-1"), "add_cost_usd"),
        (Raise(cost_usd="1e9"), "add_cost_usd"),
        (Raise(cost_usd="0.0000001"), "add_cost_usd"),
        (Raise(cost_usd="sNaN"), "add_cost_usd"),
        (Raise(cost_usd=1.5), "add_cost_usd"),  # type: ignore[arg-type]
        (Raise(seconds=10**10), "add_seconds"),
        (Raise(tokens=5), "add_tokens"),
    ],
)
def test_what_cannot_be_added_is_refused_by_its_field(start: Start, add: Raise, field: str) -> None:
    run = _out_of_budget(start)
    with pytest.raises(InvalidInput) as refused:
        resume_run(actor=operator(), run_id=run.id, add=add)
    assert refused.value.field == field
    run.refresh_from_db()
    assert (run.paused_at is not None, run.budget) == (True, None)
