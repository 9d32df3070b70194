"""Waiting: for a time, a signal or a person's answer, with rows and dates alone.

Guarantees: what a step waits for is a row, written by the commit that gives the run back;
nobody is blocked meanwhile. Whoever brings what is waited for stores it first and makes the run
due then, so it is found whether it came before, during or after the moment the run began to
wait. A signal is handed over once, and those of one name in the order they were stored.

Does not accept signals (`signals.py`) or answers (`approvals`), nor start child runs
(`delegation.py`).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from django.db import connection
from uuid_utils.compat import uuid7

from runs.change import EndedWait, NewQuestion, NewWait
from runs.decisions import Ask, Sleep, WaitFor
from runs.models import Notice, Question, Signal, Wait
from runs.state import RunEvent
from runs.work import Work

Kind = Wait.Kind
Outcome = Wait.Outcome


@dataclass(frozen=True)
class Ended:
    """How a wait ended; `signal_id` is the signal that is handed over by it."""

    outcome: Wait.Outcome
    result: Any = None
    author: str = ""
    signal_id: int | None = None


def begin_wait(work: Work, decision: Sleep | WaitFor | Ask) -> None:
    """Plan what a recorded decision waits for."""
    match decision:
        case Sleep(for_=None, until=datetime() as until):
            _plan(work, Kind.TIMER, seconds=max(0.0, (until - work.now).total_seconds()))
        case Sleep(for_=timedelta() as for_):
            _plan(work, Kind.TIMER, seconds=for_.total_seconds())
        case WaitFor(signal=signal, timeout=timeout):
            _plan(work, Kind.SIGNAL, name=signal, seconds=_seconds(timeout))
        case Ask(question=question, timeout=timeout):
            _ask(work, decision)
            _plan(work, Kind.QUESTION, name=question, seconds=_seconds(timeout))
        case Sleep():
            raise AssertionError("Sleep takes one of for_ and until")
        case _ as never:
            assert_never(never)


def begin_waiting_for_children(work: Work) -> None:
    """Plan that the step waits for the runs that it has started."""
    _plan(work, Kind.CHILD, seconds=None)


def find_end(work: Work) -> Ended | None:
    """How the open step's wait has ended, if it has; not for child runs."""
    wait = work.wait
    assert wait is not None, "a run that waits has a row that says what for"
    is_over = wait.until is not None and wait.until <= work.now
    match Kind(wait.kind):
        case Kind.TIMER:
            return Ended(Outcome.CAME) if is_over else None
        case Kind.SIGNAL:
            signal = _find_signal(work, wait.name)
            if signal is not None:
                return Ended(Outcome.CAME, signal.payload, signal.sent_by, signal.pk)
            return Ended(Outcome.TIMED_OUT) if is_over else None
        case Kind.QUESTION:
            return _find_answer(work, is_over=is_over)
        case Kind.CHILD:
            raise AssertionError("delegation.py knows how child runs ended")
        case _ as never:
            assert_never(never)


def end_wait(work: Work, ended: Ended) -> None:
    """Plan the end of the open step's wait; the run's own edge is the caller's."""
    wait = work.wait
    assert wait is not None, "a run that waits has a row that says what for"
    work.change.ended_wait = EndedWait(
        outcome=ended.outcome,
        step_number=work.step_number,
        result=ended.result,
        author=ended.author,
        signal_id=ended.signal_id,
    )
    wait.outcome, wait.result, wait.author = ended.outcome, ended.result, ended.author


def seconds_left(work: Work) -> float | None:
    """How long the open step waits at the most; None where only somebody can end it."""
    if work.change.new_wait is not None:
        # The very same, so that the run is due at the moment at which the wait is over.
        return work.change.new_wait.seconds
    if work.wait is None or work.wait.until is None:
        return None
    return max(0.0, (work.wait.until - work.now).total_seconds())


def _plan(work: Work, kind: Wait.Kind, *, name: str = "", seconds: float | None) -> None:
    work.change.new_wait = NewWait(
        kind=kind, name=name, step_number=work.step_number, seconds=seconds
    )
    until = None if seconds is None else work.now + timedelta(seconds=seconds)
    work.wait = Wait(
        step_id=work.open_step_id, step_number=work.step_number, kind=kind, name=name, until=until
    )
    work.move(RunEvent.WAIT, _describe(kind, name, until))


def _describe(kind: Wait.Kind, name: str, until: datetime | None) -> str:
    what = {
        Kind.TIMER: "sleeps",
        Kind.SIGNAL: f"waits for the signal {name!r}",
        Kind.QUESTION: "waits for a person's answer",
        Kind.CHILD: "waits for the runs that it started",
    }[kind]
    return what if until is None else f"{what} until {until:%Y-%m-%d %H:%M:%S} UTC"


def _find_signal(work: Work, name: str) -> Signal | None:
    """The oldest signal of this name that was not handed over. Signals of one run are stored
    one after the other, so their ids are in the order in which they came."""
    undelivered = Signal.objects.filter(run_id=work.run_id, name=name, delivered_at__isnull=True)
    return undelivered.order_by("id").first()


def _ask(work: Work, decision: Ask) -> None:
    answer_in = _seconds(decision.timeout)
    remind_in = _seconds(decision.remind_after)
    if remind_in is None and answer_in is not None:
        remind_in = answer_in / 2
    escalate_in = None
    if decision.escalate_to:
        escalate_in = _seconds(decision.escalate_after)
        if escalate_in is None and answer_in is not None:
            escalate_in = answer_in * 3 / 4
    question = Question(
        id=uuid7(),
        step_number=work.step_number,
        text=decision.question,
        schema=dict(decision.schema),
        groups=list(decision.groups),
        escalate_to=list(decision.escalate_to),
    )
    work.change.new_question = NewQuestion(
        question=question, answer_in=answer_in, remind_in=remind_in, escalate_in=escalate_in
    )
    work.notify(
        Notice.Kind.QUESTION_ASKED,
        question.id,
        question_id=question.id,
        status=Question.Status.OPEN,
    )


def _find_answer(work: Work, *, is_over: bool) -> Ended | None:
    if work.change.new_question is not None:
        # Part of what is about to be written: nobody has seen it yet.
        return None
    question = Question.objects.get(step_id=work.open_step_id)
    if question.status == Question.Status.OPEN and is_over:
        # On its own, so that what it came to is certain before anything is planned on it.
        _expire(question)
        question.refresh_from_db()
    match Question.Status(question.status):
        case Question.Status.OPEN:
            return None
        case Question.Status.ANSWERED:
            return Ended(Outcome.CAME, question.answer, question.answered_by)
        case Question.Status.EXPIRED | Question.Status.CANCELLED:
            return Ended(Outcome.TIMED_OUT)
        case _ as never:
            assert_never(never)


def _expire(question: Question) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE runs_question SET status = 'expired', ended_at = statement_timestamp()
            WHERE id = %s AND status = 'open' AND answer_by <= statement_timestamp()
            """,
            [question.pk],
        )


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
