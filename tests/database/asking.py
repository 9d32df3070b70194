"""What the tests of questions share: people, and runs that wait for an answer.

The rows are written here as the engine writes them, so that each test has exactly the question it
needs.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from approvals.questions import Answered, answer_question
from runs import Context, Decision, Finish
from runs.access import Actor, operator
from runs.models import AgentRun, Notice, Question, Step, Transition
from tests.database.kit import change, past_triggers

Start = Callable[..., AgentRun]
TEXT = "Which parcel did the customer mean?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "parcel": {"type": "string", "minLength": 2},
        "sure": {"type": "boolean"},
    },
    "required": ["parcel"],
}
ANSWER = {"parcel": "p-17", "sure": True}
_WAY_TO_WAITING = (
    ("READY", "OPEN_STEP", "DECIDING"),
    ("DECIDING", "RECORD_DECISION", "DECISION_RECORDED"),
    ("DECISION_RECORDED", "WAIT", "WAITING"),
)

_numbers = count(1)


def answerer(
    name: str | None = None, *groups: str, may_answer: bool = True, **columns: Any
) -> User:
    """A new user who may answer, in these groups."""
    user = User.objects.create(username=name or f"answerer{next(_numbers)}", **columns)
    if may_answer:
        user.user_permissions.add(Permission.objects.get(codename="answer_question"))
    for group in groups:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def asked(start: Start, *, run: AgentRun | None = None, **columns: Any) -> Question:
    """A question of a run that waits for its answer."""
    run = run or start(decider=_decide)
    given: dict[str, Any] = {"text": TEXT, "schema": SCHEMA}
    with transaction.atomic():
        step = Step.objects.create(run=run, number=run.step_number + 1)
        AgentRun.objects.filter(id=run.id).update(
            state="WAITING",
            version=F("version") + 1,
            step_number=step.number,
            wake_at=None,
            sweep_at=None,
        )
        Transition.objects.bulk_create(
            Transition(
                run=run,
                version=run.version + 1,
                event=event,
                from_state=before,
                to_state=after,
                actor="worker 1",
                fence_token=1,
                step_number=step.number,
                attempt=1,
            )
            for before, event, after in _WAY_TO_WAITING
        )
        question = Question.objects.create(
            id=uuid7(), run=run, step=step, step_number=step.number, **(given | columns)
        )
        Notice.objects.create(
            event_id=f"question.asked:{question.id}",
            kind=Notice.Kind.QUESTION_ASKED,
            run=run,
            question=question,
            status=question.status,
        )
    run.refresh_from_db()
    question.refresh_from_db()
    return question


def _decide(context: Context) -> Decision:
    return Finish(None)


def acting(user: User | None) -> Actor:
    """The actor of somebody who is signed in, with every scope."""
    name = user.get_username() if user is not None else "nobody"
    return Actor(name=name, scopes=operator().scopes, user_id=user.pk if user else None)


def say(question: Question, user: User | None, answer: Any = None, **given: Any) -> Answered:
    """One answer by Python."""
    return answer_question(
        actor=given.pop("actor", None) or acting(user),
        question_id=question.id,
        answer=ANSWER if answer is None else answer,
        **given,
    )


def let_run_out(question: Question) -> None:
    """Let the end of a question come."""
    with past_triggers():
        change(
            "UPDATE runs_question SET answer_by = statement_timestamp() - interval '1 s'"
            " WHERE id = %s",
            question.id,
        )
    question.refresh_from_db()


def end(question: Question, status: str) -> None:
    """End it as the engine does."""
    Question.objects.filter(id=question.id, status="open").update(status=status, ended_at=Now())
    question.refresh_from_db()


def written(question: Question) -> list[Any]:
    """Everything that an answer may write."""
    return [
        list(Question.objects.filter(id=question.id).values()),
        list(Notice.objects.filter(run=question.run_id).order_by("id").values()),
        AgentRun.objects.values("state", "version", "wake_at", "sweep_at").get(id=question.run_id),
    ]
