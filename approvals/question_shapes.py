"""The JSON that callers read and send about questions, for the API and `--json` alike.

Guarantees: the published schema is made from these classes; a body with a field that it does
not name is refused. A page costs no query per row. In what people answered, the values that the
tools of the agent declare sensitive are hidden, as in everything else of a run; in the question
itself, those of them that the run was started with.

Does not check an answer: `questions.py` does.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from approvals.models import EVENT_ID
from runs.models import Question as QuestionRow
from runs.sensitive import names_of_runs
from runs.shapes import Shape
from tools.redaction import redact, scrub

# As the rows have them; a test compares.
QuestionStatus = Literal["open", "answered", "expired", "cancelled"]


class Question(Shape):
    """One typed question to people. `answer` is null until `status` says that it is answered."""

    id: UUID
    status: QuestionStatus
    run: UUID
    agent: str
    step_number: int
    question: str = Field(description="in the words of the agent")
    answer_schema: Any = Field(
        serialization_alias="schema", description="JSON Schema 2020-12 that an answer has to fit"
    )
    groups: list[str] = Field(description="whose members may answer; empty: whoever may answer")
    escalate_to: list[str] = Field(description="groups that may answer too, once escalated")
    asked_at: datetime
    answer_by: datetime | None
    escalated_at: datetime | None
    answer: Any
    answered_by: str | None
    ended_at: datetime | None = Field(description="when it was answered, expired or cancelled")


class QuestionPage(Shape):
    """Questions, newest first."""

    next: str | None
    previous: str | None
    results: list[Question]


class GiveAnswer(BaseModel):
    """The body of `POST questions/{id}/answer/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    answer: Any = Field(description="any JSON value that fits the question's schema")
    event_id: str | None = Field(
        default=None,
        max_length=EVENT_ID,
        description="names the answer: heard once however often it is sent",
    )


def present_questions(questions: Sequence[QuestionRow]) -> list[Question]:
    """Questions as callers read them; take them from `question_inbox.py`."""
    hidden = names_of_runs({one.run_id: one.run.agent for one in questions})
    return [_present(one, hidden[one.run_id]) for one in questions]


def present_question(question: QuestionRow) -> Question:
    return present_questions([question])[0]


def _present(question: QuestionRow, hidden: frozenset[str]) -> Question:
    return Question(
        id=question.id,
        status=question.status,  # type: ignore[arg-type]  # the row's choices are the shape's
        run=question.run_id,
        agent=question.run.agent,
        step_number=question.step_number,
        question=scrub(question.text, {"input": question.run.input}, hidden),
        answer_schema=question.schema,
        groups=question.groups,
        escalate_to=question.escalate_to,
        asked_at=question.asked_at,
        answer_by=question.answer_by,
        escalated_at=question.escalated_at,
        answer=redact(question.answer, hidden),
        answered_by=question.answered_by or None,
        ended_at=question.ended_at,
    )
