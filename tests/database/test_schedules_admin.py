"""Schedules in the admin: what is shown to whom, the form, the preview, and the requests."""

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentops.sidebar import navigation
from runs.agents import forget_agents
from runs.models import AgentRun, Schedule
from runs.schedules import run_once
from tests.database.admin_pages import HOSTILE, browser_of, person
from tests.database.scheduling import NOON, reporter, runs_of, schedule

pytestmark = pytest.mark.django_db

LIST = "/admin/runs/schedule/"
TYPED = {
    "name": "nightly",
    "agent": "reporter",
    "objective": "report",
    "input": '{"day": 1}',
    "labels": '{"team": "web"}',
    "priority": "",
    "cron": "30 2 * * *",
    "time_zone": "Europe/Berlin",
    "catch_up": "latest",
    "enabled": "on",
    "based_on": "0",
}
REQUESTS = ("start", "enable", "disable", "delete")


@pytest.fixture(autouse=True)
def _agent() -> None:
    reporter()


@pytest.fixture
def user() -> User:
    return person("change_schedule")


@pytest.fixture
def editor(user: User) -> Client:
    return browser_of(user)


@pytest.fixture
def viewer() -> Client:
    return browser_of(person("view_schedule"))


def page(row: Schedule, name: str = "change") -> str:
    return reverse(f"admin:runs_schedule_{name}", args=[row.pk])


def text(answer: Any) -> str:
    found: str = answer.content.decode()
    return found


def test_the_list_shows_next_start_last_run_and_state(viewer: Client) -> None:
    schedule(due=NOON)
    run_once(NOON)
    schedule("off", enabled=False)
    shown = text(viewer.get(LIST))
    assert "0 * * * *" in shown
    assert str(runs_of().get().pk) in shown
    assert re.search(r"Enabled.*Disabled", shown, re.S)
    assert "Ready" in shown
    assert "New schedule" not in shown


def test_an_empty_list_says_what_a_schedule_does(viewer: Client) -> None:
    assert "No schedule yet" in text(viewer.get(LIST))


@pytest.mark.parametrize("name", ["changelist", "change", "rewrite", "write", *REQUESTS])
def test_no_page_sends_many_queries(editor: Client, name: str) -> None:
    for number in range(20):
        row = schedule(f"s{number}", due=NOON)
    run_once(NOON)
    address = reverse(
        f"admin:runs_schedule_{name}", args=[] if name in {"changelist", "write"} else [row.pk]
    )
    with CaptureQueriesContext(connection) as queries:
        assert editor.get(address).status_code == 200
    assert len(queries) < 20, [one["sql"][:80] for one in queries]


def test_those_who_only_look_are_offered_nothing_and_refused(viewer: Client) -> None:
    row = schedule()
    shown = text(viewer.get(page(row)))
    assert "Start now" not in shown
    assert page(row, "rewrite") not in shown
    for name in ("rewrite", *REQUESTS):
        assert viewer.get(page(row, name)).status_code == 403
        assert viewer.post(page(row, name), TYPED).status_code == 403
    assert viewer.post(f"{LIST}write/", TYPED).status_code == 403
    assert Schedule.objects.get().version == 1
    assert not AgentRun.objects.exists()


def test_those_without_a_permission_see_nothing() -> None:
    row = schedule()
    stranger = browser_of(person())
    assert stranger.get(LIST).status_code == 403
    assert stranger.get(page(row)).status_code == 403


def test_a_get_changes_nothing(editor: Client) -> None:
    row = schedule(due=NOON)
    for name in ("change", "rewrite", *REQUESTS):
        assert editor.get(page(row, name)).status_code == 200
        assert editor.put(page(row, name)).status_code == 405
    row.refresh_from_db()
    assert (row.version, row.next_at, row.enabled) == (1, NOON, True)
    assert not AgentRun.objects.exists()


def test_a_form_saves_a_schedule_as_the_person(editor: Client, user: User) -> None:
    answer = editor.post(f"{LIST}write/", TYPED)
    row = Schedule.objects.get()
    assert answer.url == page(row)
    assert (row.name, row.input, row.labels, row.priority) == (
        "nightly",
        {"day": 1},
        {"team": "web"},
        None,
    )
    assert (row.saved_by, row.saved_by_user) == (user.username, user)
    assert "Saved nightly." in text(editor.get(answer.url))


def test_a_form_is_filled_with_what_there_is_and_changes_it(editor: Client) -> None:
    row = schedule(objective="report", priority=-3, input=[1, "ü"], time_zone="Asia/Kolkata")
    shown = text(editor.get(page(row, "rewrite")))
    assert "Asia/Kolkata" in shown
    assert 'value="-3"' in shown
    assert "ü" in shown
    typed = TYPED | {"based_on": "1", "enabled": "", "name": "ignored"}
    assert editor.post(page(row, "rewrite"), typed).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.version, row.enabled, row.next_at) == ("hourly", 2, False, None)
    assert row.objective == "report"


BAD = {
    "name": ("Bad name", "small letters"),
    "agent": ("reportr", "Did you mean &#x27;reporter&#x27;?"),
    "cron": ("61 * * * *", "minute &#x27;61&#x27; is not possible"),
    "time_zone": ("Berlin", "Did you mean &#x27;Europe/Berlin&#x27;?"),
    "catch_up": ("some", "Use one of"),
    "priority": ("high", "Write a whole number"),
    "input": ("{", "It is no JSON"),
    "labels": ("[]", "Write an object of texts"),
}


