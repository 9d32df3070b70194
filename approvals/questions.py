"""The one door through which people answer: every API view, page and command calls it.

Guarantees: a question is answered once, by compare-and-set under the lock of the run and then
of the question; the answer with its author, the notice and the run's wake-up are one
transaction, so of any number of people at once one answers and the others get a conflict that
names who did. Whether time is left is judged by the database's clock. What does not fit the
schema of the question is refused field by field, and nothing is written. The same answer sent
again under its event id is heard as what it is.

Does not move the run: the next lease holder reads what was answered.
"""

from dataclasses import dataclass
from typing import Any, Final, assert_never
from uuid import UUID

from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now

from approvals.answerers import find_answerer, require_may_answer
from approvals.eligibility import Person
from approvals.errors import (
    AlreadyAnswered,
    QuestionCancelled,
    QuestionExpired,
    UnfitAnswer,
    UnknownQuestion,
)
from approvals.models import EVENT_ID
from runs.access import QUESTIONS_ANSWER, Actor
from runs.answers import find_problems
from runs.errors import InvalidInput
from runs.models import NAME, AgentRun, Notice, Question
from runs.wake import make_due
from tools.canonical import check_json, digest
from tools.errors import InvalidPayload
from tools.redaction import bound_text

SHOWN: Final = 80
Status = Question.Status


@dataclass(frozen=True)
class Answered:
    """The question as it stands then. `replayed`: this very answer had been heard before."""

    question: Question
    replayed: bool = False


def answer_question(
    *, actor: Actor, question_id: str | UUID, answer: Any, event_id: str | None = None
) -> Answered:
    """Answer as the person behind `actor`; the run goes on with it.

    `answer` is any JSON value that fits the question's schema. Raises InvalidInput,
    UnknownQuestion, NotPermitted, NotThisPerson, UnfitAnswer or QuestionEnded (each in its
    kinds); none leaves a trace.
    """
    _check(answer, event_id)
    with transaction.atomic():
        question = _lock(question_id)
        actor.require(QUESTIONS_ANSWER)
        person = find_answerer(actor)
        require_may_answer(person, question)
        if _is_replay(question, person, answer, event_id):
            return Answered(question, replayed=True)
        _require_open(question)
        if problems := find_problems(answer, question.schema):
            raise UnfitAnswer(problems)
        _write(question, person, answer, event_id)
    return Answered(question)


def _check(answer: Any, event_id: str | None) -> None:
    try:
        check_json(answer, field="answer")
        check_json(event_id, field="event_id")
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
    if event_id is not None and not 0 < len(event_id) <= EVENT_ID:
        fix = f"Use 1 to {EVENT_ID}, or leave it out."
        raise InvalidInput(field="event_id", value=f"{len(event_id)} characters", fix=fix)


def _lock(question_id: str | UUID) -> Question:
    """The question, locked after its run: what time it is, is read after every wait."""
    try:
        found = Question.objects.only("id", "run_id").get(id=UUID(str(question_id)))
    except (ValueError, Question.DoesNotExist) as error:
        raise UnknownQuestion(question_id=bound_text(str(question_id), SHOWN)) from error
    # What a run's worker writes waits for this lock, and its child rows do not.
    run = AgentRun.objects.select_for_update(no_key=True).only("id").get(id=found.run_id)
    question = (
        Question.objects.select_for_update(no_key=True)
        .annotate(ran_out=ExpressionWrapper(Q(answer_by__lte=Now()), output_field=BooleanField()))
        .get(id=found.id)
    )
    question.run = run
    return question


def _is_replay(question: Question, person: Person, answer: Any, event_id: str | None) -> bool:
    """Whether this person has said this very thing, under this very event id."""
    return (
        question.status == Status.ANSWERED
        and event_id is not None
        and question.event_id == event_id
        and question.answered_by_user_id == person.user_id
        and digest(question.answer) == digest(answer)
    )


def _require_open(question: Question) -> None:
    match Status(question.status):
        case Status.OPEN:
            if question.ran_out:  # type: ignore[attr-defined]  # annotated by `_lock`
                raise QuestionExpired(question_id=str(question.id), answer_by=question.answer_by)
        case Status.ANSWERED:
            assert question.ended_at is not None, "a constraint says so"
            raise AlreadyAnswered(
                question_id=str(question.id),
                answered_by=question.answered_by,
                answered_at=question.ended_at,
            )
        case Status.EXPIRED:
            raise QuestionExpired(question_id=str(question.id), answer_by=question.answer_by)
        case Status.CANCELLED:
            raise QuestionCancelled(question_id=str(question.id))
        case _ as never:
            assert_never(never)


def _write(question: Question, person: Person, answer: Any, event_id: str | None) -> None:
    in_time = Q(answer_by=None) | Q(answer_by__gt=Now())
    moved = Question.objects.filter(in_time, id=question.id, status=Status.OPEN).update(
        status=Status.ANSWERED,
        answer=answer,
        answered_by=bound_text(person.name, NAME),
        answered_by_user_id=person.user_id,
        ended_at=Now(),
        event_id=event_id or "",
    )
    if not moved:
        # Its time ended while the answer was checked; nobody else can have written it.
        raise QuestionExpired(question_id=str(question.id), answer_by=question.answer_by)
    Notice.objects.create(
        event_id=f"{Notice.Kind.QUESTION_ANSWERED}:{question.id}",
        kind=Notice.Kind.QUESTION_ANSWERED,
        run_id=question.run_id,
        question=question,
        status=Status.ANSWERED,
    )
    make_due(question.run_id)
    question.refresh_from_db()
