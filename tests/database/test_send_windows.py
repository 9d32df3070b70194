"""Send windows: of every send it is on record when it may have left and when it had to end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from runs import events
from runs.evidence import read_sends
from runs.lease import heartbeat
from runs.models import AgentRun, ToolOperation, Worker
from runs.settling import Send
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
    incidents,
    let_pass,
    operation_of,
    scripted_tool,
    verdicts,
)
from tests.database.settling import (
    PERSON,
    UNKNOWN,
    WINDOW,
    drive_now,
    end_worker,
    never_found,
    vanish,
)
from tests.processes import wait_until
from tools import Call, EffectType, NotSent, Rejected
from tools.execution import in_flight

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


DATES = ("opened_at", "deadline", "lease_end")


def _windows(run: AgentRun) -> list[dict[str, datetime]]:
    """The windows of the sends' observations, oldest first."""
    rows = operation_of(run).observations.exclude(source="look_up").order_by("id")
    return [
        {name: datetime.fromisoformat(at) for name, at in (row.window or {}).items() if at}
        for row in rows
    ]


def _sends(run: AgentRun) -> list[Send]:
    operation = operation_of(run)
    return read_sends(operation, list(operation.observations.order_by("id")))


@pytest.mark.parametrize("answer", [7, Rejected("no"), NotSent("no route"), LOST])
def test_every_send_has_a_window_whatever_came_back(start: Start, answer: Any) -> None:
    scripted_tool(answer)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    (window,) = _windows(run)
    assert set(window) == {*DATES, "returned_at"}
    assert window["opened_at"] == operation_of(run).last_sent_at
    assert window["opened_at"] <= window["returned_at"] <= window["deadline"]
    # A call ends before its lease does.
    assert window["deadline"] < window["lease_end"]


def test_what_the_client_marked_is_in_the_window(start: Start) -> None:
    def send(call: Call) -> str:
        for mark in ("first_byte", "last_byte", "closed"):
            call.window.mark(mark)
        return "sent"

    scripted_tool(send)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    (window,) = _windows(run)
    order = ["opened_at", "first_byte_at", "last_byte_at", "closed_at", "returned_at"]
    assert [window[name] for name in order] == sorted(window[name] for name in order)


def test_what_was_marked_before_an_error_is_in_the_window(start: Start) -> None:
    def send(call: Call) -> None:
        call.window.mark("first_byte")
        raise LOST

    scripted_tool(send)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    (window,) = _windows(run)
    assert "first_byte_at" in window
    assert "last_byte_at" not in window


def test_each_send_has_its_own_window(start: Start) -> None:
    scripted_tool(NotSent("no route"), LOST, 7)
    run = start(decider=call_once(), tools=("pay",))
    for _ in range(3):
        drive_when_due(run)
    windows = _windows(run)
    assert len({window["opened_at"] for window in windows}) == 3
    for earlier, later in pairwise(windows):
        assert earlier["returned_at"] <= later["opened_at"]
    assert [send.ended_at is not None for send in _sends(run)] == [True] * 3


def test_a_send_whose_worker_vanished_has_the_window_it_was_given(start: Start) -> None:
    scripted_tool(7, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run, owner="worker 1")
    sent = operation_of(run)
    deadline = sent.in_flight_until
    change("UPDATE runs_agentrun SET lease_expires_at = now(), wake_at = now()")
    drive(run, owner="worker 2")
    (window,) = _windows(run)
    assert (window["opened_at"], window["deadline"]) == (sent.last_sent_at, deadline)
    assert "returned_at" not in window
    seen = operation_of(run).observations.get()
    assert (seen.source, seen.verdict, seen.stage) == ("take_over", "unknown", "crash")
    # It speaks about the vanished send, not about the worker that found it.
    assert (seen.attempt, seen.fence_token) == (1, 1)
    assert run.fence_token > 1
    assert _sends(run) == [Send(number=1, worker="worker 1", ended_at=None)]


def test_a_take_over_ends_no_send_but_the_end_of_its_worker_does(start: Start) -> None:
    scripted_tool(7, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run, owner="worker 1")
    expire_lease(run)
    drive(run, owner="worker 2")
    assert _sends(run)[0].ended_at is None
    end_worker("worker 2")
    assert _sends(run)[0].ended_at is None
    end_worker("worker 1")
    ended = Worker.objects.get(name="worker 1").ended_at
    assert _sends(run) == [Send(number=1, worker="worker 1", ended_at=ended)]


def test_a_send_is_its_own_workers_and_not_the_next_ones(start: Start) -> None:
    script = scripted_tool("lost", "lost too", 7, look_up=never_found(), max_attempts=5)
    run = start(decider=call_once(), tools=("pay",))
    for worker in ("worker 1", "worker 2"):
        with dies_at(events.Name.CALL_DONE):
            drive(run, owner=worker)
        expire_lease(run)
    change("UPDATE runs_tooloperation SET in_flight_until = now() + interval '60 s'")
    drive(run, owner="worker 3")
    assert len(script.calls) == 2
    assert [(send.number, send.worker) for send in _sends(run)] == [
        (1, "worker 1"),
        (2, "worker 2"),
    ]


