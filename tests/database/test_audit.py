"""Who asked for which write: an entry for each, before it is carried out."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from agentops.audit import answer, note
from agentops.models import ApiToken, AuditEntry
from runs import Agent, Finish
from runs.access import CALL_EVERY_TOOL, CALL_PREFIX, READ, RUNS_WRITE, Actor, operator
from runs.models import AgentRun, GatewayCall
from tests.database.callers import Caller, caller
from tests.database.kit import scripted_tool

pytestmark = pytest.mark.django_db
COMMITTING = pytest.mark.django_db(transaction=True)
CALLING = {"tool": "pay", "arguments": {}, "wait_seconds": 0}
NO_RUN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(autouse=True)
def quick() -> Agent:
    return Agent(name="quick", decider=lambda context: Finish())


@pytest.fixture
def robin() -> Caller:
    return caller(RUNS_WRITE, READ, username="robin")


def entry() -> AuditEntry:
    return AuditEntry.objects.get()


@contextmanager
def refusing_entries() -> Iterator[None]:
    """The audit cannot be written for the time of the block."""
    change("ALTER TABLE agentops_auditentry ADD CONSTRAINT refused CHECK (false) NOT VALID")
    try:
        yield
    finally:
        change("ALTER TABLE agentops_auditentry DROP CONSTRAINT refused")


def change(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


# -- The API -------------------------------------------------------------------------------


def test_a_write_says_who_with_what_by_which_way_of_what_and_how_it_was_answered(
    robin: Caller,
) -> None:
    run = robin.post("runs/", {"agent": "quick"}).json()["id"]
    started = entry()
    assert started.actor == "robin"
    assert started.token == ApiToken.objects.get().pk
    assert (started.door, started.address) == ("api", "127.0.0.1")
    assert started.action == "POST /api/v1/runs/"
    assert started.about == f"run {run}"
    assert (started.status, started.reason) == (201, "")
    assert timezone.now() - started.at < timedelta(minutes=1)
    robin.post(f"runs/{run}/cancel/")
    cancelled = AuditEntry.objects.latest("id")
    assert cancelled.action == "POST /api/v1/runs/<run_id>/cancel/"
    assert (cancelled.about, cancelled.status) == (f"run {run}", 202)


def test_reading_leaves_no_entry(robin: Caller) -> None:
    robin.get("runs/")
    robin.send("HEAD", "runs/")
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("method", "address", "body", "status", "reason"),
    [
        ("POST", "operations/op/resolve/", {}, 403, "not-permitted"),
        ("POST", "runs/", {"agent": "nobody"}, 400, "unknown-agent"),
        ("POST", f"runs/{NO_RUN}/cancel/", {}, 404, "unknown-run"),
        ("POST", "operations/", CALLING, 403, "not-permitted"),
        ("DELETE", "runs/", None, 405, "method-not-allowed"),
    ],
)
def test_what_was_refused_to_somebody_known_has_an_entry_too(
    robin: Caller, method: str, address: str, body: Any, status: int, reason: str
) -> None:
    if method == "POST":
        robin.post(address, body, key="k")
    else:
        robin.send(method, address)
    refused = entry()
    assert (refused.actor, refused.status, refused.reason) == ("robin", status, reason)


def test_who_does_not_say_who_they_are_leaves_none() -> None:
    Caller().post("runs/", {"agent": "quick"})
    Caller(token="aot_00000000_guessed").post("runs/", {"agent": "quick"})
    assert not AuditEntry.objects.exists()


def test_an_entry_keeps_no_body_no_key_and_no_secret(robin: Caller) -> None:
    secret = str(robin.token)
    robin.post("runs/", {"agent": "quick", "objective": "the secret plan"}, key="my-key")
    robin.post(f"runs/{secret}/cancel/", {"reason": "the secret plan"})
    said = str(list(AuditEntry.objects.values_list()))
    assert secret[:12] in said
    for hidden in (secret, secret[12:], "plan", "my-key"):
        assert hidden not in said


def test_what_strangers_send_is_bounded_and_on_one_line(robin: Caller) -> None:
    robin.post("runs/a%0A%00\u202e" + "x" * 1000 + "/cancel/")
    assert len(entry().about) <= 200
    assert entry().about.isprintable()


@COMMITTING
def test_without_its_entry_there_is_no_write(robin: Caller) -> None:
    with refusing_entries():
        assert robin.post("runs/", {"agent": "quick"}).status_code == 500
    assert not AgentRun.objects.exists()
    assert robin.post("runs/", {"agent": "quick"}).status_code == 201


def test_a_write_that_broke_down_has_its_entry(
    robin: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("runs.commands.start_run", broken)
    robin.post("runs/", {"agent": "quick"})
    assert (entry().status, entry().about) == (500, "")


@COMMITTING
def test_an_answer_that_cannot_be_kept_takes_no_success_away(robin: Caller) -> None:
    change(
        "CREATE FUNCTION audit_is_full() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'full'; END $$"
    )
    change(
        "CREATE TRIGGER full_now BEFORE UPDATE ON agentops_auditentry "
        "FOR EACH ROW EXECUTE FUNCTION audit_is_full()"
    )
    try:
        assert robin.post("runs/", {"agent": "quick"}).status_code == 201
    finally:
        change("DROP FUNCTION audit_is_full CASCADE")
    assert entry().status is None


# -- Calls of agents that run elsewhere ----------------------------------------------------


@COMMITTING
def test_a_call_brings_its_entry_in_its_own_commit() -> None:
    scripted_tool("done", name="pay")
    who = caller(CALL_EVERY_TOOL, username="robin")
    operation_id = who.post("operations/", CALLING, key="k").json()["operation_id"]
    call = GatewayCall.objects.get()
    accepted = entry()
    assert (accepted.actor, accepted.token) == ("robin", ApiToken.objects.get().pk)
    assert (accepted.door, accepted.address) == ("api", "127.0.0.1")
    assert (accepted.action, accepted.about) == ("call pay", f"operation {operation_id}")
    assert (accepted.at, accepted.status) == (call.received_at, None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT xmin::text FROM agentops_auditentry")
        (of_entry,) = cursor.fetchone() or ("",)
        cursor.execute("SELECT count(*) FROM runs_transition WHERE xmin::text = %s", [of_entry])
        assert cursor.fetchone() != (0,)


@COMMITTING
def test_without_its_entry_a_call_is_not_accepted() -> None:
    scripted_tool("done", name="pay")
    who = caller(CALL_EVERY_TOOL)
    with refusing_entries():
        assert who.post("operations/", CALLING, key="k").status_code >= 500
    assert not GatewayCall.objects.exists()
    assert not AgentRun.objects.exists()
    assert who.post("operations/", CALLING, key="k").status_code == 202


@COMMITTING
def test_a_call_that_is_sent_again_is_no_second_write() -> None:
    scripted_tool("done", name="pay")
    who = caller(CALL_EVERY_TOOL)
    for _ in range(3):
        who.post("operations/", CALLING, key="k")
    assert AuditEntry.objects.filter(status=None).count() == 1


@COMMITTING
def test_a_call_that_is_refused_says_why() -> None:
    scripted_tool("done", name="pay")
    who = caller(f"{CALL_PREFIX}pay")
    who.post("operations/", CALLING, key="k")
    who.post("operations/", {**CALLING, "arguments": {"amount": 2}}, key="k")
    who.post("operations/", {**CALLING, "arguments": {"amount": "much"}}, key="other")
    who.post("operations/", {**CALLING, "tool": "refund"}, key="other")
    reasons = list(AuditEntry.objects.order_by("id").values_list("status", "reason"))
    assert reasons == [
        (None, ""),
        (422, "key-reused"),
        (400, "invalid-arguments"),
        (403, "not-permitted"),
    ]


# -- The rows ------------------------------------------------------------------------------


def test_an_entry_is_answered_once_and_changes_no_more() -> None:
    made = note(operator(), action="cancel_run")
    answer(made, status=0)
    answer(made, status=1)
    assert entry().status == 0
    for field, value in (("actor", "sam"), ("status", 1), ("about", "run 2"), ("reason", "x")):
        with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
            AuditEntry.objects.update(**{field: value})


def test_an_open_entry_takes_an_answer_and_nothing_else() -> None:
    note(operator(), action="cancel_run", about="run 1")
    for changed in ({"actor": "sam"}, {"status": 0, "about": "run 2"}, {"status": 0, "token": 1}):
        with pytest.raises(IntegrityError, match="never changes"), transaction.atomic():
            AuditEntry.objects.update(**changed)
    AuditEntry.objects.update(status=0, reason="ok")


def test_a_young_entry_is_not_removed_and_an_old_one_may_be() -> None:
    note(operator(), action="cancel_run")
    with pytest.raises(IntegrityError, match="younger than 30 days"), transaction.atomic():
        AuditEntry.objects.all().delete()
    AuditEntry.objects.create(
        actor="sam", door="command", action="old", at=timezone.now() - timedelta(days=31)
    )
    assert AuditEntry.objects.filter(action="old").delete()[0] == 1


def test_it_outlives_the_token_and_its_owner(robin: Caller) -> None:
    robin.post("runs/", {"agent": "quick"})
    token = ApiToken.objects.get().pk
    User.objects.filter(username="robin").delete()
    assert (entry().actor, entry().token) == ("robin", token)


@COMMITTING
def test_only_the_entrys_own_commit_waits_for_no_disk() -> None:
    def waits() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            return (cursor.fetchone() or ("",))[0]

    before = waits()
    note(operator(), action="one")
    assert waits() == before
    with transaction.atomic():
        note(Actor(name="robin", scopes=frozenset()), action="two")
        assert waits() == before
