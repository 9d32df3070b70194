"""What a person is shown before being asked: everything known about an unknown operation."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs import Script, ToolCall
from runs.admin.evidence import LOOK_UPS
from runs.engine import advance
from runs.models import ToolOperation, Transition, Worker
from tests.database.admin_pages import browser_of, person
from tests.database.resolving import Source, Verdict, observe, opened, row_of, rows_of
from tests.database.stories import SECRET, Start, parked_run, taken_over_run
from tools import registry

# The engine commits for real.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clerk() -> Client:
    """Somebody who may settle, and see operations."""
    return browser_of(person("resolve_operation", "view_tooloperation"))


def test_the_evidence_comes_before_the_question(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    observe(run, detail="only the first page")
    observe(run, source=Source.TAKE_OVER, verdict=Verdict.UNKNOWN, detail="its sender is gone")
    page = opened(clerk, run)
    places = [
        page.index(text)
        for text in (
            "Sends</h3>",
            "no answer for [redacted]",
            "Look-ups</h3>",
            "only the first page",
            "Late answers, take-overs and words of persons</h3>",
            "its sender is gone",
            "What is uncertain</h3>",
            'name="outcome"',
            'name="evidence"',
            'name="external_ref"',
            'name="result"',
            "Settle it",
        )
    ]
    assert places == sorted(places)


def test_each_send_shows_its_worker_its_window_and_whether_it_may_still_land(
    clerk: Client, start: Start
) -> None:
    run = parked_run(start)
    seen = run.operations.get().observations.get()
    assert seen.window is not None
    page = opened(clerk, run)
    row = row_of(page, "send", "1")
    assert "first" in row["worker"]
    assert "token 1" in row["worker"]
    for mark in ("opened_at", "deadline"):
        assert seen.window[mark] in row["on its way"]
    assert "came back" in row["its sender"]
    assert "yes</span> over" in row["may still be in flight"]
    assert "An earlier send may still take effect" in page


def test_a_sender_that_is_not_known_to_have_ended_is_warned_about_until_it_is(
    clerk: Client, start: Start
) -> None:
    run = parked_run(start)
    operation = run.operations.get()
    # A second send, by a worker that nobody heard from again.
    ToolOperation.objects.filter(pk=operation.pk).update(attempts=2, fence_token=2)
    ToolOperation.objects.filter(pk=operation.pk).update(settles_at=Now() - timedelta(days=1))
    Transition.objects.create(
        run=run,
        operation=operation,
        version=run.version,
        event="SEND_AGAIN",
        from_state="UNKNOWN",
        to_state="RUNNING",
        actor="second",
        fence_token=2,
        step_number=1,
        attempt=2,
    )
    row = row_of(opened(clerk, run), "send", "2")
    assert "not known to have ended" in row["its sender"]
    assert "yes: it may yet leave" in row["may still be in flight"]
    assert "The process that sent it (second) is not known to have ended" in opened(clerk, run)

    long_ago = timezone.now() - timedelta(days=2)
    Worker.objects.create(
        name="second",
        host="a",
        pid=1,
        ended_at=long_ago,
        ended_by=Worker.EndedBy.OPERATOR,
        evidence="its machine is off <b>",
    )
    row = row_of(opened(clerk, run), "send", "2")
    assert "ended" in row["its sender"]
    assert "its machine is off &lt;b&gt;" in row["its sender"]
    assert row["may still be in flight"] == "no"
    assert reverse("admin:runs_worker_change", args=["second"]) in row["worker"]
    assert "is not known to have ended: it may" not in opened(clerk, run)


def test_each_look_up_says_what_it_counts_for(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    for verdict in (Verdict.NOT_FOUND, Verdict.INDETERMINATE, Verdict.FAILED):
        observe(run, verdict=verdict, detail=f"it is {verdict}", also=["re_8", "<b>"])
    rows = [row for row in rows_of(opened(clerk, run)) if "which counts for" in row]
    assert [row["in its words"] for row in rows] == [
        '<q class="ao-said">it is failed</q>',
        '<q class="ao-said">it is indeterminate</q>',
        '<q class="ao-said">it is not_found</q>',
    ]
    assert "the look-up itself failed" in rows[0]["which counts for"]
    assert "no proof" in rows[2]["which counts for"]
    assert rows[2]["references"] == "re_8, &lt;b&gt;"


def test_a_take_over_says_who_took_over(clerk: Client, start: Start) -> None:
    run = taken_over_run(start)
    (row,) = [row for row in rows_of(opened(clerk, run)) if "learned from" in row]
    assert "second" in row["learned from"]
    assert "sender is gone" in row["in its words"]


def test_words_of_others_are_quoted_escaped_and_without_secrets(
    clerk: Client, start: Start
) -> None:
    run = parked_run(start)
    hostile = f"<script>alert(1)</script> \u202egnp.exe {SECRET}"
    observe(run, source=Source.STALE_WORKER, verdict=Verdict.REJECTED, detail=hostile)
    observe(run, verdict=Verdict.INDETERMINATE, detail=hostile, result={"card": SECRET})
    page = opened(clerk, run)
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert SECRET not in page
    said = r'<q class="ao-said">&lt;script&gt;alert(1)&lt;/script&gt; \u202egnp.exe [redacted]</q>'
    assert page.count(said) == 3
    assert "Words in quotation marks are those of a tool, a provider or a person" in page


def test_a_tool_name_made_up_by_an_llm_cannot_mislead(clerk: Client, start: Start) -> None:
    run = start(decider=Script(ToolCall("rm\u202e<b>")))
    advance(run_id=run.id, owner="first")
    page = opened(clerk, run)
    assert "rm\\u202e&lt;b&gt;" in page
    assert not {"\u202e"} & set(page)


def test_the_first_and_the_last_word_of_a_send_are_shown(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    for word in ("it waits", "refused after all"):
        observe(run, source=Source.STALE_WORKER, verdict=Verdict.REJECTED, detail=word)
    row = row_of(opened(clerk, run), "send", "1")
    assert "no answer for [redacted]" in row["came back"]
    assert "it waits" not in row["came back"]
    assert "refused after all" in row["came back"]


def test_the_page_opens_where_the_tool_is_no_longer_known(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    with registry.isolated_registry():
        page = opened(clerk, run)
    assert "its tool is not registered" in page


def test_the_page_costs_the_same_however_much_is_known(clerk: Client, start: Start) -> None:
    run = parked_run(start)

    def queries() -> int:
        with CaptureQueriesContext(connection) as sent:
            opened(clerk, run)
        return len(sent)

    queries()
    few = queries()
    for number in range(LOOK_UPS + 5):
        observe(run, detail=f"look-up {number}")
        observe(run, source=Source.STALE_WORKER, verdict=Verdict.UNKNOWN)
    assert queries() == few
    page = opened(clerk, run)
    assert page.count('data-label="which counts for"') == LOOK_UPS
    assert f"The newest {LOOK_UPS} are shown; see all" in page
