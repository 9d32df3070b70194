"""Long lists: no count, no query per row, no scan, and found by exact words."""

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.admin import lists
from runs.models import (
    AgentRun,
    Checkpoint,
    ModelDecision,
    Step,
    StepAttempt,
    ToolObservation,
    ToolOperation,
    Transition,
)
from runs.state import RunState
from tests.database.admin_pages import (
    KINDS,
    Start,
    browser_of,
    counting,
    define_tools,
    finished_run,
    fresh_run,
    list_of,
    page_of,
    person,
    uncertain_run,
)

pytestmark = pytest.mark.django_db
# The engine commits for real.
DRIVEN = pytest.mark.django_db(transaction=True)
MOST_QUERIES = 20


@pytest.fixture
def root() -> Client:
    define_tools()
    return browser_of(person(superuser=True))


def queries_of(client: Client, address: str) -> list[str]:
    with CaptureQueriesContext(connection) as sent:
        assert client.get(address).status_code == 200
    return [str(query["sql"]) for query in sent]


def rows_in(client: Client, address: str) -> list[str]:
    """The first link of every row."""
    page = client.get(address).content.decode()
    return re.findall(r'<tr><td[^>]*><div class="ao-cell"><a class="ao-link" href="([^"]+)"', page)


@DRIVEN
def test_a_list_costs_the_same_for_3_rows_and_for_30(root: Client, start: Start) -> None:
    finished_run(start)
    root.get(list_of("agentrun"))
    few = {kind: queries_of(root, list_of(kind)) for kind in KINDS}
    few_rows = {kind: len(rows_in(root, list_of(kind))) for kind in KINDS}
    for _ in range(10):
        finished_run(start, steps=2)
    for kind in KINDS:
        sent = queries_of(root, list_of(kind))
        assert len(rows_in(root, list_of(kind))) > few_rows[kind] > 0, kind
        assert len(few[kind]) == len(sent) <= MOST_QUERIES, kind
        assert not counting(sent), kind


@DRIVEN
@pytest.mark.parametrize("uncertain", [True, False])
def test_a_run_page_costs_the_same_for_3_steps_and_for_30(
    root: Client, start: Start, uncertain: bool
) -> None:
    short = uncertain_run(start) if uncertain else finished_run(start, steps=2)
    long = finished_run(start, steps=30)
    root.get(page_of(short))
    few, many = queries_of(root, page_of(short)), queries_of(root, page_of(long))
    # An uncertain run is asked for its unknown operation besides.
    assert len(few) - uncertain == len(many) <= MOST_QUERIES
    assert not counting(few + many)


@DRIVEN
def test_a_run_page_shows_the_newest_rows_and_leads_to_all(root: Client, start: Start) -> None:
    run = finished_run(start, steps=40)
    page = root.get(page_of(run)).content.decode()
    assert "The newest 20 are shown; see all" in page
    assert "The newest 200 are shown; see all" in page
    assert f"{list_of('transition')}?run={run.pk}" in page
    assert page.count('data-label="event"') == 200
    assert len(rows_in(root, f"{list_of('step')}?run={run.pk}")) == 42


def test_paging_goes_on_while_rows_follow(root: Client, start: Start) -> None:
    for _ in range(lists.PER_PAGE):
        fresh_run(start)
    assert "Older →" not in root.get(list_of("agentrun")).content.decode()
    fresh_run(start)
    first = root.get(list_of("agentrun")).content.decode()
    second = root.get(f"{list_of('agentrun')}?p=2").content.decode()
    assert "Older →" in first
    assert "← Newer" not in first
    assert "← Newer" in second
    assert "Older →" not in second
    assert len(rows_in(root, list_of("agentrun"))) == lists.PER_PAGE
    assert len(rows_in(root, f"{list_of('agentrun')}?p=2")) == 1
    assert "ends before this page" in root.get(f"{list_of('agentrun')}?p=3").content.decode()


@pytest.mark.parametrize("page", ["0", "-5", "9999999999", "x", "1e9"])
def test_no_page_number_reaches_a_large_offset(root: Client, page: str) -> None:
    sent = queries_of(root, f"{list_of('agentrun')}?p={page}")
    offsets = [int(found) for sql in sent for found in re.findall(r"OFFSET (\d+)", sql)]
    assert all(offset <= lists.MAX_PAGES * lists.PER_PAGE for offset in offsets)


def test_no_address_changes_the_order(root: Client, start: Start) -> None:
    for _ in range(4):
        fresh_run(start)
    newest_first = [page_of(run) for run in AgentRun.objects.order_by("-created_at", "-id")]
    for query in ("", "?o=1", "?o=-2.1", "?all="):
        assert rows_in(root, list_of("agentrun") + query) == newest_first


@pytest.mark.parametrize(
    "lookup", ["objective__icontains=a", "input__card=1", "steps__number=1", "state__in=READY"]
)
def test_no_address_makes_a_lookup_of_its_own(root: Client, lookup: str) -> None:
    assert root.get(f"{list_of('agentrun')}?{lookup}").status_code == 400


@DRIVEN
def test_runs_are_found_by_id_key_and_agent_exactly(root: Client, start: Start) -> None:
    keyed = finished_run(start, key="order 17, refund")
    other = fresh_run(start)
    search = f"{list_of('agentrun')}?q="
    assert rows_in(root, f"{search}{keyed.pk}") == [page_of(keyed)]
    assert rows_in(root, f"{search}order 17, refund") == [page_of(keyed)]
    assert rows_in(root, f"{search}{other.agent}") == [page_of(other)]
    for nothing in ("order 17", other.agent[:-1], str(uuid4()), "%25", "' OR 1=1"):
        assert rows_in(root, f"{search}{nothing}") == []


