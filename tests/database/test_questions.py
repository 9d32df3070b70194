"""Answering: once, by those who are asked, with what fits, and the run goes on."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from approvals import errors
from approvals.question_inbox import find_questions
from approvals.questions import answer_question
from runs.access import QUESTIONS_ANSWER, SCOPES, Actor
from runs.errors import InvalidInput, NotPermitted
from runs.models import AgentRun, Notice, Question
from tests.database.asking import (
    ANSWER,
    Start,
    acting,
    answerer,
    asked,
    end,
    let_run_out,
    say,
    written,
)
from tests.database.kit import another_connection, ask
from tests.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_answer_is_a_fact_with_its_author_and_the_run_is_due(start: Start) -> None:
    question, robin = asked(start), answerer("robin")
    heard = say(question, robin, event_id="click-1")
    question.refresh_from_db()
    assert (heard.question, heard.replayed) == (question, False)
    assert (question.status, question.answer) == ("answered", ANSWER)
    assert (question.answered_by, question.answered_by_user) == ("robin", robin)
    assert (question.event_id, question.ended_at is not None) == ("click-1", True)
    due = AgentRun.objects.get(id=question.run_id, wake_at__lte=Now(), sweep_at__lte=Now())
    # It is moved by the next lease holder alone.
    assert due.state == "WAITING"
    told = Notice.objects.get(kind="question.answered")
    assert (told.event_id, told.question, told.status) == (
        f"question.answered:{question.id}",
        question,
        "answered",
    )


def test_of_two_people_at_once_one_answers_and_the_other_learns_who(start: Start) -> None:
    question, told = asked(start), []

    def answer(user: User) -> None:
        try:
            told.append(say(question, user).question.answered_by)
        except errors.AlreadyAnswered as error:
            told.append(f"too late: {error.answered_by}")
        finally:
            connection.close()

    people = [answerer("ada"), answerer("bob")]
    # Both stand at the row of the run, which somebody else holds, until it is given free.
    with another_connection(autocommit=False) as held:
        held.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR UPDATE", [question.run_id])
        threads = [threading.Thread(target=answer, args=[user]) for user in people]
        for thread in threads:
            thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: ask(waiting) == 2, what="both wait for the run")
        held.rollback()
    for thread in threads:
        thread.join()
    question.refresh_from_db()
    winner = question.answered_by
    assert sorted(told) == sorted([winner, f"too late: {winner}"])
    assert Notice.objects.filter(kind="question.answered").count() == 1


def test_the_same_answer_under_its_event_id_is_heard_as_what_it_is(start: Start) -> None:
    question, robin = asked(start), answerer("robin")
    say(question, robin, event_id="click-1")
    before = written(question)
    again = say(question, robin, event_id="click-1")
    assert (again.replayed, again.question.answer) == (True, ANSWER)
    assert written(question) == before


@pytest.mark.parametrize(
    ("answer", "event_id", "who"),
    [
        (ANSWER, None, "robin"),
        (ANSWER, "click-2", "robin"),
        ({"parcel": "p-18"}, "click-1", "robin"),
        ({**ANSWER, "sure": 1}, "click-1", "robin"),
        (ANSWER, "click-1", "kim"),
    ],
    ids=["no event", "another event", "another answer", "one for true", "another person"],
)
def test_any_other_second_answer_is_a_conflict_that_names_who_answered(
    start: Start, answer: Any, event_id: str | None, who: str
) -> None:
    question = asked(start)
    people = {"robin": answerer("robin"), "kim": answerer("kim")}
    say(question, people["robin"], event_id="click-1")
    before = written(question)
    with pytest.raises(errors.AlreadyAnswered, match=r"^robin answered question .+ UTC\. "):
        say(question, people[who], answer, event_id=event_id)
    assert written(question) == before


@pytest.mark.parametrize(
    ("status", "condition"),
    [("expired", errors.QuestionExpired), ("cancelled", errors.QuestionCancelled)],
)
def test_what_has_ended_takes_no_answer(
    start: Start, status: str, condition: type[Exception]
) -> None:
    question = asked(start)
    end(question, status)
    before = written(question)
    with pytest.raises(condition):
        say(question, answerer())
    assert written(question) == before


def test_time_is_told_by_the_clock_of_the_database_where_no_worker_came_by(start: Start) -> None:
    question = asked(start, answer_by=Now() + timedelta(hours=1))
    let_run_out(question)
    before = written(question)
    with pytest.raises(errors.QuestionExpired, match="ran out at"):
        say(question, answerer())
    assert written(question) == before
    assert question.status == "open"
    assert not find_questions(mine=answerer()).exists()


def test_a_question_without_an_end_can_be_answered_at_any_time(start: Start) -> None:
    assert say(asked(start, answer_by=None), answerer()).question.status == "answered"


# -- Who ---------------------------------------------------------------------------

FINANCE, BOARD = ("finance",), ("board",)


@pytest.mark.parametrize(
    ("member_of", "groups", "escalated", "may"),
    [
        ((), (), False, True),
        (FINANCE, (), False, True),
        (FINANCE, FINANCE, False, True),
        ((), FINANCE, False, False),
        (("sales",), FINANCE, False, False),
        (BOARD, FINANCE, False, False),
        (BOARD, FINANCE, True, True),
        (FINANCE, FINANCE, True, True),
        (("sales",), FINANCE, True, False),
        (FINANCE, ("legal", "finance"), False, True),
        ((), (), True, True),
    ],
)
def test_who_may_answer(
    start: Start, member_of: Any, groups: Any, escalated: bool, may: bool
) -> None:
    since = Now() if escalated else None
    question = asked(start, groups=list(groups), escalate_to=["board"], escalated_at=since)
    user = answerer("robin", *member_of)
    assert find_questions(mine=user).exists() is may
    before = written(question)
    if may:
        assert say(question, user).question.answered_by == "robin"
        return
    with pytest.raises(errors.NotAsked, match="robin is in none of the groups that are asked"):
        say(question, user)
    assert written(question) == before


def test_whoever_started_the_run_may_answer(start: Start) -> None:
    question, robin = asked(start), answerer("robin")
    AgentRun.objects.filter(id=question.run_id).update(created_by="robin", created_by_user=robin)
    assert say(question, robin).question.answered_by == "robin"


def test_who_cannot_answer_anything(start: Start) -> None:
    question = asked(start)
    before = written(question)
    with pytest.raises(errors.NobodyThere):
        say(question, None)
    with pytest.raises(errors.NobodyThere):
        say(question, User(pk=10**9, username="gone"))
    with pytest.raises(errors.NoPermission, match=r"lacks the permission runs\.answer_question"):
        say(question, answerer("ada", may_answer=False))
    with pytest.raises(errors.Inactive):
        say(question, answerer("bob", is_active=False))
    robin = answerer("robin")
    without = Actor("robin", frozenset(SCOPES) - {QUESTIONS_ANSWER}, user_id=robin.pk)
    with pytest.raises(NotPermitted):
        say(question, robin, actor=without)
    assert written(question) == before


@pytest.mark.parametrize("key", ["no-such", "01a1b2c3-0000-7000-8000-000000000001", "\0"])
def test_a_question_that_does_not_exist_is_named(start: Start, key: str) -> None:
    question = asked(start)
    question.id = key
    with pytest.raises(errors.UnknownQuestion, match="list_questions show them"):
        say(question, answerer())


# -- What --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "problems"),
    [
        ({}, ["answer.parcel: It is required."]),
        ("p-17", ["answer (given: 'p-17'): Write an object."]),
        ({"parcel": "p"}, ["answer.parcel (given: 'p'): Use at least 2 characters."]),
        ({"parcel": 17}, ["answer.parcel (given: 17): Write a text."]),
        ({"parcel": "p-17", "sure": 1}, ["answer.sure (given: 1): Write true or false."]),
        (
            {"parcel": "p-17", "shure": True},
            ["answer.shure (given: True): Did you mean sure? Possible are: sure, parcel."],
        ),
        (
            {"parcel": "", "sure": "yes"},
            [
                "answer.parcel (given: ''): Use at least 2 characters.",
                "answer.sure (given: 'yes'): Write true or false.",
            ],
        ),
    ],
)
def test_what_does_not_fit_is_refused_field_by_field(
    start: Start, answer: Any, problems: list[str]
) -> None:
    question, robin = asked(start), answerer()
    before = written(question)
    with pytest.raises(errors.UnfitAnswer) as refused:
        say(question, robin, answer)
    assert [str(problem) for problem in refused.value.problems] == problems
    assert written(question) == before
    assert say(question, robin).question.status == "answered"


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("answer", "event_id", "field"),
    [
        ({"parcel": "a\0b"}, None, "answer.parcel"),
        ({"parcel": "\ud800"}, None, "answer.parcel"),
        ({"parcel": float("nan")}, None, "answer.parcel"),
        ({"parcel": float("inf")}, None, "answer.parcel"),
        ({"parcel": 2**60}, None, "answer.parcel"),
        ({"parcel": "x" * 300_000}, None, "answer"),
        (_nested(40), None, "answer" + "[0]" * 32),
        (ANSWER, "", "event_id"),
        (ANSWER, "e" * 256, "event_id"),
        (ANSWER, "a\0b", "event_id"),
    ],
    ids=[
        "NUL",
        "surrogate",
        "NaN",
        "infinity",
        "huge",
        "large",
        "deep",
        "no id",
        "long id",
        "bad id",
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_place(
    start: Start, answer: Any, event_id: str | None, field: str
) -> None:
    question = asked(start, schema={})
    before = written(question)
    with pytest.raises(InvalidInput) as refused:
        say(question, answerer(), answer, event_id=event_id)
    assert refused.value.field == field
    assert written(question) == before


def test_null_is_an_answer_where_the_schema_takes_it(start: Start) -> None:
    question = asked(start, schema={"type": ["string", "null"]})
    robin = answerer()
    answer_question(actor=acting(robin), question_id=question.id, answer=None)
    question.refresh_from_db()
    assert (question.status, question.answer) == ("answered", None)


# -- What the database itself refuses ----------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "open", "ended_at": None, "answered_by": "", "answer": None},
        {"answer": {"parcel": "p-99"}},
        {"answered_by": "somebody"},
        {"ended_at": Now()},
        {"event_id": "another"},
        {"text": "Is it so?"},
        {"schema": {}},
        {"groups": ["others"]},
        {"answer_by": Now()},
    ],
    ids=lambda columns: "-".join(columns),
)
def test_what_was_asked_and_answered_never_changes(start: Start, columns: Any) -> None:
    question = asked(start)
    say(question, answerer())
    with pytest.raises(IntegrityError, match="cannot change"), transaction.atomic():
        Question.objects.filter(id=question.id).update(**columns)


def test_the_author_of_an_answer_is_known_by_name_when_the_user_is_gone(start: Start) -> None:
    question, robin = asked(start), answerer("robin")
    say(question, robin)
    robin.delete()
    question.refresh_from_db()
    assert (question.answered_by, question.answered_by_user_id) == ("robin", None)
