"""Tokens in the admin: a new secret by a POST, shown once, to those it belongs to."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentops.models import ApiToken, AuditEntry
from agentops.tokens import Issued, issue_token, revoke_token
from runs.access import READ
from tests.database.admin_pages import browser_of, person
from tests.database.callers import Caller

pytestmark = pytest.mark.django_db
LIST = "admin:agentops_apitoken_changelist"


@pytest.fixture
def owner() -> User:
    return person("view_apitoken", "change_apitoken")


@pytest.fixture
def issued(owner: User) -> Issued:
    return issue_token(
        user=owner,
        name="nightly <b>",
        scopes=[READ],
        webhook_url="https://hooks.example/secret-path",
    )


@pytest.fixture
def browser(owner: User) -> Client:
    return browser_of(owner)


def page_of(issued: Issued) -> str:
    return reverse("admin:agentops_apitoken_rotate", args=[issued.row.pk])


def form_of(issued: Issued, *, grace: str = "3600", ends: str = "") -> dict[str, str]:
    return {"prefix": issued.row.prefix, "grace": grace, "ends": ends}


def status_of(secret: str) -> int:
    return int(Caller(token=secret).get("runs/").status_code)


def secret_on(page: str) -> str:
    found = re.search(r"Token (aot_[\w-]+)", page)
    assert found is not None
    return found[1]


def test_a_post_makes_a_new_secret_and_shows_it_this_once(browser: Client, issued: Issued) -> None:
    shown = browser.post(page_of(issued), form_of(issued))
    secret = secret_on(shown.content.decode())
    assert (status_of(issued.secret), status_of(secret)) == (200, 200)
    for page in (reverse(LIST), page_of(issued)):
        assert secret not in browser.get(page).content.decode()
    assert secret not in str(list(AuditEntry.objects.values_list()))


def test_the_page_with_the_secret_is_kept_by_nobody_and_named_to_nobody(
    browser: Client, issued: Issued
) -> None:
    shown = browser.post(page_of(issued), form_of(issued))
    assert "no-store" in shown["Cache-Control"]
    assert shown["Referrer-Policy"] == "no-referrer"
    assert "secret" not in shown.get("Location", "")


def test_looking_at_the_question_changes_nothing(browser: Client, issued: Issued) -> None:
    asked = browser.get(page_of(issued)).content.decode()
    assert "Give this token a new secret?" in asked
    assert "<b>" not in asked.replace("<bdi>", "")
    assert ApiToken.objects.get().digest == issued.row.digest


def test_sent_twice_it_makes_one_secret(browser: Client, issued: Issued) -> None:
    first = secret_on(browser.post(page_of(issued), form_of(issued)).content.decode())
    again = browser.post(page_of(issued), form_of(issued), follow=True)
    assert "another secret meanwhile" in again.content.decode()
    assert status_of(first) == 200


@pytest.mark.parametrize(("grace", "old"), [("0", 401), ("604800", 200)])
def test_the_old_secret_works_as_long_as_was_chosen(
    browser: Client, issued: Issued, grace: str, old: int
) -> None:
    browser.post(page_of(issued), form_of(issued, grace=grace))
    assert status_of(issued.secret) == old
    assert ("its former secret until" in browser.get(reverse(LIST)).content.decode()) == (
        grace != "0"
    )


def test_an_end_may_be_chosen_with_it(browser: Client, issued: Issued) -> None:
    browser.post(page_of(issued), form_of(issued, ends="30"))
    ends = ApiToken.objects.get().expires_at
    assert ends is not None
    assert timedelta(days=29) < ends - timezone.now() <= timedelta(days=30)


def test_a_later_end_is_a_superusers_to_give(browser: Client, issued: Issued) -> None:
    end = timezone.now() + timedelta(days=40)
    ApiToken.objects.update(expires_at=end)
    page = browser.get(page_of(issued)).content.decode()
    assert ('value="30"' in page, 'value="90"' in page) == (True, False)
    answer = browser.post(page_of(issued), form_of(issued, ends="90"), follow=True)
    assert "Only a superuser may give it a later end" in answer.content.decode()
    row = ApiToken.objects.get()
    assert (row.digest, row.expires_at) == (issued.row.digest, end)
    browser_of(person(superuser=True)).post(page_of(issued), form_of(issued, ends="90"))
    assert ApiToken.objects.get(expires_at__gt=end + timedelta(days=40))


@pytest.mark.parametrize("form", [{"grace": "1"}, {"ends": "-1"}, {"grace": ""}])
def test_what_cannot_be_chosen_does_nothing(
    browser: Client, issued: Issued, form: dict[str, str]
) -> None:
    answer = browser.post(page_of(issued), form_of(issued) | form, follow=True)
    assert "nothing was done" in answer.content.decode()
    assert ApiToken.objects.get().digest == issued.row.digest


def test_nobody_gets_a_secret_with_which_to_act_as_somebody_else(issued: Issued) -> None:
    other = browser_of(person("view_apitoken", "change_apitoken"))
    for answer in (other.get(page_of(issued)), other.post(page_of(issued), form_of(issued))):
        assert answer.status_code == 403
    assert browser_of(person("view_apitoken")).post(page_of(issued)).status_code == 403
    assert ApiToken.objects.get().digest == issued.row.digest
    root = browser_of(person(superuser=True))
    assert root.post(page_of(issued), form_of(issued)).status_code == 200


def test_an_owner_who_may_not_change_tokens_gets_none(owner: User, issued: Issued) -> None:
    owner.user_permissions.clear()
    assert browser_of(owner).post(page_of(issued), form_of(issued)).status_code == 403


def test_a_token_that_ended_is_offered_nothing(browser: Client, issued: Issued) -> None:
    revoke_token(token_id=issued.row.pk)
    assert "has ended" in browser.get(page_of(issued)).content.decode()
    answer = browser.post(page_of(issued), form_of(issued), follow=True)
    assert "has ended" in answer.content.decode()
    assert page_of(issued) not in browser.get(reverse(LIST)).content.decode()


def test_one_that_expired_can_still_be_revoked_and_then_never_lives_on(
    browser: Client, issued: Issued
) -> None:
    ApiToken.objects.update(expires_at=timezone.now())
    listed = browser.get(reverse(LIST)).content.decode()
    revoke = reverse("admin:agentops_apitoken_revoke", args=[issued.row.pk])
    assert (revoke in listed, page_of(issued) in listed) == (True, False)
    assert "later end" in browser.get(revoke).content.decode()
    browser.post(revoke)
    assert revoke not in browser.get(reverse(LIST)).content.decode()
    root = browser_of(person(superuser=True))
    answer = root.post(page_of(issued), form_of(issued, ends="90"), follow=True)
    assert "has ended" in answer.content.decode()


def test_of_a_webhook_the_list_shows_the_host_alone(browser: Client, issued: Issued) -> None:
    listed = browser.get(reverse(LIST)).content.decode()
    assert "hooks.example" in listed
    assert "secret-path" not in listed


def test_no_such_token_is_said(browser: Client) -> None:
    for number in (999, 10**30):
        page = f"/admin/agentops/apitoken/{number}/rotate/"
        assert "no such token" in browser.get(page, follow=True).content.decode()
