"""The page on which a person settles an unknown operation: evidence first, then the question."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.access import operator
from runs.admin.evidence import LOOK_UPS
from runs.admin.resolve import CHOICES
from runs.engine import advance
from runs.models import AgentRun, ToolObservation, ToolOperation, Transition, Worker
from runs.resolution import Outcome, resolve_operation
from tests.database.admin_pages import browser_of, person
from tests.database.stories import SECRET, Start, parked_run, reconciled_run, taken_over_run
from tools import registry

# The engine commits for real.
pytestmark = pytest.mark.django_db(transaction=True)

WORD = {"outcome": "committed", "evidence": "seen in the ledger, entry 5"}
Source, Verdict = ToolObservation.Source, ToolObservation.Verdict


@pytest.fixture
def clerk() -> Client:
    """Somebody who may settle, and see operations."""
    return browser_of(person("resolve_operation", "view_tooloperation"))


def page_of(run: AgentRun) -> str:
    return reverse("admin:runs_tooloperation_change", args=[run.operations.get().pk])


def question_of(run: AgentRun) -> str:
    return reverse("admin:runs_tooloperation_resolve", args=[run.operations.get().pk])


def opened(client: Client, run: AgentRun) -> str:
    answer = client.get(question_of(run))
    assert answer.status_code == 200
    return answer.content.decode()


def mark_in(page: str) -> str:
    found = re.search(r'name="mark" value="([\d.]+)"', page)
    assert found is not None
    return found[1]


def send(client: Client, run: AgentRun, page: str | None = None, **said: str) -> Any:
    """Fill in and send the form of a page, by default of one opened just now."""
    mark = mark_in(page if page is not None else opened(client, run))
    return client.post(question_of(run), {**WORD, **said, "mark": mark})


def observe(run: AgentRun, **what: Any) -> ToolObservation:
    """Write down one more thing learned about the run's operation."""
    given = {"source": Source.LOOK_UP, "verdict": Verdict.NOT_FOUND, "attempt": 1, "fence_token": 1}
    return ToolObservation.objects.create(
        run=run, operation=run.operations.get(), **{**given, **what}
    )


def standing(run: AgentRun) -> tuple[Any, ...]:
    run.refresh_from_db()
    return (
        run.version,
        run.fence_token,
        run.operations.get().status,
        Transition.objects.count(),
        ToolObservation.objects.count(),
    )


# -- Getting there -----------------------------------------------------------------------


