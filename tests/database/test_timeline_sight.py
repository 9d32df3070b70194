"""A timeline tells nobody what the pages of its rows would refuse to show them."""

import json
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from runs.models import AgentRun, GatewayCall, Question, ToolOperation
from tests.database.admin_pages import browser_of, person
from tests.database.asking import TEXT
from tests.database.asking import asked as asks_people
from tests.database.eventful import eventful_run, operation
from tests.database.gating import Start, held
from tests.database.timeline_pages import READS, address_of, exported, opened, part

pytestmark = pytest.mark.django_db(transaction=True)

REVIEWED = ("reviewed", "fingerprint", "quorum", "approve_by", "groups", "changed", "decided_by")


def told_to(client: Client, row: AgentRun | ToolOperation) -> tuple[str, dict[str, Any]]:
    return opened(client, address_of(row)), exported(client, row)


def kinds_in(file: dict[str, Any]) -> set[str]:
    return {entry["kind"].partition(".")[0] for entry in file["entries"]}


@pytest.fixture
def told(start: Start) -> AgentRun:
    """A run to which everything happened that takes a right of its own to see."""
    question = asks_people(start)
    Question.objects.filter(pk=question.pk).update(
        status="answered", answer={"parcel": "p-17"}, answered_by="kim", ended_at=Now()
    )
    run = question.run
    run.signals.create(name="hurry", event_id="e1", payload={}, digest="d", sent_by="ann")
    GatewayCall.objects.create(run=run, kind="finish", created_by="sdk", rationale="the words")
    run.requests.create(kind="pause", by="ann", reason="hold on")
    return run


@pytest.mark.parametrize(
    ("group", "right", "words", "name"),
    [
        ("question", "view_question", TEXT, "questions"),
        ("question", "answer_question", "p-17", "questions"),
        ("signal", "view_signal", "hurry", "signals"),
        ("gateway", "view_gatewaycall", "Its end was asked for", "calls from outside"),
        ("request", "view_controlrequest", "hold on", "requests to steer the run"),
    ],
)
def test_rows_that_one_may_not_see_are_left_out_and_said_to_be(
    told: AgentRun, group: str, right: str, words: str, name: str
) -> None:
    page, file = told_to(browser_of(person(*READS, right)), told)
    assert words in page
    assert group in kinds_in(file)
    assert name not in file["left_out"]
    page, file = told_to(browser_of(person(*READS)), told)
    assert words not in page
    assert words not in json.dumps(file)
    assert group not in kinds_in(file)
    assert name in part(page, "left-out")
    assert name in file["left_out"]
    # The rest keeps its places.
    assert file["entries"][0]["seq"] == 1
    assert "Run created" in page


@pytest.mark.parametrize("right", ["view_approval", "decide_approval"])
def test_what_reviewers_saw_takes_the_right_to_see_it(start: Start, right: str) -> None:
    run = eventful_run(start)
    for row in (run, operation(run, "wire")):
        page, file = told_to(browser_of(person(*READS, right)), row)
        assert "What the reviewer saw" in page
        assert all(f'"{name}"' in json.dumps(file) for name in REVIEWED)
        page, file = told_to(browser_of(person(*READS)), row)
        for words in ("What the reviewer saw", "Fingerprint", "Must sign", "signature request<"):
            assert words not in page
        entries = json.dumps(file["entries"])
        assert not any(f'"{name}"' in entries for name in REVIEWED)
        assert all(entry["approval_id"] is None for entry in file["entries"])
        # The journal itself tells that somebody was asked, and decided.
        assert "A signature is asked for" in page


def test_the_verdict_names_nobody_who_may_sign_to_who_may_not_know(start: Start) -> None:
    run, _ = held(start)
    page = opened(browser_of(person(*READS)), address_of(run))
    assert "A call waits for a signature" in part(page, "verdict")
    assert "waits for a signature by" not in page


def test_what_is_waited_for_is_named_to_those_who_may_see_it(start: Start) -> None:
    question = asks_people(start)
    question.run.waits.create(
        step=question.step, step_number=question.step_number, kind="question", name=question.text
    )
    file = exported(browser_of(person(*READS, "view_question")), question.run)
    assert file["run"]["waiting_for"]["name"] == TEXT
    page, file = told_to(browser_of(person(*READS)), question.run)
    assert TEXT not in page
    assert TEXT not in json.dumps(file)
    assert file["run"]["waiting_for"]["kind"] == "question"


def test_who_may_see_everything_is_told_of_nothing_left_out(told: AgentRun) -> None:
    page, file = told_to(browser_of(person(superuser=True)), told)
    assert 'id="left-out"' not in page
    assert file["left_out"] == []
    assert [one["seq"] for one in file["entries"]] == list(range(1, len(file["entries"]) + 1))
