"""A person's word against workers, other persons, cancels and deaths: one of them concludes."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from runs import events
from runs.access import Actor, operator
from runs.commands import cancel_run
from runs.errors import AlreadySettled, RunHeld, StillInFlight
from runs.lease import claim
from runs.models import AgentRun, ToolOperation
from runs.resolution import resolve_operation
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    PLAIN,
    Script,
    call_once,
    change,
    dies_at,
    drive,
    drive_in_time,
    drive_when_due,
    expire_lease,
    found,
    incidents,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tests.database.settling import end_worker
from tools import Call, EffectType, Reconciled

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


ANN = Actor(name="ann", scopes=frozenset({"operations:resolve"}))


def _waiting(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    script = scripted_tool(LOST, *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    return run, script


def _say(run: AgentRun, outcome: str, **more: Any) -> ToolOperation:
    given: dict[str, Any] = {"actor": ANN, "evidence": "seen on the statement", **more}
    operation_id = operation_of(run).id
    return resolve_operation(operation_id=operation_id, outcome=outcome, **given)  # type: ignore[arg-type]


# -- Workers ------------------------------------------------------------------------------------


def test_while_a_worker_holds_the_run_the_person_is_told_to_try_again(start: Start) -> None:
    run, _ = _waiting(start)
    change("UPDATE runs_agentrun SET wake_at = now()")
    held = claim(run_id=run.id, owner="worker 7")
    assert held is not None
    with pytest.raises(RunHeld):
        _say(run, "committed", result=7)
    assert operation_of(run).status == "UNKNOWN"
    # A claim by the person would have taken the worker's token away.
    run.refresh_from_db()
    assert run.fence_token == held.lease.fence_token


def test_a_word_during_a_look_up_is_refused_and_the_look_ups_answer_counts(start: Start) -> None:
    def meanwhile(call: Call) -> Any:
        with pytest.raises(RunHeld):
            _say(run, "rejected")
        return found("it is there", "re_1")

    scripted_tool(LOST, look_up=Script(meanwhile))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert (run.state, run.result) == (RunState.COMPLETED, "it is there")


def test_a_worker_that_comes_back_after_the_persons_word_writes_nothing(start: Start) -> None:
    """It lost its lease while it asked the provider; the person was quicker."""

    def stand_still(call: Call) -> Any:
        expire_lease(run)
        _say(run, "committed", result="by hand", external_ref="re_1")
        return found("by look-up", "re_2")

    script = scripted_tool(LOST, look_up=Script(stand_still))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    progress = drive_when_due(run)
    assert progress.lease_lost
    assert (operation_of(run).status, operation_of(run).result) == ("COMMITTED", "by hand")
    drive(run, owner="worker 2")
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "by hand", 1)
    # What it learned is kept, and says that there is more than the person saw.
    assert verdicts(run)[-1] == ("look_up", "committed")
    assert incidents(run) == [("DUPLICATE", "re_2")]


def test_a_stale_sender_that_comes_back_after_a_denial_is_heard_before_the_repeat(
    start: Start,
) -> None:
    """Worker 1 stood still inside its call, and was taken to have ended; nothing was seen yet."""

    def stand_still(call: Call) -> Any:
        if call.attempt > 1:
            return "second"
        expire_lease(run)
        drive(run, owner="worker 2")
        expire_lease(run)
        drive(run, owner="worker 2")
        assert run.state == RunState.WAITING_FOR_RESOLUTION
        end_worker("worker 1")
        _say(run, "not_committed")
        return "first"

    script = scripted_tool(
        stand_still, stand_still, effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN
    )
    run = start(decider=call_once(), tools=("pay",))
    progress = drive(run)
    assert progress.lease_lost
    drive(run, owner="worker 3")
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "first", 1)
    assert operation_edges(run) == ["INTEND", "SEND", "LOSE_OUTCOME", "NOT_SENT", "COMMIT"]


def test_a_worker_between_claim_and_commit_loses_to_the_persons_token(start: Start) -> None:
    run, script = _waiting(start, "must not be recorded")
    change("UPDATE runs_agentrun SET wake_at = now()")

    def be_overtaken(event: events.Event) -> None:
        if event.name is events.Name.COMMIT_STARTING and not overtaken:
            overtaken.append(True)
            expire_lease(run)
            _say(run, "rejected")

    overtaken: list[bool] = []
    unsubscribe = events.subscribe(be_overtaken)
    try:
        progress = drive(run)
    finally:
        unsubscribe()
    assert progress.lease_lost
    assert operation_of(run).status == "REJECTED"
    assert len(script.calls) == 1


# -- Persons ------------------------------------------------------------------------------------


def test_of_two_words_at_once_over_two_connections_one_counts(start: Start) -> None:
    run, script = _waiting(start, "second")
    together = threading.Barrier(2)
    said: list[str] = []

    def speak(outcome: str) -> None:
        together.wait(timeout=20)
        try:
            _say(run, outcome)
            said.append(outcome)
        except (RunHeld, AlreadySettled) as error:
            said.append(type(error).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=speak, args=(one,)) for one in ("committed", "rejected")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = [one for one in said if one in ("committed", "rejected")]
    assert len(heard) == 1
    assert operation_of(run).status == heard[0].upper()
    persons = [one for one in verdicts(run) if one[0] == "person"]
    assert len(persons) == 1
    assert len(script.calls) == 1


@pytest.mark.parametrize("point", [events.Name.COMMIT_STARTING, events.Name.COMMIT_DONE])
def test_a_process_that_dies_while_it_writes_the_word_leaves_all_of_it_or_nothing(
    start: Start, point: events.Name
) -> None:
    run, _ = _waiting(start)
    with dies_at(point):
        _say(run, "committed", result=7)
    is_written = point is events.Name.COMMIT_DONE
    assert operation_of(run).status == ("COMMITTED" if is_written else "UNKNOWN")
    if not is_written:
        # Its lease ends like a worker's; then anybody may speak again.
        with pytest.raises(RunHeld):
            _say(run, "committed", result=7)
        expire_lease(run)
        _say(run, "committed", result=7)
    drive(run)
    assert (run.state, run.result) == (RunState.COMPLETED, 7)


def test_a_word_that_is_refused_leaves_the_run_as_it_was_found(start: Start) -> None:
    look_up = Script(*[Reconciled.not_found()] * 99)
    run, _ = _waiting_with_date(start, look_up)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '20 s'")
    due = run.wake_at
    with pytest.raises(StillInFlight):
        _say(run, "rejected")
    run.refresh_from_db()
    assert (run.state, run.lease_owner, run.lease_expires_at) == (
        RunState.WAITING_FOR_RESOLUTION,
        "",
        None,
    )
    assert run.wake_at is not None
    assert due is not None
    assert abs((run.wake_at - due).total_seconds()) < 1
    assert run.sweep_at == run.wake_at


# -- Cancels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("committed", "COMMITTED"), ("not_committed", "CANCELLED"), ("rejected", "REJECTED")],
)
def test_a_cancel_request_is_honoured_after_the_word_and_nothing_is_sent(
    start: Start, outcome: str, status: str
) -> None:
    run, script = _waiting(start, "must not be sent")
    cancel_run(actor=operator("bob"), run_id=run.id)
    _say(run, outcome)
    drive_when_due(run)
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, status)
    assert len(script.calls) == 1
    assert operation_of(run).holds_intent == (
        operation_of(run).holds_intent if status == "COMMITTED" else None
    )


def _waiting_with_date(start: Start, look_up: Script) -> tuple[AgentRun, Script]:
    script = scripted_tool(
        LOST, look_up=look_up, effect=EffectType.NON_IDEMPOTENT_WRITE, provider=PLAIN
    )
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_in_time(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    assert run.wake_at is not None
    return run, script
