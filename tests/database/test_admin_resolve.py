"""The page on which a person settles an unknown operation: evidence first, then the question."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import get_args

import pytest
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from runs.access import operator
from runs.admin.resolve import CHOICES
from runs.engine import advance
from runs.models import AgentRun
from runs.resolution import Outcome, resolve_operation
from tests.database.admin_pages import browser_of, person
from tests.database.resolving import (
    WORD,
    Source,
    Verdict,
    observe,
    opened,
    page_of,
    question_of,
    send,
    standing,
)
from tests.database.stories import Start, parked_run, reconciled_run

# The engine commits for real.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clerk() -> Client:
    """Somebody who may settle, and see operations."""
    return browser_of(person("resolve_operation", "view_tooloperation"))


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


def test_what_the_evidence_proves_cannot_be_denied(clerk: Client, start: Start) -> None:
    run = parked_run(start)
    observe(run, source=Source.STALE_WORKER, verdict=Verdict.COMMITTED, external_ref="re_5")
    answer = send(clerk, run, outcome="not_committed")
    assert answer.status_code == 409
    assert "proves that it happened (re_5)" in answer.content.decode()
    assert run.operations.get().status == "UNKNOWN"
    assert send(clerk, run, outcome="committed").status_code == 302


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
