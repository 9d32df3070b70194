"""Who asked for which write: an entry for each, before it is carried out."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import get_commands, load_command_class
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentops.audit import answer, note
from agentops.management.noting import UNNOTED, is_noted, noted
from agentops.models import ApiToken, AuditEntry
from agentops.tokens import issue_token
from runs import Agent, Finish
from runs.access import CALL_EVERY_TOOL, CALL_PREFIX, READ, RUNS_WRITE, Actor, operator
from runs.models import AgentRun, GatewayCall
from tests.database.admin_pages import browser_of, person
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


# -- The admin -----------------------------------------------------------------------------


def test_what_is_done_in_the_admin_has_an_entry() -> None:
    boss = person(superuser=True)
    token = issue_token(user=boss, name="ci", scopes=[READ]).row
    browser_of(boss).post(reverse("admin:agentops_apitoken_revoke", args=[token.pk]))
    assert (entry().actor, entry().token, entry().door) == (boss.username, None, "admin")
    assert entry().action == "POST /admin/agentops/apitoken/<token_id>/revoke/"
    assert (entry().about, entry().status) == (f"token {token.pk}", 302)


def test_what_the_admin_refuses_has_an_entry() -> None:
    token = issue_token(user=person(), name="ci", scopes=[READ]).row
    page = reverse("admin:agentops_apitoken_revoke", args=[token.pk])
    browser_of(person("view_apitoken")).post(page)
    assert entry().status == 403


def test_a_forged_form_leaves_a_refusal() -> None:
    boss = person(superuser=True)
    client = Client(enforce_csrf_checks=True)
    client.force_login(boss)
    client.post(reverse("admin:auth_group_add"), {"name": "thieves"})
    assert (entry().actor, entry().status) == (boss.username, 403)


def test_rows_that_were_chosen_for_an_action_are_named() -> None:
    boss, gone = person(superuser=True), User.objects.create(username="gone")
    form = {"action": "delete_selected", "_selected_action": [str(gone.pk)], "post": "yes"}
    browser_of(boss).post(reverse("admin:auth_user_changelist"), form)
    assert not User.objects.filter(pk=gone.pk).exists()
    assert entry().action == "POST /admin/auth/user/ delete_selected"
    assert entry().about == f"row {gone.pk}"


def test_a_login_has_an_entry_and_its_password_is_not_in_it() -> None:
    User.objects.create_superuser("boss", password="correct horse")
    form = {"username": "boss", "password": "correct horse"}
    Client().post(reverse("admin:login"), form)
    assert (entry().actor, entry().action, entry().status) == ("boss", "POST /admin/login/", 302)
    assert "horse" not in str(AuditEntry.objects.values_list().get())


@COMMITTING
def test_without_its_entry_the_admin_changes_nothing() -> None:
    boss = person(superuser=True)
    token = issue_token(user=boss, name="ci", scopes=[READ]).row
    client = browser_of(boss)
    client.raise_request_exception = False
    with refusing_entries():
        page = reverse("admin:agentops_apitoken_revoke", args=[token.pk])
        assert client.post(page).status_code == 500
    assert ApiToken.objects.get().expires_at is None


# -- Commands ------------------------------------------------------------------------------


def run_command(*arguments: str) -> None:
    name = arguments[0]
    command = load_command_class(get_commands()[name], name)
    noted(name, command, arguments[1:]).run_from_argv(["manage.py", *arguments])


@COMMITTING
def test_a_command_that_changes_something_has_an_entry() -> None:
    run_command("create_token", "ci", "--scopes", READ)
    assert entry().actor == f"command line ({getpass.getuser()})"
    assert (entry().door, entry().action, entry().about) == ("command", "create_token", "ci")
    assert entry().status == 0


@COMMITTING
def test_a_command_that_failed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["cancel_run", NO_RUN], ["cancel_run"]):
        with pytest.raises(SystemExit):
            run_command(*arguments)
    assert list(AuditEntry.objects.order_by("id").values_list("about", "status")) == [
        (NO_RUN, 1),
        ("", 2),
    ]


@COMMITTING
def test_a_command_that_only_looks_has_none() -> None:
    run_command("list_runs")
    with pytest.raises(SystemExit):
        run_command("cancel_run", "--help")
    assert not AuditEntry.objects.exists()


def test_every_command_of_ours_is_noted_or_known_to_change_nothing() -> None:
    ours = {
        name: load_command_class(app, name)
        for name, app in get_commands().items()
        if app in {"agentops", "approvals", "runs", "tools"}
    }
    for name, command in ours.items():
        only_looks = name.startswith(("list_", "inspect_", "export_", "replay_", "describe_"))
        looks_like_a_write = not only_looks and name not in UNNOTED
        # Those that start or examine the stack ask nothing of the kernel.
        of_the_stack = name in {
            "up",
            "demo",
            "doctor",
            "check_tool",
            "purge_keys",
            "call_operation",
        }
        assert is_noted(name, command) or not looks_like_a_write or of_the_stack, name
    # Nothing stands there that is not a command, or is one that changes something.
    assert {"cancel_run", "rotate_token", "decide_approval", "save_policy"}.isdisjoint(UNNOTED)


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


# -- The pages -----------------------------------------------------------------------------


def test_the_audit_is_listed_and_narrowed_by_token_and_by_what_it_is_about(
    robin: Caller,
) -> None:
    run = robin.post("runs/", {"agent": "quick"}).json()["id"]
    note(operator("<b>sam</b>"), action="cancel_run", about="run 2")
    client = browser_of(person("view_auditentry"))
    page = reverse("admin:agentops_auditentry_changelist")
    listed = client.get(page).content.decode()
    assert "POST /api/v1/runs/" in listed
    assert "<b>sam" not in listed
    token = ApiToken.objects.get().pk
    for query in ({"token": str(token)}, {"about": f"run {run}"}, {"door": "api"}):
        narrowed = client.get(page, query).content.decode()
        assert "POST /api/v1/runs/" in narrowed
        assert "cancel_run" not in narrowed
    for query in ({"token": "x"}, {"token": "9" * 30}, {"about": "a\0b"}):
        assert "POST /api/v1/runs/" not in client.get(page, query).content.decode()


def test_an_entry_has_a_page_and_nobody_changes_it_there(robin: Caller) -> None:
    robin.post("runs/", {"agent": "nobody"})
    client = browser_of(person("view_auditentry"))
    page = reverse("admin:agentops_auditentry_change", args=[entry().pk])
    shown = client.get(page).content.decode()
    assert "unknown-agent" in shown
    assert "127.0.0.1" in shown
    assert client.post(page).status_code == 405
    assert browser_of(person()).get(page).status_code in {302, 403}