# -- Functions past their deadline --------------------------------------------------------------


@contextmanager
def _held_call(
    start: Start, then: Callable[[Call], Any], **declared: Any
) -> Iterator[tuple[AgentRun, Script, Callable[[], None]]]:
    """A run whose function stands still past its deadline until it is let go on."""
    may_go_on, heard = threading.Event(), threading.Event()

    def stand_still(call: Call) -> Any:
        may_go_on.wait(30)
        return then(call)

    def let_go_on() -> None:
        may_go_on.set()
        assert heard.wait(20)

    unsubscribe = events.subscribe(
        lambda event: heard.set() if event.name is events.Name.LATE_EVIDENCE else None
    )
    declared = {"effect": EffectType.NON_IDEMPOTENT_WRITE, "provider": PLAIN} | declared
    script = scripted_tool(stand_still, "second", look_up=never_found(), seconds=0.2, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    try:
        yield run, script, let_go_on
    finally:
        may_go_on.set()
        wait_until(lambda: not in_flight(), what="the function is back")
        unsubscribe()


def test_a_function_that_is_still_out_has_not_returned(start: Start) -> None:
    with _held_call(start, lambda call: "late") as (run, _, let_go_on):
        (window,) = _windows(run)
        assert "returned_at" not in window
        assert _sends(run)[0].ended_at is None
        assert operation_of(run).may_be_in_flight
        let_go_on()
        late = _windows(run)[-1]
        assert window["deadline"] < late["returned_at"]
        assert _sends(run)[0].ended_at is not None


def _give_up(call: Call) -> float:
    return call.remaining


def _get_no_answer(call: Call) -> None:
    raise LOST


@pytest.mark.parametrize("then", [_give_up, _get_no_answer])
def test_a_function_that_gives_up_at_its_deadline_has_returned(
    start: Start, then: Callable[[Call], Any]
) -> None:
    with _held_call(start, then) as (run, script, let_go_on):
        assert _sends(run)[0].ended_at is None
        let_go_on()
        assert verdicts(run)[-1] == ("stale_worker", "unknown")
        assert _sends(run)[0].ended_at is not None
        drive_in_time(run, owner="worker 1")
        assert (run.result, len(script.calls)) == ("second", 2)


def test_a_provider_slower_than_the_deadline_makes_one_ticket(start: Start) -> None:
    """Case P8: the answer comes long after; look-ups find nothing; nothing is sent meanwhile."""
    with _held_call(start, lambda call: "late ticket") as (run, script, let_go_on):
        for _ in range(6):
            let_pass(seconds=200)
            drive_now(run)
            heartbeat.run_once()
            assert (run.state, len(script.calls)) == (UNKNOWN, 1)
        let_go_on()
        drive_in_time(run, owner="worker 1")
        assert (run.state, run.result, len(script.calls)) == ("COMPLETED", "late ticket", 1)


def test_a_function_that_never_comes_back_is_a_persons_after_the_objective(start: Start) -> None:
    with _held_call(start, lambda call: "late") as (run, script, _):
        for _ in range(40):
            let_pass(minutes=5)
            heartbeat.run_once()
            drive_now(run)
            if run.state != UNKNOWN:
                break
        assert (run.state, incidents(run)) == (PERSON, [("OVERDUE", "")])
        assert len(script.calls) == 1


# -- What the row says --------------------------------------------------------------------------


def test_a_row_says_until_when_a_send_may_take_effect(start: Start) -> None:
    def look(call: Call) -> Any:
        row = ToolOperation.objects.get(id=call.operation_id)
        assert row.settles_at is not None
        assert row.in_flight_until is not None
        rows.append(row)
        raise LOST

    rows: list[ToolOperation] = []
    scripted_tool(look, provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE, seconds=20.0)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    during, after = rows[0], operation_of(run)
    assert during.may_be_in_flight
    assert during.settles_at == during.in_flight_until + WINDOW  # type: ignore[operator]
    # The function came back, so nothing more leaves; what left may still take effect.
    assert after.in_flight_until is None
    assert after.settles_at is not None
    assert during.settles_at is not None
    assert after.settles_at < during.settles_at
    assert after.may_be_in_flight
    let_pass(seconds=WINDOW.total_seconds() + 1)
    assert not operation_of(run).may_be_in_flight


def test_while_nobody_knows_whether_the_sender_lives_no_date_is_named(start: Start) -> None:
    run, _ = vanish(start)
    drive_now(run)
    let_pass(hours=5)
    operation = operation_of(run)
    assert operation.settles_at is None
    assert operation.may_be_in_flight
    end_worker("worker 1")
    drive_now(run)
    assert operation_of(run).settles_at is not None


@pytest.mark.parametrize("answer", [7, Rejected("no")])
def test_what_is_settled_is_in_flight_no_more(start: Start, answer: Any) -> None:
    scripted_tool(answer, provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert not operation_of(run).may_be_in_flight
