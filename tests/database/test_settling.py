"""Settling on real rows: when a call that may not be repeated is repeated all the same."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from runs.models import AgentRun, ToolObservation
from runs.settling import NEGATIVES, SPACING_PART
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    ask,
    drive,
    drive_in_time,
    drive_late,
    found,
    incidents,
    let_pass,
    operation_edges,
    operation_of,
    pass_until_due,
    verdicts,
)
from tests.database.settling import (
    MANY,
    PERSON,
    UNKNOWN,
    WINDOW,
    drive_now,
    evidence,
    lose,
    say_next,
    settling_of,
)
from tools import Call, EffectType, Provider, Reconciled

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- A function that came back ------------------------------------------------------------------


def test_a_call_that_came_back_without_an_answer_is_repeated_once_it_is_settled(
    start: Start,
) -> None:
    run, script = lose(start, "second")
    drive_in_time(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "second", 2)
    first, second = script.calls
    assert (first.operation_id, first.idempotency_key, first.arguments) == (
        second.operation_id,
        second.idempotency_key,
        second.arguments,
    )
    assert second.fence_token > first.fence_token
    assert operation_edges(run) == ["INTEND", "SEND", "LOSE_OUTCOME", "SEND_AGAIN", "COMMIT"]
    answers, negatives = evidence(run, "worker"), evidence(run, "look_up")
    assert negatives[-1].observed_at - answers[0].observed_at >= WINDOW
    assert len(negatives) >= NEGATIVES
    assert incidents(run) == []


def test_until_then_it_is_asked_about_and_never_sent(start: Start) -> None:
    run, script = lose(start, "second")
    asked = 0
    while len(script.calls) == 1:
        pass_until_due(run)
        drive(run)
        asked += 1
        assert asked < 60
        if len(script.calls) == 1:
            assert run.state == UNKNOWN
            operation = operation_of(run)
            assert operation.next_reconcile_at is not None
            assert operation.look_ups == asked
    # Not a single wait took it far past the end of the window either.
    late = evidence(run, "look_up")[-1].observed_at - evidence(run, "worker")[0].observed_at
    assert WINDOW <= late < WINDOW + 4 * WINDOW / SPACING_PART


@pytest.mark.parametrize("spared", [2.0, -1.0])
def test_the_windows_end_is_exact_in_the_rows_too(start: Start, spared: float) -> None:
    """Many negatives of old, and one more shortly before the window's end, or after it."""
    run, script = lose(start, "second")
    for _ in range(5):
        let_pass(seconds=WINDOW.total_seconds() / 6)
        drive_now(run)
    left = settling_of(run).settles_in
    assert left is not None
    let_pass(seconds=left - spared)
    drive_now(run)
    assert len(script.calls) == (1 if spared > 0 else 2)


def test_three_look_ups_in_a_hurry_after_the_window_settle_nothing(start: Start) -> None:
    run, script = lose(start, "second")
    let_pass(seconds=WINDOW.total_seconds() + 1)
    for _ in range(6):
        drive_now(run)
    assert (run.state, len(script.calls)) == (UNKNOWN, 1)
    assert operation_of(run).look_ups == 6
    for _ in range(NEGATIVES - 1):
        let_pass(seconds=WINDOW.total_seconds() / SPACING_PART + 1)
        drive_now(run)
    assert len(script.calls) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (ValueError("500"), "look-up failed: ValueError: 500"),
        (Reconciled.indeterminate("only the first page"), "cannot say (only the first page)"),
        ("no verdict", "look-up failed"),
    ],
    ids=["failed", "indeterminate", "junk"],
)
def test_a_look_up_that_failed_or_cannot_say_is_no_negative(
    start: Start, said: Any, words: str
) -> None:
    """Case P4."""
    run, script = lose(start, "second", look_up=Script(*[said] * MANY))
    drive_late(run)
    assert (run.state, len(script.calls)) == (PERSON, 1)
    assert incidents(run) == [("OVERDUE", "")]
    assert words in operation_of(run).error


