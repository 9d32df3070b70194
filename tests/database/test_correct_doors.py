"""An effect corrected by hand, over the API, by the command and in the admin: one law, three
doors."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from runs.models import AgentRun, ToolObservation
from tests.database.admin_pages import browser_of, person
from tests.database.callers import Caller, caller
from tests.database.sagas import Books, Start, compensated, compensations, effect_of, failing_run
from tests.database.sagas import stuck as wait_for_person
from tools import Rejected

# The engine commits for itself.
pytestmark = pytest.mark.django_db(transaction=True)
WORD = {"evidence": "paid back in cash <b>today</b>"}


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
def stuck(start: Start, books: Books) -> AgentRun:
    """A run whose compensation of `do_a` was refused."""
    books.define("a", undo={"a": [Rejected("no such account")]})
    return wait_for_person(failing_run(start, "a"))


def _by_api(run: AgentRun) -> str:
    answer = caller(username="robin").post(f"operations/{effect_of(run, 'do_a').id}/correct/", WORD)
    assert answer.status_code == 200
    shown = answer.json()
    assert shown["operation_id"] == effect_of(run, "do_a").id
    assert shown["observations"][-1]["verdict"] == "corrected"
    return "robin"


def _by_command(run: AgentRun) -> str:
    out = StringIO()
    call_command("correct_operation", compensations(run)[0].id, as_json=True, **WORD, stdout=out)
    assert json.loads(out.getvalue())["operation_id"] == effect_of(run, "do_a").id
    return "command line"


def _by_admin(run: AgentRun) -> str:
    clerk = person("resolve_operation", "view_tooloperation")
    answer = browser_of(clerk).post(_address(compensations(run)[0].id), WORD, follow=True)
    assert answer.status_code == 200
    assert "corrected by hand" in answer.content.decode()
    return str(clerk.get_username())


def _address(operation_id: str) -> str:
    return reverse("admin:runs_tooloperation_correct", args=[operation_id])


@pytest.mark.parametrize("door", [_by_api, _by_command, _by_admin])
def test_each_door_records_the_word_and_lets_the_run_go_on(
    door: Callable[[AgentRun], str], stuck: AgentRun, books: Books
) -> None:
    name = door(stuck)
    said = ToolObservation.objects.get(run=stuck, verdict="corrected")
    assert said.detail == f"corrected by hand, {name} says: {WORD['evidence']}"
    compensated(stuck)
    assert books.names == ["do_a"]


@pytest.fixture
def api() -> Caller:
    return caller(username="robin")


def test_a_second_word_is_a_conflict(api: Caller, stuck: AgentRun) -> None:
    address = f"operations/{effect_of(stuck, 'do_a').id}/correct/"
    assert api.post(address, WORD).status_code == 200
    again = api.post(address, WORD)
    assert (again.status_code, again.json()["type"].rpartition(":")[2]) == (409, "effect-corrected")


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "evidence"), ({"evidence": 7}, "evidence"), ({"evidence": "x", "more": 1}, "more")],
)
def test_a_body_that_does_not_fit_is_told_the_field(
    body: dict[str, object], field: str, api: Caller, stuck: AgentRun
) -> None:
    answer = api.post(f"operations/{effect_of(stuck, 'do_a').id}/correct/", body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_an_unknown_operation_is_not_found(api: Caller, db: None) -> None:
    assert api.post("operations/op_nobody/correct/", WORD).status_code == 404


def test_a_token_without_the_scope_is_refused(stuck: AgentRun) -> None:
    reader = caller("read", username="robin")
    address = f"operations/{effect_of(stuck, 'do_a').id}/correct/"
    assert reader.post(address, WORD).status_code == 403


def test_the_command_says_what_is_wrong(stuck: AgentRun) -> None:
    with pytest.raises(CommandError, match="evidence"):
        call_command("correct_operation", effect_of(stuck, "do_a").id, evidence=" ")


# -- The admin's page ------------------------------------------------------------------------------


@pytest.fixture
def clerk() -> Client:
    return browser_of(person("resolve_operation", "view_tooloperation"))


def test_the_page_is_offered_on_the_effect_and_on_its_compensation(
    clerk: Client, stuck: AgentRun
) -> None:
    for operation in (effect_of(stuck, "do_a"), compensations(stuck)[0]):
        page = reverse("admin:runs_tooloperation_change", args=[operation.id])
        assert _address(operation.id) in clerk.get(page).content.decode()


def test_a_get_changes_nothing_and_asks(clerk: Client, stuck: AgentRun) -> None:
    page = clerk.get(_address(effect_of(stuck, "do_a").id))
    assert "Was this effect corrected by hand?" in page.content.decode()
    assert not ToolObservation.objects.filter(verdict="corrected").exists()


def test_what_is_refused_is_said_and_what_was_typed_stays(clerk: Client, stuck: AgentRun) -> None:
    address = _address(effect_of(stuck, "do_a").id)
    AgentRun.objects.filter(pk=stuck.pk).update(
        lease_owner="worker 7", lease_expires_at=Now() + timedelta(minutes=1)
    )
    held = clerk.post(address, {"evidence": "<i>in cash</i>"})
    assert held.status_code == 409
    assert "a worker is asking the provider" in held.content.decode()
    assert "&lt;i&gt;in cash&lt;/i&gt;" in held.content.decode()
    assert clerk.post(address, {"evidence": " "}).status_code == 400


def test_who_may_not_settle_may_not_say_it(stuck: AgentRun) -> None:
    viewer = browser_of(person("view_tooloperation", "change_tooloperation"))
    assert viewer.post(_address(effect_of(stuck, "do_a").id), WORD).status_code == 403
    assert not ToolObservation.objects.filter(verdict="corrected").exists()
