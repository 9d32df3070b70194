"""A token that asks too often is told so, and when to come again."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentops.tokens import issue_token, rotate_token
from runs import Agent, Finish
from runs.access import READ, RUNS_WRITE
from runs.models import AgentRun
from tests.database.callers import Caller, caller

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def two_a_minute(settings: Any) -> None:
    settings.AGENTOPS_RATE_PER_MINUTE = 2


def test_a_request_too_many_is_429_with_a_time_to_come_again() -> None:
    who = caller(READ)
    assert [who.get("runs/").status_code for _ in range(2)] == [200, 200]
    refused = who.get("runs/")
    assert refused.status_code == refused.json()["status"] == 429
    assert refused["Content-Type"] == "application/problem+json"
    assert 0 < int(refused["Retry-After"]) <= 30
    assert "2 requests a minute" in refused.json()["detail"]
    assert "AGENTOPS_RATE_PER_MINUTE" in refused.json()["fix"]


def test_it_counts_for_every_endpoint_and_does_nothing_there() -> None:
    Agent(name="quick", decider=lambda context: Finish())
    who = caller(RUNS_WRITE)
    assert [who.get("runs/").status_code for _ in range(2)] == [403, 403]
    assert who.post("runs/", {"agent": "quick"}).status_code == 429
    assert not AgentRun.objects.exists()


def test_another_token_of_the_same_owner_is_not_held_up() -> None:
    user = User.objects.create(username="robin")
    first, second = (
        Caller(token=issue_token(user=user, name=name, scopes=[READ]).secret) for name in "ab"
    )
    assert [first.get("runs/").status_code for _ in range(3)] == [200, 200, 429]
    assert second.get("runs/").status_code == 200


def test_a_new_secret_does_not_begin_anew() -> None:
    issued = issue_token(user=User.objects.create(username="robin"), name="ci", scopes=[READ])
    old = Caller(token=issued.secret)
    assert [old.get("runs/").status_code for _ in range(2)] == [200, 200]
    new = Caller(token=rotate_token(token_id=issued.row.pk).secret)
    assert new.get("runs/").status_code == 429


def test_guesses_at_a_token_use_up_nobodys_rate() -> None:
    who = caller(READ)
    guess = Caller(token=f"{str(who.token)[:12]}_guessed")
    assert [guess.get("runs/").status_code for _ in range(5)] == [401] * 5
    assert who.get("runs/").status_code == 200


def test_0_lets_everything_through(settings: Any) -> None:
    settings.AGENTOPS_RATE_PER_MINUTE = 0
    who = caller(READ)
    assert {who.get("runs/").status_code for _ in range(10)} == {200}