def test_failed_look_ups_between_negatives_only_delay(start: Start) -> None:
    said = [Reconciled.not_found(), ValueError("500")] * MANY
    run, script = lose(start, "second", look_up=Script(*said))
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 2)
    counted = ToolObservation.objects.filter(run=run, verdict="not_found").count()
    failed = ToolObservation.objects.filter(run=run, verdict="failed").count()
    assert counted >= NEGATIVES
    assert failed > 0


def test_a_look_up_is_dated_by_its_question_not_by_its_answer(start: Start) -> None:
    def answer(call: Call) -> Reconciled[Any]:
        asked_for.append(ask("SELECT clock_timestamp()"))
        return Reconciled.not_found()

    asked_for: list[datetime] = []
    run, _ = lose(start, "second", look_up=Script(answer))
    pass_until_due(run)
    drive(run)
    (seen,) = evidence(run, "look_up")
    assert seen.window is not None
    opened_at = datetime.fromisoformat(seen.window["opened_at"])
    assert opened_at <= asked_for[0] <= seen.observed_at


def test_an_answer_after_the_window_to_a_question_before_its_end_does_not_settle_it(
    start: Start,
) -> None:
    run, _ = lose(start, "second")
    ended = evidence(run, "worker")[0].observed_at
    asked = [ended + WINDOW * part for part in (0.1, 0.5, 0.99)]
    for opened_at in asked:
        ToolObservation.objects.create(
            operation_id=operation_of(run).id,
            run_id=run.id,
            source="look_up",
            verdict="not_found",
            window={"opened_at": opened_at.isoformat()},
            observed_at=opened_at + WINDOW,
            attempt=1,
            fence_token=1,
        )
    let_pass(seconds=2 * WINDOW.total_seconds())
    settling = settling_of(run)
    assert (settling.settles_in, settling.negatives, settling.confirmed) == (0.0, 3, False)


# -- What the provider says in between ----------------------------------------------------------


def test_what_lands_after_the_client_gave_up_is_found_and_not_repeated(start: Start) -> None:
    """Cases P2 and P3: the effect, or its place in the index, comes minutes later."""
    says = [*[Reconciled.not_found()] * 7, found("it landed", "re_1")]
    run, script = lose(start, look_up=Script(*says))
    drive_in_time(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "it landed", 1)
    assert verdicts(run)[-1] == ("look_up", "committed")


def test_what_the_last_look_up_before_the_repeat_finds_is_not_repeated(start: Start) -> None:
    run, script = lose(start, "second")
    for _ in range(MANY):
        pass_until_due(run)
        settling = settling_of(run)
        if settling.settles_in == 0 and settling.negatives >= NEGATIVES - 1:
            break
        drive(run)
    assert len(script.calls) == 1
    say_next(run, found("at the last moment", "re_1"))
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (
        RunState.COMPLETED,
        "at the last moment",
        1,
    )


@pytest.mark.parametrize("retention", [timedelta(hours=24), None])
def test_an_unkept_promise_of_keys_keeps_a_settled_call_with_a_person(
    start: Start, retention: timedelta | None
) -> None:
    """Case P5: a forgotten key is executed anew, so it is never sent again."""
    provider = Provider(
        name="bank", idempotency_support="key", idempotency_retention=retention, lookup="by_key"
    )
    run, script = lose(
        start, "second", provider=provider, effect=EffectType.IDEMPOTENT_WRITE, max_attempts=5
    )
    let_pass(hours=25)
    drive(run, owner="worker 2")
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (PERSON, 1)


def test_a_settled_call_is_repeated_no_more_often_than_its_tries_allow(start: Start) -> None:
    run, script = lose(
        start, LOST, LOST, "fourth", max_attempts=3, reconcile_within=timedelta(hours=9)
    )
    drive_late(run)
    assert (run.state, len(script.calls)) == (PERSON, 3)
    assert "no tries are left" in operation_of(run).error
    # Nobody is late: the tries are what ended.
    assert incidents(run) == []


def test_the_objective_counts_from_the_first_loss(start: Start) -> None:
    run, script = lose(start, LOST, "third", reconcile_within=timedelta(minutes=25))
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (PERSON, 2)
    assert incidents(run) == [("OVERDUE", "")]
