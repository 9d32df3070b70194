"""Questions whose dates have come: recalled and escalated, each once, and who is told."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agentops.notifications import handing_on, recipients
from agentops.notifications.wording import link, payload, read_told, subject, text
from approvals import question_sweeps, sweeps
from approvals.sweeps import Swept
from runs.models import AgentRun, Notice, Question, Sweep
from tests.database.asking import Start, answerer, asked, end, let_run_out, say
from tests.database.kit import another_connection
from tests.database.notifying import Kind, scans, turn_on_mail

pytestmark = pytest.mark.django_db(transaction=True)

BASE = "https://agents.example.com"


def notices(question: Question) -> list[tuple[str, str, str]]:
    found = Notice.objects.filter(question=question).exclude(kind=Kind.QUESTION_ASKED)
    return [(one.kind, one.event_id, one.status) for one in found.order_by("id")]


def test_a_reminder_is_told_of_once(start: Start) -> None:
    question = asked(start, remind_at=Now())
    assert sweeps.run_once() == Swept(questions_reminded=1)
    assert sweeps.run_once() == Swept()
    question.refresh_from_db()
    assert (question.status, question.remind_at) == ("open", None)
    assert notices(question) == [
        ("question.reminder", f"question.reminder:{question.id}", "open"),
    ]


def test_an_escalation_opens_the_door_for_the_second_group(start: Start) -> None:
    question = asked(start, groups=["finance"], escalate_to=["board"], escalate_at=Now())
    assert sweeps.run_once() == Swept(questions_escalated=1)
    assert sweeps.run_once() == Swept()
    question.refresh_from_db()
    assert question.escalated_at is not None
    assert question.escalate_at is None
    assert notices(question) == [
        ("question.escalated", f"question.escalated:{question.id}", "open"),
    ]
    assert say(question, answerer("kim", "board")).question.answered_by == "kim"


def test_nothing_is_due_before_its_date(start: Start) -> None:
    soon = Now() + timedelta(minutes=1)
    question = asked(start, remind_at=soon, escalate_at=soon)
    assert sweeps.run_once() == Swept()
    assert notices(question) == []


@pytest.mark.parametrize("status", ["answered", "expired", "cancelled", "over"])
def test_what_is_no_longer_open_is_left_alone(start: Start, status: str) -> None:
    question = asked(start, remind_at=Now(), escalate_at=Now(), answer_by=Now() + timedelta(days=1))
    if status == "answered":
        say(question, answerer())
    elif status == "over":
        let_run_out(question)
    else:
        end(question, status)
    assert sweeps.run_once() == Swept()
    question.refresh_from_db()
    # Its time is ended by the run that waits for it, and by nobody else.
    assert question.status == ("open" if status == "over" else status)


def test_a_run_that_somebody_holds_is_left_to_the_next_sweep(start: Start) -> None:
    question = asked(start, remind_at=Now())
    with another_connection(autocommit=False) as held:
        held.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR UPDATE", [question.run_id])
        assert sweeps.run_once() == Swept()
        held.rollback()
    assert sweeps.run_once() == Swept(questions_reminded=1)


def test_a_sweep_takes_a_bounded_number_and_reads_no_table_from_end_to_end(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "BATCH", 2)
    for _ in range(3):
        asked(start, remind_at=Now(), escalate_at=Now())
    with CaptureQueriesContext(connection) as queries:
        assert sweeps.run_once() == Swept(questions_reminded=2, questions_escalated=2)
    assert scans(queries) == []
    assert sweeps.run_once() == Swept(questions_reminded=1, questions_escalated=1)
    assert Sweep.objects.get(name="approvals").found == 2


def test_both_parts_of_a_sweep_are_inside_its_transaction(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(start, remind_at=Now(), escalate_at=Now())

    def die(batch: int) -> int:
        raise RuntimeError("here it ends")

    monkeypatch.setattr(question_sweeps, "escalate", die)
    with pytest.raises(RuntimeError):
        sweeps.run_once()
    question.refresh_from_db()
    assert question.remind_at is not None
    assert notices(question) == []


# -- Who is told -------------------------------------------------------------------


def told_about(notice: Notice) -> set[str]:
    return set(recipients.find_addresses([notice])[notice.pk])


def notice_of(question: Question, kind: Notice.Kind) -> Notice:
    found, _ = Notice.objects.get_or_create(
        event_id=f"{kind.value}:{question.id}",
        defaults={"kind": kind, "run": question.run, "question": question, "status": "open"},
    )
    return Notice.objects.select_related("run", "question", "approval").get(id=found.id)


def people() -> dict[str, User]:
    named: dict[str, tuple[str, ...]] = {"ada": ("finance",), "bob": ("board",), "cleo": ()}
    found = {
        name: answerer(name, *groups, email=f"{name}@example.com") for name, groups in named.items()
    }
    answerer("eve", may_answer=False, email="eve@example.com")
    answerer("gone", "finance", email="gone@example.com", is_active=False)
    return found


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        (Kind.QUESTION_ASKED, {}, {"ada", "bob", "cleo"}),
        (Kind.QUESTION_ASKED, {"groups": ["finance"]}, {"ada"}),
        (Kind.QUESTION_REMINDER, {"groups": ["finance"]}, {"ada"}),
        (
            Kind.QUESTION_REMINDER,
            {"groups": ["finance"], "escalate_to": ["board"], "escalated_at": Now()},
            {"ada", "bob"},
        ),
        (Kind.QUESTION_ESCALATED, {"groups": ["finance"], "escalate_to": ["board"]}, {"bob"}),
    ],
    ids=["anybody", "group", "reminder", "reminder after", "escalated"],
)
def test_those_who_are_asked_are_told(
    start: Start, kind: Notice.Kind, columns: Any, expected: set[str]
) -> None:
    people()
    question = asked(start, **columns)
    assert told_about(notice_of(question, kind)) == {f"{name}@example.com" for name in expected}


def test_of_the_answer_hears_who_started_the_run_unless_it_is_their_own(start: Start) -> None:
    known = people()
    questions = [asked(start), asked(start)]
    AgentRun.objects.filter(id__in=[one.run_id for one in questions]).update(
        created_by_user=known["ada"]
    )
    for question, name in zip(questions, ("bob", "ada"), strict=True):
        say(question, known[name])
    others, own = (notice_of(one, Kind.QUESTION_ANSWERED) for one in questions)
    assert told_about(others) == {"ada@example.com"}
    assert told_about(own) == set()


def test_a_batch_of_notices_costs_a_few_queries(start: Start, settings: Settings) -> None:
    turn_on_mail(settings)
    people()
    for number in range(6):
        asked(start, groups=["finance"] if number % 2 else [])
    with CaptureQueriesContext(connection) as queries:
        assert handing_on.run_once().notices == 6
    assert len(queries) <= 15
    assert scans(queries) == []


# -- What they are told ------------------------------------------------------------


def test_an_asking_mail_says_what_and_until_when_and_leads_to_the_page(
    start: Start, settings: Settings
) -> None:
    settings.AGENTOPS_BASE_URL = BASE
    question = asked(start, text="A <secret> question", answer_by=Now() + timedelta(days=1))
    told = read_told(notice_of(question, Kind.QUESTION_ASKED).id)
    assert told is not None
    assert subject(told) == f"Question asked: {question.run.agent} (…{str(question.id)[-8:]})"
    assert link(told) == f"{BASE}/admin/runs/question/{question.id}/change/"
    assert question.answer_by is not None
    assert f"It can be answered until {question.answer_by:%Y-%m-%d %H:%M} UTC." in text(told)
    said = payload(told).decode()
    assert f'"question_id":"{question.id}"' in said
    assert '"approval_id":null' in said
    # Nothing of what an agent wrote, and nothing of what was answered.
    assert "secret" not in text(told) + said


@pytest.mark.parametrize(
    ("kind", "headline"),
    [
        (Kind.QUESTION_REMINDER, "Question still open: "),
        (Kind.QUESTION_ESCALATED, "Question asked of you too: "),
        (Kind.QUESTION_ANSWERED, "Question answered: "),
    ],
    ids=str,
)
def test_each_kind_has_its_headline(start: Start, kind: Notice.Kind, headline: str) -> None:
    told = read_told(notice_of(asked(start), kind).id)
    assert told is not None
    assert subject(told).startswith(headline)


def test_what_is_answered_is_asked_of_nobody_any_more(start: Start) -> None:
    question = asked(start)
    before = read_told(notice_of(question, Kind.QUESTION_ASKED).id)
    say(question, answerer())
    after = read_told(notice_of(question, Kind.QUESTION_ASKED).id)
    answered = read_told(notice_of(question, Kind.QUESTION_ANSWERED).id)
    assert before is not None
    assert after is not None
    assert answered is not None
    assert (before.is_moot, after.is_moot, answered.is_moot) == (False, True, False)
