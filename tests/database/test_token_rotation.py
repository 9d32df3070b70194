"""A token with a new secret: what stays, what ends and when."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agentops.models import ApiToken
from agentops.tokens import (
    AlreadyRotated,
    InvalidPeriod,
    Issued,
    TokenEnded,
    UnknownToken,
    find_token,
    issue_token,
    revoke_token,
    rotate_token,
)
from runs import Agent, Finish
from runs.access import CALL_EVERY_TOOL, READ, RUNS_WRITE
from runs.models import AgentRun, GatewayCall
from tests.database.callers import Caller
from tests.database.kit import scripted_tool
from tests.processes import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def issued() -> Issued:
    user, _ = User.objects.get_or_create(username="robin")
    return issue_token(user=user, name="ci", scopes=[READ, RUNS_WRITE, CALL_EVERY_TOOL])


def waiting_for_a_lock() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return int((cursor.fetchone() or (0,))[0])


def status_of(issued: Issued) -> int:
    return int(Caller(token=issued.secret).get("runs/").status_code)


def test_both_secrets_work_for_the_time_that_was_chosen(issued: Issued) -> None:
    new = rotate_token(token_id=issued.row.pk, grace=timedelta(hours=2))
    assert (status_of(issued), status_of(new)) == (200, 200)
    until = ApiToken.objects.get().previous_until
    assert until is not None
    assert timedelta(minutes=119) < until - timezone.now() <= timedelta(hours=2)


def test_after_that_the_old_one_says_that_there_is_a_new_one(issued: Issued) -> None:
    new = rotate_token(token_id=issued.row.pk)
    ApiToken.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
    refused = Caller(token=issued.secret).get("runs/")
    assert refused.status_code == 401
    assert "replaced" in refused.json()["detail"]
    assert issued.secret not in refused.content.decode()
    assert status_of(new) == 200


def test_one_that_leaked_ends_at_once(issued: Issued) -> None:
    new = rotate_token(token_id=issued.row.pk, grace=timedelta(0))
    assert (status_of(issued), status_of(new)) == (401, 200)


def test_of_three_secrets_the_oldest_ends_at_once(issued: Issued) -> None:
    second = rotate_token(token_id=issued.row.pk)
    third = rotate_token(token_id=issued.row.pk)
    assert [status_of(one) for one in (issued, second, third)] == [401, 200, 200]


def test_it_is_the_same_token(issued: Issued) -> None:
    new = rotate_token(token_id=issued.row.pk)
    row = ApiToken.objects.get()
    assert (row.pk, row.name, row.scopes) == (issued.row.pk, "ci", issued.row.scopes)
    assert row.prefix != issued.row.prefix
    assert new.secret.startswith(row.prefix)
    stored = " ".join(str(value) for value in ApiToken.objects.values_list().get())
    assert new.secret not in stored
    assert issued.secret not in stored


def test_keys_used_under_the_old_secret_are_known_under_the_new(issued: Issued) -> None:
    Agent(name="quick", decider=lambda context: Finish())
    first = Caller(token=issued.secret).post("runs/", {"agent": "quick"}, key="k")
    new = Caller(token=rotate_token(token_id=issued.row.pk).secret)
    again = new.post("runs/", {"agent": "quick"}, key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert AgentRun.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_call_is_one_call_under_both_secrets(issued: Issued) -> None:
    scripted_tool("done", name="pay")
    body = {"tool": "pay", "arguments": {}, "wait_seconds": 0}
    first = Caller(token=issued.secret).post("operations/", body, key="k")
    new = Caller(token=rotate_token(token_id=issued.row.pk).secret)
    again = new.post("operations/", body, key="k")
    assert first.status_code == 202
    assert again.status_code in {202, 409}
    call = GatewayCall.objects.get()
    shown = new.get(f"operations/{call.operation_id}/")
    assert shown.json()["operation_id"] == first.json()["operation_id"]


def test_revoking_ends_both_secrets(issued: Issued) -> None:
    new = rotate_token(token_id=issued.row.pk)
    assert revoke_token(token_id=issued.row.pk)
    assert not revoke_token(token_id=issued.row.pk)
    assert (status_of(issued), status_of(new)) == (401, 401)


def test_the_end_stays_unless_another_is_given(issued: Issued) -> None:
    ends = timezone.now() + timedelta(days=1)
    ApiToken.objects.update(expires_at=ends)
    assert rotate_token(token_id=issued.row.pk).row.expires_at == ends
    later = ends + timedelta(days=1)
    assert rotate_token(token_id=issued.row.pk, expires_at=later).row.expires_at == later


def test_the_old_secret_does_not_outlive_the_token(issued: Issued) -> None:
    rotate_token(token_id=issued.row.pk, grace=timedelta(days=7))
    ApiToken.objects.update(expires_at=timezone.now())
    assert status_of(issued) == 401


def test_a_token_that_ended_gets_no_new_secret(issued: Issued) -> None:
    revoke_token(token_id=issued.row.pk)
    with pytest.raises(TokenEnded, match="create_token"):
        rotate_token(token_id=issued.row.pk)
    assert ApiToken.objects.get().digest == issued.row.digest


def test_one_that_expired_lives_on_under_a_new_secret_and_a_later_end_alone(
    issued: Issued,
) -> None:
    second = rotate_token(token_id=issued.row.pk, grace=timedelta(days=7))
    ApiToken.objects.update(expires_at=timezone.now())
    with pytest.raises(TokenEnded, match=f"rotate_token {second.row.prefix} --days"):
        rotate_token(token_id=issued.row.pk)
    later = timezone.now() + timedelta(days=1)
    new = rotate_token(token_id=issued.row.pk, expires_at=later)
    assert (new.row.pk, new.row.expires_at) == (issued.row.pk, later)
    assert [status_of(one) for one in (issued, second, new)] == [401, 401, 200]


def test_one_that_was_revoked_does_not(issued: Issued) -> None:
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(days=1))
    expired = ApiToken.objects.get().expires_at
    assert revoke_token(token_id=issued.row.pk)
    assert ApiToken.objects.get().expires_at == expired
    with pytest.raises(TokenEnded, match="create_token"):
        rotate_token(token_id=issued.row.pk, expires_at=timezone.now() + timedelta(days=1))
    assert ApiToken.objects.get().digest == issued.row.digest


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), timedelta(days=7, seconds=1)])
def test_a_grace_out_of_bounds_is_refused(issued: Issued, grace: timedelta) -> None:
    with pytest.raises(InvalidPeriod, match="7 days"):
        rotate_token(token_id=issued.row.pk, grace=grace)
    assert status_of(issued) == 200


@pytest.mark.django_db(transaction=True)
def test_of_two_who_replace_what_they_saw_one_does(issued: Issued) -> None:
    def rotate(_: int) -> Issued | None:
        try:
            return rotate_token(token_id=issued.row.pk, prefix=issued.row.prefix)
        except AlreadyRotated:
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as people, transaction.atomic():
        # Both have looked at it before either can write.
        ApiToken.objects.select_for_update().get()
        asked = [people.submit(rotate, number) for number in range(2)]
        wait_until(lambda: waiting_for_a_lock() == 2, what="both are about to write")
        transaction.set_rollback(True)
    made = [one for one in (answer.result() for answer in asked) if one is not None]
    assert len(made) == 1
    assert status_of(made[0]) == status_of(issued) == 200


def test_a_token_is_found_by_what_may_be_shown_of_it(issued: Issued) -> None:
    assert find_token(f" {issued.row.prefix}… ").pk == issued.row.pk
    for given in ("", "nothing", issued.row.prefix[:-1], "a\0b"):
        with pytest.raises(UnknownToken, match="list_tokens"):
            find_token(given)
    with pytest.raises(UnknownToken) as caught:
        find_token(issued.secret)
    assert issued.secret not in str(caught.value)
    assert issued.secret.removeprefix(issued.row.prefix) not in str(caught.value)


def test_the_database_wants_an_end_of_an_old_secret(issued: Issued) -> None:
    with pytest.raises(IntegrityError, match="token_previous_has_an_end"), transaction.atomic():
        ApiToken.objects.update(previous_digest="d")


# -- Commands ------------------------------------------------------------------------------


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def as_json(*command: str) -> Any:
    return json.loads(told(*command, "--json"))


def test_rotate_token_prints_a_secret_that_works(issued: Issued) -> None:
    said = as_json("rotate_token", issued.row.prefix, "--grace-minutes", "5", "--days", "30")
    assert Caller(token=said["token"]).get("runs/").status_code == status_of(issued) == 200
    assert said["former_until"] < said["expires_at"]
    text = told("rotate_token", said["prefix"], "--grace-minutes", "0")
    assert "works no longer" in text
    assert "Authorization: Token aot_" in text
    assert Caller(token=said["token"]).get("runs/").status_code == 401


def test_list_tokens_shows_all_but_secrets(issued: Issued) -> None:
    sam = User.objects.create(username="sam")
    other = issue_token(user=sam, name="old", scopes=[READ])
    revoke_token(token_id=other.row.pk)
    rotate_token(token_id=issued.row.pk)
    listed = as_json("list_tokens")
    assert [(one["user"], one["standing"]) for one in listed] == [
        ("sam", "ended"),
        ("robin", "valid"),
    ]
    assert listed[1]["former_until"] is not None
    assert [one["user"] for one in as_json("list_tokens", "--valid")] == ["robin"]
    assert [one["user"] for one in as_json("list_tokens", "--user", "sam")] == ["sam"]
    text = told("list_tokens")
    assert "robin" in text
    for secret in (issued.secret, other.secret, issued.row.digest, other.row.digest):
        assert secret not in text


def test_revoke_token_ends_it_and_says_when_it_had_ended(issued: Issued) -> None:
    assert as_json("revoke_token", issued.row.prefix)["ended_now"] is True
    assert status_of(issued) == 401
    assert "had ended before" in told("revoke_token", issued.row.prefix)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rotate_token", "nothing"], "list_tokens"),
        (["revoke_token", "nothing"], "list_tokens"),
        (["rotate_token", "PREFIX", "--grace-minutes", "-1"], "--grace-minutes: -1"),
        (["rotate_token", "PREFIX", "--grace-minutes", "10081"], "10080"),
        (["rotate_token", "PREFIX", "--days", "0"], "--days: 0"),
        (["list_tokens", "--limit", "0"], "--limit"),
    ],
)
def test_a_command_names_what_does_not_fit(
    issued: Issued, arguments: list[str], words: str
) -> None:
    given = [issued.row.prefix if one == "PREFIX" else one for one in arguments]
    with pytest.raises(CommandError, match=words):
        told(*given)
    assert status_of(issued) == 200