@pytest.mark.parametrize("field", sorted(BAD))
def test_what_does_not_fit_is_told_at_its_field_and_nothing_typed_is_lost(
    editor: Client, field: str
) -> None:
    given, told = BAD[field]
    answer = editor.post(f"{LIST}write/", TYPED | {field: given})
    shown = text(answer)
    assert answer.status_code == 400
    assert "Nothing was saved" in shown
    assert told in shown
    assert f'href="#id_{field}"' in shown
    assert "{&quot;team&quot;: &quot;web&quot;}" in shown or field == "labels"
    assert not Schedule.objects.exists()


def test_every_problem_is_told_at_once(editor: Client) -> None:
    answer = editor.post(f"{LIST}write/", TYPED | {name: given for name, (given, _) in BAD.items()})
    shown = text(answer)
    assert [name for name in BAD if f'href="#id_{name}"' not in shown] == []


def test_a_preview_shows_the_next_five_starts_there_and_saves_nothing(editor: Client) -> None:
    answer = editor.post(f"{LIST}write/", TYPED | {"preview": "1"})
    shown = text(answer)
    assert answer.status_code == 200
    assert "there (Europe/Berlin)" in shown
    assert len(re.findall(r"\w{3} \d{4}-\d\d-\d\d 02:30 CES?T", shown)) == 5
    assert "Nothing was saved" not in shown
    assert not Schedule.objects.exists()


def test_a_preview_of_bad_times_says_what_is_wrong(editor: Client) -> None:
    answer = editor.post(f"{LIST}write/", TYPED | {"cron": "* * *", "preview": "1"})
    assert answer.status_code == 400
    assert "Write five fields, not 3" in text(answer)
    assert "Next starts" not in text(answer)


def test_a_name_that_is_taken_is_not_written_over(editor: Client) -> None:
    schedule("nightly", objective="first")
    answer = editor.post(f"{LIST}write/", TYPED)
    assert answer.status_code == 409
    assert "A schedule has this name" in text(answer)
    assert Schedule.objects.get().objective == "first"


def test_who_saves_on_an_old_version_is_told_and_may_then(editor: Client) -> None:
    row = schedule()
    schedule(objective="meanwhile")
    answer = editor.post(page(row, "rewrite"), TYPED | {"based_on": "1"})
    assert answer.status_code == 409
    assert "meanwhile" in text(answer)
    assert 'name="based_on" value="2"' in text(answer)
    assert Schedule.objects.get().objective == "meanwhile"
    assert editor.post(page(row, "rewrite"), TYPED | {"based_on": "2"}).status_code == 302


def test_start_now_sent_twice_from_one_page_is_one_run_of_the_person(
    editor: Client, user: User
) -> None:
    row = schedule()
    found = re.search(r'name="key" value="(\w+)"', text(editor.get(page(row, "start"))))
    assert found is not None
    for _ in range(2):
        answer = editor.post(page(row, "start"), {"key": found[1]})
        assert answer.url == page(row)
    run = AgentRun.objects.get()
    assert (run.created_by, run.created_by_user) == (user.username, user)
    assert "is started" in text(editor.get(page(row)))


def test_disable_enable_and_delete(editor: Client) -> None:
    row = schedule()
    shown = text(editor.get(page(row)))
    assert page(row, "disable") in shown
    assert page(row, "enable") not in shown
    editor.post(page(row, "disable"))
    row.refresh_from_db()
    assert not row.enabled
    assert page(row, "enable") in text(editor.get(page(row)))
    editor.post(page(row, "enable"))
    row.refresh_from_db()
    assert row.enabled
    assert editor.post(page(row, "delete")).url == LIST
    assert not Schedule.objects.exists()
    assert editor.get(page(row)).status_code == 302
    assert editor.post(page(row, "delete")).status_code == 302


def test_an_agent_that_is_gone_is_told_and_stays_in_the_form(editor: Client) -> None:
    reporter("brief")
    row = schedule(agent="brief", due=NOON)
    forget_agents({"brief"})
    run_once(NOON)
    assert "started nothing" in text(editor.get(LIST))
    shown = text(editor.get(page(row)))
    assert "no agent is called" in shown
    assert "tried again at the next slot" in shown
    assert '<option value="brief" selected>' in text(editor.get(page(row, "rewrite")))
    editor.post(page(row, "start"), {"key": "k"})
    assert "no agent is called" in text(editor.get(page(row)))


def test_the_page_shows_the_next_starts_and_a_zone_that_is_gone_breaks_nothing(
    viewer: Client,
) -> None:
    row = schedule(cron="30 2 * * *", time_zone="America/New_York")
    assert len(re.findall(r"02:30 E[DS]T", text(viewer.get(page(row))))) == 5
    Schedule.objects.update(time_zone="Mars/Olympus")
    assert viewer.get(page(row)).status_code == 200


def test_what_people_and_agents_wrote_is_escaped(editor: Client) -> None:
    hostile = "<script>alert(1)</script> \u202egnp.exe"
    row = schedule(objective=hostile, input={"x": hostile}, labels={"x": hostile[:60]}, due=NOON)
    Schedule.objects.update(last_error=HOSTILE)
    for address in (LIST, page(row), page(row, "rewrite"), page(row, "start")):
        assert "<script>alert" not in text(editor.get(address))
    shown = text(editor.get(page(row)))
    assert "\u202e" not in shown


def test_the_sidebar_leads_there(rf: Any) -> None:
    request = rf.get("/admin/")
    request.user = person("change_schedule")
    titles = [item["title"] for section in navigation(request) for item in section["items"]]
    assert "Schedules" in titles
    request.user = person()
    assert "Schedules" not in json.dumps(navigation(request))
