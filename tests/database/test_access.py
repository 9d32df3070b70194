"""Tokens: who gets in, and as whom."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentops.models import ApiToken
from agentops.tokens import InvalidName, NoScope, UnknownScope, digest_of, issue_token
from runs import Agent, Finish
from runs.access import READ, RUNS_WRITE
from tests.database.callers import Caller, caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create(username="ops")


def test_a_token_acts_as_its_owner(user: User) -> None:
    issued = issue_token(user=user, name="ci", scopes=[READ])
    assert Caller(token=issued.secret).get("agents/").status_code == 200


def test_the_table_holds_no_token(user: User) -> None:
    issued = issue_token(user=user, name="ci", scopes=[READ])
    stored = " ".join(str(value) for value in ApiToken.objects.values_list().get())
    assert issued.secret not in stored
    assert issued.secret.removeprefix(issued.row.prefix) not in stored
    assert issued.row.digest == digest_of(issued.secret)
    assert issued.secret.startswith(issued.row.prefix)
    assert issued.secret not in repr(issued)


def test_two_tokens_are_never_alike(user: User) -> None:
    secrets = {issue_token(user=user, name="ci", scopes=[READ]).secret for _ in range(20)}
    assert len(secrets) == 20


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Token",
        "Token ",
        "Token nonsense",
        "Token a b",
        "Bearer nonsense",
        "Basic b3BzOm9wcw==",
        "Token \xe4\xf6\xfc",
    ],
)
def test_a_wrong_header_is_told_how_to_do_it(header: str) -> None:
    answer = Caller().client.get("/api/v1/agents/", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Token")
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["field"] == "Authorization"
    assert "create_token" in answer.json()["fix"]


def test_a_token_in_another_case_is_another_token(user: User) -> None:
    secret = issue_token(user=user, name="ci", scopes=[READ]).secret
    assert Caller(token=secret.swapcase()).get("agents/").status_code == 401


def test_an_expired_token_lets_nobody_in(user: User) -> None:
    past = timezone.now() - timedelta(seconds=1)
    issued = issue_token(user=user, name="ci", scopes=[READ], expires_at=past)
    answer = Caller(token=issued.secret).get("agents/")
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]
    assert issued.secret not in answer.content.decode()


def test_a_token_lives_until_it_expires(user: User) -> None:
    later = timezone.now() + timedelta(minutes=1)
    issued = issue_token(user=user, name="ci", scopes=[READ], expires_at=later)
    assert Caller(token=issued.secret).get("agents/").status_code == 200


def test_the_token_of_an_inactive_owner_lets_nobody_in(user: User) -> None:
    issued = issue_token(user=user, name="ci", scopes=[READ])
    User.objects.update(is_active=False)
    assert Caller(token=issued.secret).get("agents/").status_code == 401


def test_a_deleted_token_lets_nobody_in(user: User) -> None:
    issued = issue_token(user=user, name="ci", scopes=[READ])
    issued.row.delete()
    assert Caller(token=issued.secret).get("agents/").status_code == 401


def test_use_is_noted_once_in_a_while_and_not_at_every_request(user: User) -> None:
    issued = issue_token(user=user, name="ci", scopes=[READ])
    asking = Caller(token=issued.secret)
    asking.get("agents/")
    issued.row.refresh_from_db()
    assert issued.row.last_used_at is not None
    with CaptureQueriesContext(connection) as queries:
        asking.get("agents/")
    assert not any(one["sql"].startswith("UPDATE") for one in queries)
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(hours=1))
    asking.get("agents/")
    issued.row.refresh_from_db()
    assert timezone.now() - issued.row.last_used_at < timedelta(minutes=1)


def test_a_session_of_the_admin_is_no_token(user: User) -> None:
    asking = Caller()
    asking.client.force_login(user)
    assert asking.get("agents/").status_code == 401


def test_what_was_done_is_done_in_the_owners_name() -> None:
    Agent(name="quick", decider=lambda context: Finish())
    run = caller(RUNS_WRITE, username="robin").post("runs/", {"agent": "quick"}).json()
    assert run["created_by"] == "robin"


def test_a_token_without_a_scope_is_not_made(user: User) -> None:
    with pytest.raises(NoScope, match="read"):
        issue_token(user=user, name="ci", scopes=[])


def test_an_unknown_scope_is_refused_with_the_nearest(user: User) -> None:
    with pytest.raises(UnknownScope, match="did you mean 'runs:write'"):
        issue_token(user=user, name="ci", scopes=["run:write"])
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("name", ["", "x" * 101, "a\0b"])
def test_a_name_that_the_journal_cannot_hold_is_refused(user: User, name: str) -> None:
    with pytest.raises(InvalidName):
        issue_token(user=user, name=name, scopes=[READ])


def test_an_owner_whose_name_the_journal_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidName):
        issue_token(user=User.objects.create(username="x" * 120), name="ci", scopes=[READ])


def test_the_database_refuses_a_token_without_scopes(user: User) -> None:
    with pytest.raises(IntegrityError, match="token_has_a_scope"):
        ApiToken.objects.create(user=user, name="ci", prefix="p", digest="d", scopes=[])