@DRIVEN
def test_operations_are_found_by_id_run_reference_and_tool(root: Client, start: Start) -> None:
    run = finished_run(start)
    finished_run(start)
    paid = ToolOperation.objects.get(run=run, tool="pay")
    search = f"{list_of('tooloperation')}?q="
    assert len(rows_in(root, f"{search}{paid.pk}")) == 1
    assert len(rows_in(root, f"{search}{run.pk}")) == 2
    assert len(rows_in(root, f"{search}re_1")) == 2
    assert len(rows_in(root, f"{search}look")) == 2
    assert rows_in(root, f"{search}{paid.pk[:-1]}") == []


@DRIVEN
def test_uncertain_runs_and_unknown_operations_can_be_listed(root: Client, start: Start) -> None:
    finished_run(start)
    run = uncertain_run(start)
    for query in ("effect=uncertain", f"state={RunState.TOOL_STATUS_UNKNOWN}"):
        assert rows_in(root, f"{list_of('agentrun')}?{query}") == [page_of(run)]
    [unknown] = rows_in(root, f"{list_of('tooloperation')}?status=UNKNOWN")
    assert ToolOperation.objects.get(run=run, status="UNKNOWN").pk in unknown


@DRIVEN
def test_paused_runs_can_be_listed_and_runs_that_ended_are_none(root: Client, start: Start) -> None:
    paused, ended, _ = fresh_run(start), finished_run(start), fresh_run(start)
    for run in (paused, ended):
        AgentRun.objects.filter(id=run.id).update(paused_at=Now(), pause_reason="to look at it")
    address = f"{list_of('agentrun')}?pause"
    assert rows_in(root, f"{address}=paused") == [page_of(paused)]
    assert rows_in(root, f"{address}=perhaps") == []


@DRIVEN
def test_every_state_finds_its_runs_and_no_others(root: Client, start: Start) -> None:
    runs = [finished_run(start), uncertain_run(start), fresh_run(start)]
    for state in RunState:
        expected = {page_of(run) for run in runs if run.state == state}
        assert set(rows_in(root, f"{list_of('agentrun')}?state={state}")) == expected, state


@DRIVEN
def test_each_filter_keeps_to_one_run_step_or_operation(root: Client, start: Start) -> None:
    run, _ = finished_run(start), finished_run(start)
    operation = ToolOperation.objects.get(run=run, tool="pay")
    steps, below = {"run": run}, {"operation": operation}
    ends: list[tuple[str, str, Any]] = [
        ("step", f"run={run.pk}", Step.objects.filter(**steps)),
        ("stepattempt", f"run={run.pk}", StepAttempt.objects.filter(step__run=run)),
        ("stepattempt", f"step={operation.step_id}", operation.step.attempts),
        ("modeldecision", f"run={run.pk}", ModelDecision.objects.filter(**steps)),
        ("checkpoint", f"run={run.pk}", Checkpoint.objects.filter(**steps)),
        ("tooloperation", f"run={run.pk}", run.operations),
        ("tooloperation", f"run={run.pk}&status=COMMITTED", run.operations),
        ("tooloperation", f"step={operation.step_id}", operation.step.operations),
        ("toolobservation", f"run={run.pk}", ToolObservation.objects.filter(**steps)),
        ("toolobservation", f"operation={operation.pk}", operation.observations),
        ("transition", f"operation={operation.pk}", Transition.objects.filter(**below)),
        ("transition", f"run={run.pk}", run.journal),
    ]
    for kind, query, rows in ends:
        listed = set(rows_in(root, f"{list_of(kind)}?{query}"))
        there = {reverse(f"admin:runs_{kind}_change", args=[row.pk]) for row in rows.all()}
        assert listed == there != set(), (kind, query)


@DRIVEN
def test_a_filter_value_that_cannot_be_finds_nothing(root: Client, start: Start) -> None:
    finished_run(start)
    for kind, query in (
        ("agentrun", "state=BROKEN"),
        ("agentrun", "effect=certain"),
        ("agentrun", "created=forever"),
        ("step", "run=17"),
        ("stepattempt", "step=x"),
        ("stepattempt", f"step={'9' * 40}"),
        ("tooloperation", "status=%00"),
        ("tooloperation", "step=0"),
        ("toolobservation", "operation=%00"),
        ("transition", "operation=" + "x" * 100),
    ):
        page = root.get(f"{list_of(kind)}?{query}")
        assert page.status_code == 200, query
        assert "Nothing matches." in page.content.decode(), query


@DRIVEN
def test_a_filter_without_an_index_looks_through_the_newest_rows_and_says_so(
    root: Client, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = finished_run(start)
    monkeypatch.setattr(lists, "NEWEST", 3)
    for _ in range(4):
        fresh_run(start)
    address = f"{list_of('agentrun')}?state=COMPLETED"
    assert rows_in(root, address) == []
    assert "Looked for among the newest 3 rows." in root.get(address).content.decode()
    indexed = root.get(f"{list_of('agentrun')}?state=READY").content.decode()
    assert "Looked for among" not in indexed
    # One run is a small list, however old.
    finished_run(start, steps=4)
    query = f"?run={old.pk}&status=COMMITTED"
    assert len(rows_in(root, list_of("tooloperation") + query)) == 2


def test_what_is_searched_for_is_escaped(root: Client) -> None:
    page: Any = root.get(list_of("agentrun"), {"q": '"><script>alert(1)</script>'})
    assert "<script>alert" not in page.content.decode()
