"""A paused run goes on when a person says so, and only then."""

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from runs import Context, Decision, Finish
from runs.access import Actor, operator
from runs.commands import cancel_run, resume_run
from runs.errors import NotPermitted, UnknownRun, WrongState
from runs.models import AgentRun
from tests.database.callers import caller
from tests.database.gating import Start
from tests.database.kit import drive, run_edges

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