def test_an_unknown_operation_offers_it_to_those_who_may(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    assert question_of(run) in clerk.get(page_of(run)).content.decode()
    viewer = browser_of(person("view_tooloperation", "change_tooloperation"))
    assert question_of(run) not in viewer.get(page_of(run)).content.decode()


def test_a_settled_operation_offers_nothing_and_says_so(clerk: Client, start: Start) -> None:
    run = reconciled_run(start)
    assert question_of(run) not in clerk.get(page_of(run)).content.decode()
    page = opened(clerk, run)
    assert "This operation is settled" in page
    assert "<form method" not in page[page.index("This operation is settled") :]


@pytest.mark.parametrize("permissions", [(), ("view_tooloperation", "change_tooloperation")])
def test_nobody_else_sees_or_settles_anything(start: Start, permissions: tuple[str, ...]) -> None:
    run = parked_run(start)
    before = standing(run)
    client = browser_of(person(*permissions))
    assert client.get(question_of(run)).status_code == 403
    assert client.post(question_of(run), WORD).status_code == 403
    stranger = Client().post(question_of(run), WORD)
    assert reverse("admin:login") in stranger.headers["Location"]
    assert standing(run) == before


def test_a_post_from_another_site_settles_nothing(start: Start) -> None:
    run = parked_run(start)
    before = standing(run)
    client = browser_of(person(superuser=True), enforce_csrf_checks=True)
    assert client.post(question_of(run), WORD).status_code == 403
    assert standing(run) == before


def test_looking_changes_nothing(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    before = standing(run)
    opened(clerk, run)
    clerk.head(question_of(run))
    clerk.get(question_of(run), WORD)
    assert clerk.put(question_of(run)).status_code == 405
    assert standing(run) == before


def test_an_operation_that_is_gone_is_named(clerk: Client) -> None:
    for key in ("op_0", "op_%00", "<script>"):
        missing = f"{reverse('admin:runs_tooloperation_changelist')}{key}/resolve/"
        answer = clerk.post(missing, WORD, follow=True)
        assert "There is no operation" in answer.content.decode()


# -- The evidence --------------------------------------------------------------------------


def test_the_evidence_comes_before_the_question(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    observe(run, detail="only the first page")
    observe(run, source=Source.STALE_WORKER, verdict=Verdict.UNKNOWN, detail="still nothing")
    page = opened(clerk, run)
    places = [
        page.index(text)
        for text in (
            "Sends</h3>",
            "no answer for [redacted]",
            "Look-ups</h3>",
            "only the first page",
            "Late answers, take-overs and words of persons</h3>",
            "still nothing",
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
    assert "yes: its bytes may even leave yet" in row["may still be in flight"]
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
    assert "is not known to have ended: it may" not in opened(clerk, run)


def test_each_look_up_says_what_it_counts_for(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    for verdict in (Verdict.NOT_FOUND, Verdict.INDETERMINATE, Verdict.FAILED):
        observe(run, verdict=verdict, detail=f"it is {verdict}")
    rows = [row for row in rows_of(opened(clerk, run)) if "which counts for" in row]
    assert [row["in its words"] for row in rows] == [
        '<q class="ao-said">it is failed</q>',
        '<q class="ao-said">it is indeterminate</q>',
        '<q class="ao-said">it is not_found</q>',
    ]
    assert "the look-up itself failed" in rows[0]["which counts for"]
    assert "no proof" in rows[2]["which counts for"]


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
    assert page.count(said) == 2
    assert "Words in quotation marks come from a tool or a provider" in page


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


# -- The answer ------------------------------------------------------------------------------


def test_an_answer_settles_and_leads_back_to_the_operation(start: Start) -> None:
    user = person("resolve_operation", "view_tooloperation")
    run = parked_run(start)
    client = browser_of(user)
    answer = send(client, run, external_ref=" re_9 ", result='{"refund": 9}')
    assert (answer.status_code, answer.headers["Location"]) == (302, page_of(run))
    operation = run.operations.get()
    assert (operation.status, operation.external_ref) == ("COMMITTED", "re_9")
    assert operation.result == {"refund": 9}
    edge = operation.journal.latest("id")
    assert edge.actor == user.get_username()
    assert WORD["evidence"] in edge.reason
    assert "Recorded that it happened." in client.get(page_of(run)).content.decode()


@pytest.mark.parametrize(
    ("outcome", "status", "sends"), [("not_committed", "COMMITTED", 2), ("rejected", "REJECTED", 1)]
)
def test_each_choice_does_what_it_says(
    clerk: Client, start: Start, outcome: str, status: str, sends: int
) -> None:
    run = parked_run(start)
    assert send(clerk, run, outcome=outcome).status_code == 302
    advance(run_id=run.id, owner="third")
    operation = run.operations.get()
    assert (operation.status, operation.attempts) == (status, sends)


@pytest.mark.parametrize(
    ("said", "field", "words"),
    [
        ({"outcome": ""}, "outcome", "Choose one of the three."),
        ({"outcome": "maybe"}, "outcome", "Choose one of the three."),
        ({"evidence": " \n"}, "evidence", "Say how you know"),
        ({"evidence": "x" * 2_001}, "evidence", "Say how you know"),
        ({"result": "{"}, "result", "this is no JSON"),
        ({"result": '{"a": 1, "a": 2}'}, "result", "given twice"),
        ({"result": '{"a": NaN}'}, "result", "finite"),
        ({"external_ref": "x" * 256}, "external_ref", "Use at most 255."),
        ({"outcome": "rejected", "external_ref": "re_1"}, "external_ref", "Leave it out"),
    ],
)
def test_what_does_not_fit_is_named_at_its_field_and_nothing_typed_is_lost(
    clerk: Client, start: Start, said: dict[str, str], field: str, words: str
) -> None:
    run = parked_run(start)
    before = standing(run)
    given = {"evidence": "my <b> words", "external_ref": "re_1", "result": "[1]", **said}
    answer = send(clerk, run, **given)
    page = answer.content.decode()
    assert answer.status_code == 400
    assert standing(run) == before
    error = re.search(rf'id="{field}-error">(.*?)</p>', page)
    assert error is not None
    assert words in error[1]
    assert f'href="#id_{field}"' in page
    if "evidence" not in said:
        assert "my &lt;b&gt; words</textarea>" in page
    if "external_ref" not in said:
        assert 'value="re_1"' in page


def test_typed_line_ends_and_nul_come_back_readable(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    page = send(clerk, run, evidence="one\r\ntwo", result="{").content.decode()
    assert "one\ntwo</textarea>" in page
    assert "\0" not in send(clerk, run, evidence="a\0b", result="{").content.decode()


# -- What happened meanwhile -------------------------------------------------------------------


def test_whoever_comes_second_is_told_what_changed_and_by_whom(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    page = opened(clerk, run)
    resolve_operation(
        actor=operator("sam"),
        operation_id=run.operations.get().id,
        outcome="rejected",
        evidence="closed account",
    )
    before = standing(run)
    answer = send(clerk, run, page)
    shown = answer.content.decode()
    assert answer.status_code == 409
    assert standing(run) == before
    assert "It was settled meanwhile: it is REJECTED" in shown
    news = shown[: shown.index("Sends</h3>")]
    assert "What changed since you opened this page" in news
    assert "sam" in news
    assert "closed account" in news


def test_an_answer_on_the_ground_of_old_evidence_is_asked_for_again(
    clerk: Client, start: Start
) -> None:
    run = parked_run(start)
    page = opened(clerk, run)
    observe(run, source=Source.STALE_WORKER, verdict=Verdict.COMMITTED, detail="it did arrive")
    before = standing(run)
    again = send(clerk, run, page, outcome="rejected")
    shown = again.content.decode()
    assert again.status_code == 409
    assert standing(run) == before
    assert "it did arrive" in shown[: shown.index("Sends</h3>")]
    assert f"{WORD['evidence']}</textarea>" in shown
    assert re.search(r'value="rejected" required checked', shown)
    assert send(clerk, run, shown, outcome="committed").status_code == 302


def test_look_ups_that_prove_nothing_do_not_disturb(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    page = opened(clerk, run)
    observe(run, verdict=Verdict.NOT_FOUND)
    observe(run, verdict=Verdict.FAILED)
    assert send(clerk, run, page).status_code == 302


@pytest.mark.parametrize("mark", ["", "x", "1", "-1.5", "9.9.9", "٣.٣"])
def test_an_answer_without_having_seen_the_evidence_is_asked_for_again(
    clerk: Client, start: Start, mark: str
) -> None:
    run = parked_run(start)
    before = standing(run)
    assert clerk.post(question_of(run), {**WORD, "mark": mark}).status_code == 409
    assert standing(run) == before


def keep_in_flight(run: AgentRun) -> None:
    run.operations.update(in_flight_until=Now() + timedelta(minutes=1))


def hold(run: AgentRun) -> None:
    AgentRun.objects.filter(pk=run.pk).update(
        lease_owner="worker 7", lease_expires_at=Now() + timedelta(minutes=1)
    )


@pytest.mark.parametrize(
    ("happens", "words"), [(keep_in_flight, "on its way until"), (hold, "try again in a moment")]
)
def test_a_conflict_is_said_and_what_was_typed_is_kept(
    clerk: Client, start: Start, happens: Callable[[AgentRun], None], words: str
) -> None:
    run = parked_run(start)
    happens(run)
    answer = send(clerk, run, outcome="not_committed")
    shown = answer.content.decode()
    assert answer.status_code == 409
    assert words in shown
    assert f"{WORD['evidence']}</textarea>" in shown
    assert run.operations.get().status == "UNKNOWN"


# -- For everybody -----------------------------------------------------------------------------


def test_the_page_offers_every_outcome_that_the_command_knows() -> None:
    assert {choice.value for choice in CHOICES} == set(get_args(Outcome))


def test_every_field_has_a_label_and_the_choices_a_legend(clerk: Client, start: Start) -> None:
    page = opened(clerk, parked_run(start))
    form = page[page.index('class="ao-answer"') :]
    form = form[: form.index("</form>")]
    for field in re.findall(r'<(?:textarea|input type="text")[^>]* id="(\w+)"', form):
        assert f'<label for="{field}">' in form
    assert len(re.findall(r'<label class="ao-choice">\s*<input type="radio"', form)) == 3
    assert "<legend>What became of it?</legend>" in form
    assert "checked" not in form
    described = re.findall(r'aria-describedby="([^"]+)"', form)
    for name in " ".join(described).split():
        assert f'id="{name}"' in page
    assert not re.findall(r'(?:src|href|action)="(?:https?:)?//[^"]*"', page)


def rows_of(page: str) -> list[dict[str, str]]:
    """Every table row of a page as its labelled cells."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", page, re.DOTALL)
    cell = re.compile(r'<td data-label="([^"]*)"><div class="ao-cell">(.*?)</div></td>', re.DOTALL)
    return [dict(cell.findall(row)) for row in rows]


def row_of(page: str, label: str, value: str) -> dict[str, str]:
    (found,) = [row for row in rows_of(page) if row.get(label) == value]
    return found
