"""What operators see of workers, and how they say that one has ended."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from agentops.management.commands.doctor import examine
from runs.models import AgentRun, ToolOperation, Worker
from runs.worker_ends import EndedBy, end
from tests.database.admin_pages import HOSTILE, browser_of, list_of, person
from tests.database.kit import ON_DATABASE
from tests.database.worker_rows import LEASE, a_worker, how_it_ended, waiting_runs

Start = Callable[..., AgentRun]

pytestmark = ON_DATABASE
WITH_USERS = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE


# -- Commands -----------------------------------------------------------------------------------


def told(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def refused(*command: str) -> str:
    with pytest.raises(CommandError) as caught:
        told(*command)
    return str(caught.value)


def test_list_workers_tells_the_living_from_the_silent_and_the_ended() -> None:
    a_worker("living", seen=timedelta(0))
    a_worker("mute")
    a_worker("dead")
    end("dead", by=EndedBy.OPERATOR, evidence=f"robin: {HOSTILE}")
    listed = {row["name"]: row for row in json.loads(told("list_workers", "--json"))}
    assert {name: row["standing"] for name, row in listed.items()} == {
        "living": "alive",
        "mute": "silent",
        "dead": "ended",
    }
    assert listed["dead"]["ended_by"] == "operator"
    alive = json.loads(told("list_workers", "--alive", "--json"))
    assert {row["name"] for row in alive} == {"living", "mute"}
    text = told("list_workers")
    assert "\u202e" not in text
    assert "\u0007" not in text


def test_list_workers_says_when_there_are_more_or_none() -> None:
    assert "manage.py up" in told("list_workers")
    a_worker("a")
    a_worker("b")
    assert "There are more" in told("list_workers", "--limit", "1")
    assert "--limit" in refused("list_workers", "--limit", "0")


def test_worker_ended_takes_names_and_a_host(start: Start) -> None:
    [run] = waiting_runs(start, "a")
    a_worker("a")
    a_worker("b", host="one")
    answer = json.loads(
        told("worker_ended", "a", "--host", "one", "--evidence", "power cut", "--json")
    )
    operation = ToolOperation.objects.get(run=run)
    assert answer == {"ended": ["a", "b"], "already_ended": [], "due": [operation.id]}
    assert Worker.objects.get(name="b").evidence == "command line: power cut"
    assert "had ended already" in told("worker_ended", "a", "--evidence", "again")
    assert "known to have ended" in told("worker_ended", "--host", "one", "--evidence", "again")


def test_worker_ended_refuses_in_one_sentence() -> None:
    a_worker(seen=timedelta(0))
    assert "--even-if-alive" in refused("worker_ended", "w", "--evidence", "I think so")
    assert "list_workers" in refused("worker_ended", "x", "--evidence", "gone")
    assert "--evidence" in refused("worker_ended", "w")
    assert how_it_ended() == ""
    assert "w has ended." in told("worker_ended", "w", "--even-if-alive", "--evidence", "I saw it")


@WITH_USERS
def test_doctor_counts_workers_and_names_the_way_out_of_silence() -> None:
    a_worker("living", seen=timedelta(0))
    a_worker("dead")
    end("dead", by=EndedBy.REPORTED, evidence="it said so")
    [found] = [finding for finding in examine() if finding.name == "worker ends"]
    assert found.level == "ok"
    assert found.detail.endswith("web ones too: 1 alive, 0 silent, 1 ended")
    a_worker("mute")
    [found] = [finding for finding in examine() if finding.name == "worker ends"]
    assert found.level == "warning"
    assert "1 silent" in found.detail
    assert "worker_ended" in found.fix


# -- The admin ----------------------------------------------------------------------------------


def page_of(name: str) -> str:
    return reverse("admin:runs_worker_change", args=[name])


@WITH_USERS
def test_the_admin_lists_workers_and_shows_how_an_end_is_known(
    start: Start,
) -> None:
    [run] = waiting_runs(start, "mute <b>")
    a_worker("mute <b>")
    a_worker("dead", host="<i>")
    end("dead", by=EndedBy.OPERATOR, evidence=f"robin: {HOSTILE}")
    client = browser_of(person(superuser=True))
    listed = client.get(list_of("worker")).content.decode()
    assert page_of("dead") in listed
    assert page_of("mute <b>") in listed
    for narrowed, shown in (("no", "mute"), ("yes", "dead"), ("x", "")):
        rows = client.get(f"{list_of('worker')}?ended={narrowed}").content.decode()
        found = {name for name in ("mute", "dead") if f"/worker/{name}" in rows}
        assert found == ({shown} if shown else set())
    dead = client.get(page_of("dead")).content.decode()
    assert "An operator said so" in dead
    assert "robin: &lt;script&gt;" in dead
    assert "Has it ended?" not in dead
    mute = client.get(page_of("mute <b>")).content.decode()
    assert "worker_ended &#x27;mute &lt;b&gt;&#x27;" in mute
    assert ToolOperation.objects.get(run=run).id[:11] in mute
    for page in (listed, dead, mute):
        assert "<script>alert" not in page
        assert "<b>" not in page
        assert "<i>" not in page


@WITH_USERS
def test_the_admin_shows_workers_to_those_who_may_see_them_and_changes_none() -> None:
    a_worker()
    assert browser_of(person()).get(list_of("worker")).status_code == 403
    client = browser_of(person("view_worker"))
    assert client.get(page_of("w")).status_code == 200
    assert "Unknown operations" not in client.get(page_of("w")).content.decode()
    assert client.post(page_of("w")).status_code == 405
    assert client.post(f"{page_of('w')}").status_code == 405
    assert client.get(f"{list_of('worker')}?host=x").status_code in {302, 400}
    assert list_of("worker") in client.get(reverse("admin:index")).content.decode()


@WITH_USERS
def test_a_list_of_workers_costs_the_same_for_2_and_for_20() -> None:
    client = browser_of(person(superuser=True))
    counts = []
    for batch in range(2):
        for number in range(2 + 18 * batch):
            a_worker(f"w{batch}.{number}")
        client.get(list_of("worker"))
        with CaptureQueriesContext(connection) as sent:
            client.get(list_of("worker"))
        counts.append(len(sent))
    assert counts[0] == counts[1]
