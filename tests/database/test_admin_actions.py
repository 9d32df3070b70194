"""What can be asked for in the admin: to cancel a run, to revoke a token. Nothing by a GET."""

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentops.models import ApiToken
from agentops.tokens import Issued, issue_token
from runs.engine import advance
from runs.models import AgentRun
from runs.state import RunState
from tests.database.admin_pages import (
    Start,
    browser_of,
    define_tools,
    finished_run,
    fresh_run,
    page_of,
    person,
    uncertain_run,
)

pytestmark = pytest.mark.django_db
# The engine commits for real.
DRIVEN = pytest.mark.django_db(transaction=True)


def cancel_page(run: AgentRun) -> str:
    return reverse("admin:runs_agentrun_cancel", args=[run.pk])


def asked(run: AgentRun) -> bool:
    run.refresh_from_db()
    return run.cancel_requested_at is not None


@DRIVEN
def test_cancelling_asks_first_and_is_a_post(start: Start) -> None:
    run = fresh_run(start)
    user = person("change_agentrun")
    client = browser_of(user)
    assert cancel_page(run) in client.get(page_of(run)).content.decode()
    question = client.get(cancel_page(run)).content.decode()
    assert 'method="post"' in question
    assert "csrfmiddlewaretoken" in question
    assert not asked(run)
    answer = client.post(cancel_page(run), follow=True)
    assert "Asked for." in answer.content.decode()
    assert asked(run)
    assert run.cancel_requested_by == user.get_username()
    advance(run_id=run.pk, owner="test")
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED


def test_a_post_from_another_site_cancels_nothing(start: Start) -> None:
    run = fresh_run(start)
    client = browser_of(person(superuser=True), enforce_csrf_checks=True)
    assert client.post(cancel_page(run)).status_code == 403
    assert not asked(run)


@pytest.mark.parametrize("permissions", [(), ("view_agentrun",)])
def test_who_may_not_change_runs_cannot_cancel(start: Start, permissions: tuple[str, ...]) -> None:
    run = fresh_run(start)
    client = browser_of(person(*permissions))
    assert client.get(cancel_page(run)).status_code == 403
    assert client.post(cancel_page(run)).status_code == 403
    assert not asked(run)
    if permissions:
        assert cancel_page(run) not in client.get(page_of(run)).content.decode()


def test_a_stranger_is_asked_to_log_in(start: Start) -> None:
    run = fresh_run(start)
    answer = Client().post(cancel_page(run))
    assert reverse("admin:login") in answer.headers["Location"]
    assert not asked(run)


@DRIVEN
def test_a_run_that_ended_is_not_cancelled(start: Start) -> None:
    define_tools()
    run = finished_run(start)
    client = browser_of(person(superuser=True))
    assert cancel_page(run) not in client.get(page_of(run)).content.decode()
    assert "nothing to cancel" in client.get(cancel_page(run)).content.decode()
    answer = client.post(cancel_page(run), follow=True)
    assert "can no longer be asked to cancel" in answer.content.decode()
    assert not asked(run)


@DRIVEN
def test_an_uncertain_run_may_be_cancelled_and_stays_uncertain(start: Start) -> None:
    define_tools()
    run = uncertain_run(start)
    client = browser_of(person(superuser=True))
    client.post(cancel_page(run))
    assert asked(run)
    assert run.uncertain
    assert "already asked for" in client.get(cancel_page(run)).content.decode()


def test_a_run_that_is_gone_is_named(start: Start) -> None:
    run = fresh_run(start)
    gone = cancel_page(run)
    client = browser_of(person(superuser=True))
    assert client.put(gone).status_code == 405
    missing = reverse("admin:runs_agentrun_cancel", args=["01900000-0000-7000-8000-000000000000"])
    assert "There is no run" in client.post(missing, follow=True).content.decode()


def test_tokens_are_listed_without_their_digest_and_revoked_by_a_post() -> None:
    owner = person()
    issued = issue_token(user=owner, name="nightly <b>", scopes=["read"])
    client = browser_of(person(superuser=True))
    tokens = reverse("admin:agentops_apitoken_changelist")
    revoke = reverse("admin:agentops_apitoken_revoke", args=[issued.row.pk])
    listed = client.get(tokens).content.decode()
    assert issued.row.prefix in listed
    assert revoke in listed
    assert "<b>" not in listed
    assert issued.row.digest not in listed
    assert issued.secret not in listed
    assert client.get(f"{tokens}{issued.row.pk}/change/").status_code == 302
    assert client.get(f"{tokens}?digest__startswith=a").status_code == 400

    client.get(revoke)
    assert _end_of(issued) is None
    client.post(revoke)
    first_end = _end_of(issued)
    assert first_end is not None
    assert first_end <= timezone.now()
    client.post(revoke)
    assert _end_of(issued) == first_end
    assert revoke not in client.get(tokens).content.decode()


def test_a_token_is_revoked_only_by_those_who_may_change_tokens() -> None:
    later = timezone.now() + timedelta(days=1)
    issued = issue_token(user=person(), name="ci", scopes=["read"], expires_at=later)
    revoke = reverse("admin:agentops_apitoken_revoke", args=[issued.row.pk])
    assert browser_of(person("view_apitoken")).post(revoke).status_code == 403
    assert _end_of(issued) == later
    assert browser_of(person("change_apitoken")).post(revoke).status_code == 302
    end = _end_of(issued)
    assert end is not None
    assert end < later


def _end_of(issued: Issued) -> datetime | None:
    return ApiToken.objects.get(pk=issued.row.pk).expires_at
