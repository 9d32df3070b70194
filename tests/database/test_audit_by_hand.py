"""The audit of what people do by hand: in the admin, and by commands; and its own pages."""

import getpass

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import get_commands, load_command_class
from django.test import Client
from django.urls import reverse

from agentops.audit import note
from agentops.management.noting import UNNOTED, is_noted, noted
from agentops.models import ApiToken, AuditEntry
from agentops.tokens import issue_token
from runs import Agent, Finish
from runs.access import READ, RUNS_WRITE, operator
from tests.database.admin_pages import browser_of, person
from tests.database.callers import Caller, caller
from tests.database.test_audit import refusing_entries

pytestmark = pytest.mark.django_db
COMMITTING = pytest.mark.django_db(transaction=True)
NO_RUN = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def robin() -> Caller:
    Agent(name="quick", decider=lambda context: Finish())
    return caller(RUNS_WRITE, READ, username="robin")


def entry() -> AuditEntry:
    return AuditEntry.objects.get()


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


def test_rows_that_were_chosen_for_an_action_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # A page of somebody's own app may have actions for many rows.
    monkeypatch.setattr(admin.site.get_model_admin(User), "actions", ())
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
