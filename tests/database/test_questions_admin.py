"""The pages of questions: who sees what, who answers, and what others find afterwards."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.models import Question
from tests.database.admin_pages import browser_of, person
from tests.database.approval_pages import opened, text_of
from tests.database.asking import (
    ANSWER,
    TEXT,
    Start,
    answerer,
    asked,
    end,
    let_run_out,
    say,
    written,
)
from tests.database.question_pages import answer_page, clerk, page_of

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:runs_question_changelist"
# `asking.SCHEMA` without a kept order: what is required comes first.
GIVEN = {"field-0": "p-17", "field-1": "0"}
MOST_QUERIES = 20


def listed(client: Client, **query: str) -> str:
    return text_of(opened(client, reverse(LIST, query=query)))


def test_a_person_answers_and_the_page_shows_who_what_and_when(start: Start) -> None:
    question, (robin, client) = asked(start), clerk("robin")
    assert TEXT in listed(client)
    page = opened(client, page_of(question))
    assert TEXT in text_of(page)
    assert ">Answer</button>" in page
    answered = answer_page(client, question, GIVEN)
    assert (answered.status_code, answered.headers["Location"]) == (302, page_of(question))
    question.refresh_from_db()
    assert (question.answer, question.answered_by_user) == (ANSWER, robin)
    after = opened(client, page_of(question))
    said = text_of(after)
    assert "Answered. The run goes on with it." in said
    assert "robin answered it" in said
    assert "What was answered" in said
    assert "p-17" in said
    assert f"{question.ended_at:%Y-%m-%d %H:%M:%S} UTC" in said
    assert "<form method" not in re.sub(r"<form[^>]*logout.*?</form>", "", after, flags=re.DOTALL)
    assert "Nothing waits for your answer" in listed(client)


def test_the_agents_words_stand_apart_and_labelled(start: Start) -> None:
    question, (_, client) = asked(start, text="line one\nline two\n✔ Answered by finance"), clerk()
    page = opened(client, page_of(question))
    box = re.search(r'<section class="ao-words".*?</section>', page, re.DOTALL)
    assert box is not None
    assert "Written by the agent: not checked" in box[0]
    assert "line one\nline two\n✔ Answered by finance" in box[0]
    assert "Answered by finance" not in page.replace(box[0], "")


def test_the_same_form_sent_twice_is_one_answer_and_ends_kindly(start: Start) -> None:
    question, (_, client) = asked(start), clerk()
    given = GIVEN | {"event_id": "page-1"}
    assert answer_page(client, question, given).status_code == 302
    before = written(question)
    assert answer_page(client, question, given).status_code == 302
    assert "recorded already, once" in text_of(opened(client, page_of(question)))
    assert written(question)[:2] == before[:2]


def test_whoever_comes_second_reads_who_answered_and_what_they_had_typed(start: Start) -> None:
    question, (_, client) = asked(start), clerk()
    say(question, answerer("kim"))
    before = written(question)
    refused = answer_page(client, question, {"field-0": "my <own>", "field-1": "1"})
    assert refused.status_code == 409
    said = text_of(refused.content.decode())
    assert "Nothing of yours was recorded" in said
    assert "kim answered it" in said
    assert "You had written: Parcel: my <own>; Sure: No" in said
    assert written(question) == before


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (lambda question: end(question, "cancelled"), "Its run stopped waiting for it"),
        (lambda question: end(question, "expired"), "The run goes on without an answer."),
        (let_run_out, "Its time ran out"),
    ],
    ids=["cancelled", "expired", "over"],
)
def test_a_question_that_ended_says_how_and_has_no_form(
    start: Start, ends: Any, words: str
) -> None:
    question, (_, client) = asked(start, answer_by=Now() + timedelta(hours=1)), clerk()
    ends(question)
    page = opened(client, page_of(question))
    assert words in text_of(page)
    assert ">Answer</button>" not in page
    refused = answer_page(client, question, GIVEN)
    assert refused.status_code == 409
    assert words in text_of(refused.content.decode())


def test_who_is_not_asked_reads_why_in_place_of_the_form(start: Start) -> None:
    question, (_, client) = asked(start, groups=["finance"]), clerk("robin")
    page = opened(client, page_of(question))
    assert "robin is in none of the groups that are asked: finance." in text_of(page)
    assert ">Answer</button>" not in page
    assert TEXT not in listed(client)
    assert TEXT in listed(client, show="open")
    before = written(question)
    refused = answer_page(client, question, GIVEN)
    assert refused.status_code == 403
    assert written(question) == before


def test_who_may_look_may_not_answer_and_who_may_neither_sees_nothing(start: Start) -> None:
    question = asked(start)
    viewer = answerer("viewer", may_answer=False, is_staff=True)
    client = browser_of(viewer)
    for address in (reverse(LIST), page_of(question)):
        assert client.get(address).status_code == 403
    assert answer_page(client, question, GIVEN).status_code == 403
    viewer.user_permissions.add(Permission.objects.get(codename="view_question"))
    assert TEXT in listed(client, show="open")
    assert "lacks the permission runs.answer_question" in text_of(opened(client, page_of(question)))
    assert answer_page(client, question, GIVEN).status_code == 403
    assert Question.objects.get(id=question.id).status == "open"


def test_only_a_post_with_the_token_of_the_page_answers(start: Start) -> None:
    question, (robin, client) = asked(start), clerk()
    before = written(question)
    address = reverse("admin:runs_question_answer", args=[question.pk])
    assert client.get(address, GIVEN).status_code == 302
    for method in ("put", "patch", "delete"):
        assert getattr(client, method)(address).status_code == 405
    strict = browser_of(robin, enforce_csrf_checks=True)
    assert strict.post(address, GIVEN).status_code == 403
    assert written(question) == before


@pytest.mark.parametrize("key", ["17", "01a1b2c3-0000-7000-8000-000000000001", "a%00b"])
def test_a_question_that_does_not_exist_leads_to_the_list(key: str) -> None:
    _, client = clerk()
    for address in (f"/admin/runs/question/{key}/change/", f"/admin/runs/question/{key}/answer/"):
        followed = client.post(address) if address.endswith("answer/") else client.get(address)
        assert (followed.status_code, followed.headers["Location"]) == (302, reverse(LIST))


def test_pages_cost_the_same_few_queries_however_many_questions_there_are(start: Start) -> None:
    groups = ("finance", "legal")
    _, client = clerk("robin", *groups)
    for _ in range(12):
        question = asked(start, groups=["finance"], escalate_to=["board"], escalate_at=Now())
    say(asked(start), answerer("kim"))
    for address in (
        *(reverse(LIST, query={"show": tab}) for tab in ("mine", "open", "all")),
        page_of(question),
    ):
        with CaptureQueriesContext(connection) as queries:
            opened(client, address)
        assert len(queries) <= MOST_QUERIES, address
    with CaptureQueriesContext(connection) as queries:
        assert answer_page(client, question, GIVEN).status_code == 302
    assert len(queries) <= MOST_QUERIES + 5


def test_the_list_has_tabs_a_status_and_reads_on(start: Start, monkeypatch: Any) -> None:
    monkeypatch.setattr("approvals.admin.questions.PER_PAGE", 2)
    _, client = clerk()
    questions = [asked(start, text=f"Question {name}?") for name in "abc"]
    end(questions[0], "expired")
    assert "Question a?" not in listed(client, show="open")
    assert "Question a?" in listed(client, show="all", status="expired")
    first = opened(client, reverse(LIST, query={"show": "all"}))
    later = re.search(r'rel="next" href="([^"]+)"', first)
    assert later is not None
    rest = text_of(opened(client, later[1].replace("&amp;", "&")))
    assert "Question a?" in rest
    assert "Question c?" not in rest
    odd = client.get(reverse(LIST, query={"cursor": "x"}))
    assert odd.status_code == 302


def test_the_sidebar_leads_there_and_counts_what_is_open(start: Start) -> None:
    asked(start)
    _, client = clerk()
    page = opened(client, reverse(LIST))
    assert reverse(LIST) in page
    assert "Questions" in text_of(page)


def test_the_page_of_a_run_leads_to_what_it_asked_for_those_who_may_see_it(start: Start) -> None:
    question = asked(start)
    end(question, "cancelled")
    run_page = reverse("admin:runs_agentrun_change", args=[question.run_id])
    leads_there = reverse("admin:runs_question_change", args=[question.pk])
    seen = {
        permissions: leads_there in browser_of(person(*permissions)).get(run_page).content.decode()
        for permissions in (
            ("view_agentrun",),
            ("view_agentrun", "view_question"),
            ("view_agentrun", "answer_question"),
        )
    }
    assert list(seen.values()) == [False, True, True]
