"""From a decision that asks to the answer in its context, with nothing left out but the sleep."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from approvals.errors import QuestionCancelled, QuestionExpired
from runs import Ask, Context, Decision, Finish
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun, Notice, Question
from tests.database.asking import Start, answerer, say
from tests.database.kit import change, drive, past_triggers

pytestmark = pytest.mark.django_db(transaction=True)


class Parcel(BaseModel):
    zone: Literal["north", "south"] = Field(title="Which zone?")
    kilograms: float
    fragile: bool = False


ANSWER = {"zone": "south", "kilograms": 2.5}


def asking(start: Start, **options: Any) -> tuple[AgentRun, Question]:
    """A run that was given back by its worker, and waits for an answer."""

    def decide(context: Context) -> Decision:
        if context.last is None:
            return Ask("What is in the parcel?", Parcel, **options)
        seen = context.last
        return Finish([seen.kind, seen.result, seen.author, seen.timed_out])

    run = start(decider=decide)
    drive(run)
    assert run.state == "WAITING"
    return run, Question.objects.get(run=run)


def let_run_out(run: AgentRun) -> None:
    """Let the end of its question come, and with it that of its wait."""
    dates = (("question", "answer_by"), ("wait", "until"), ("agentrun", "wake_at"))
    with past_triggers():
        for table, column in dates:
            whose = "id" if table == "agentrun" else "run_id"
            change(
                f"UPDATE runs_{table} SET {column} = statement_timestamp() - interval '1 s'"
                f" WHERE {whose} = %s",
                run.id,
            )


def test_the_answer_is_what_the_agent_sees_next_with_its_author(start: Start) -> None:
    run, question = asking(start, groups=("desk",), escalate_to=("board",))
    assert (run.wake_at, run.lease_owner) == (None, "")
    assert (question.status, question.groups) == ("open", ["desk"])
    told = Notice.objects.get(kind="question.asked")
    assert (told.event_id, told.question) == (f"question.asked:{question.id}", question)
    drive(run)
    assert run.state == "WAITING"
    say(question, answerer("robin", "desk"), ANSWER)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", ["answer", ANSWER, "robin", False])


def test_without_an_answer_in_time_it_goes_on_without_one(start: Start) -> None:
    run, question = asking(start, timeout=timedelta(hours=1))
    assert None not in (run.wake_at, question.answer_by, question.remind_at)
    let_run_out(run)
    with pytest.raises(QuestionExpired):
        say(question, answerer(), ANSWER)
    drive(run)
    assert (run.state, run.result) == ("COMPLETED", ["answer", None, "", True])
    question.refresh_from_db()
    assert (question.status, question.answered_by) == ("expired", "")
    with pytest.raises(QuestionExpired):
        say(question, answerer(), ANSWER)


def test_a_cancelled_run_asks_nobody_any_more(start: Start) -> None:
    run, question = asking(start)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == "CANCELLED"
    question.refresh_from_db()
    assert question.status == "cancelled"
    with pytest.raises(QuestionCancelled):
        say(question, answerer(), ANSWER)


def test_an_answer_that_came_in_time_counts_however_late_a_worker_comes(start: Start) -> None:
    run, question = asking(start, timeout=timedelta(hours=1))
    say(question, answerer("robin"), ANSWER)
    let_run_out(run)
    drive(run)
    assert run.result == ["answer", ANSWER, "robin", False]
