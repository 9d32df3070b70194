"""Settling on real rows: senders that vanished, persons that are asked, runs to be cancelled."""

from collections.abc import Callable
from datetime import timedelta

from runs import events
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun, Worker
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    ask,
    dies_at,
    drive,
    drive_in_time,
    drive_late,
    expire_lease,
    found,
    hear_late,
    incidents,
    let_pass,
    operation_edges,
    operation_of,
    pass_until_due,
    run_edges,
)
from tests.database.settling import (
    PERSON,
    WINDOW,
    drive_now,
    end_worker,
    evidence,
    lose,
    say_next,
    settling_of,
    vanish,
)
from tools import EffectType, Provider

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- A worker that vanished ---------------------------------------------------------------------


def test_while_its_sender_may_live_nothing_is_repeated_and_in_the_end_a_person_is_asked(
    start: Start,
) -> None:
    run, script = vanish(start, "second")
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (PERSON, 1)
    assert incidents(run) == [("OVERDUE", "")]
    error = operation_of(run).error
    assert "worker 1" in error
    assert "not known to have ended" in error
    assert operation_of(run).may_be_in_flight
    asked_for = ask(
        "SELECT EXTRACT(EPOCH FROM now() - unknown_since)::float8 FROM runs_tooloperation"
        " WHERE run_id = %s",
        run.id,
    )
    hour = timedelta(hours=1).total_seconds()
    assert hour <= asked_for < hour + 60


def test_once_its_sender_is_known_to_have_ended_it_is_repeated_with_the_same_id(
    start: Start,
) -> None:
    run, script = vanish(start, "second")
    end_worker("worker 1")
    drive_in_time(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "second", 2)
    assert len({call.operation_id for call in script.calls}) == 1
    ended_at = Worker.objects.get(name="worker 1").ended_at
    assert ended_at is not None
    assert evidence(run, "look_up")[-1].observed_at - ended_at >= WINDOW
    assert incidents(run) == []


def test_the_window_begins_when_the_sender_ended_not_when_it_was_missed(start: Start) -> None:
    run, script = vanish(start, "second")
    # It stood still for half an hour, and might have sent at its very end.
    let_pass(minutes=30)
    for _ in range(4):
        drive_now(run)
        let_pass(seconds=100)
    end_worker("worker 1")
    for _ in range(2):
        drive_now(run)
        let_pass(seconds=100)
    assert len(script.calls) == 1
    left = settling_of(run).settles_in
    assert left is not None
    assert left > WINDOW.total_seconds() - 300
    drive_in_time(run)
    assert len(script.calls) == 2


def test_the_end_of_another_worker_settles_nothing(start: Start) -> None:
    run, script = vanish(start, "second")
    for name in ("worker 2", "worker 3"):
        end_worker(name)
    drive_late(run)
    assert (run.state, len(script.calls)) == (PERSON, 1)


def test_every_sender_must_have_ended_not_only_the_last(start: Start) -> None:
    run, script = vanish(start, "nobody hears this either", "third", max_attempts=5)
    end_worker("worker 1")
    while len(script.calls) == 1:
        pass_until_due(run)
        try:
            with dies_at(events.Name.CALL_DONE):
                drive(run, owner="worker 2")
        except AssertionError:
            continue
    expire_lease(run)
    # The first sender is known to have ended, the second is not.
    drive_late(run, owner="worker 3")
    assert (run.state, len(script.calls)) == (PERSON, 2)
    assert "worker 2" in operation_of(run).error


def test_the_late_answer_of_the_first_worker_ends_the_waiting(start: Start) -> None:
    run, script = vanish(start, "second")
    for _ in range(3):
        pass_until_due(run)
        drive(run, owner="worker 2")
    hear_late(run, "committed", result="first", external_ref="re_1", attempt=1)
    drive_in_time(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "first", 1)
    assert operation_of(run).external_ref == "re_1"


def test_a_late_word_of_the_first_worker_that_it_does_not_know_ends_its_send(
    start: Start,
) -> None:
    """Its function came back: from then on nothing more can leave, and the window runs."""
    run, script = vanish(start, "second")
    hear_late(run, "unknown", stage="read", detail="no answer", attempt=1)
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 2)


# -- A person, and a cancel ---------------------------------------------------------------------


def test_while_a_person_is_awaited_the_provider_is_asked_on_for_a_day_and_then_no_more(
    start: Start,
) -> None:
    run, script = vanish(start, "second")
    drive_late(run)
    assert run.state == PERSON
    asked = 0
    while run.wake_at is not None:
        seconds = ask("SELECT EXTRACT(EPOCH FROM wake_at - now())::float8 FROM runs_agentrun")
        assert 59 < seconds <= 100
        assert (run.state, run.uncertain) == (PERSON, True)
        let_pass(hours=2)
        drive(run, owner="worker 2")
        asked += 1
        assert asked < 15
    since = ask("SELECT EXTRACT(EPOCH FROM now() - unknown_since)::float8 FROM runs_tooloperation")
    assert since >= timedelta(hours=24).total_seconds()
    assert asked > 10
    assert (run.state, run.sweep_at, len(script.calls)) == (PERSON, None, 1)
    # Asked for once, not at every look.
    assert (incidents(run), run_edges(run).count("NEED_PERSON")) == ([("OVERDUE", "")], 1)


def test_the_provider_may_answer_before_the_person_does(start: Start) -> None:
    run, script = vanish(start)
    drive_late(run)
    assert run.state == PERSON
    say_next(run, found("after all", "re_1"))
    pass_until_due(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "after all", 1)


def test_once_a_person_was_asked_nothing_is_sent_without_the_persons_word(start: Start) -> None:
    run, script = vanish(start, "second")
    drive_late(run)
    end_worker("worker 1")
    for _ in range(10):
        let_pass(minutes=10)
        drive(run, owner="worker 2")
    assert settling_of(run).is_settled
    assert (run.state, len(script.calls)) == (PERSON, 1)


def test_a_run_that_is_to_be_cancelled_settles_the_call_and_does_not_repeat_it(
    start: Start,
) -> None:
    run, script = lose(start, "second")
    cancel_run(actor=operator(), run_id=run.id)
    run.refresh_from_db()
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (RunState.CANCELLED, 1)
    assert operation_of(run).status == "REJECTED"
    assert operation_edges(run)[-1] == "REJECT"


def test_a_cancelled_repeatable_write_settles_by_itself_too(start: Start) -> None:
    provider = Provider(
        name="bank",
        idempotency_support="key",
        idempotency_retention=timedelta(hours=24),
        lookup="by_key",
    )
    run, script = lose(start, "second", provider=provider, effect=EffectType.IDEMPOTENT_WRITE)
    cancel_run(actor=operator(), run_id=run.id)
    run.refresh_from_db()
    drive_in_time(run)
    assert (run.state, len(script.calls)) == (RunState.CANCELLED, 1)
    assert operation_of(run).status == "REJECTED"
