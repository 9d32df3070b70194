"""Whatever a TRANSACTIONAL function does to its transaction: both, or neither."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from runs import Finish, ToolCall, events
from runs.models import AgentRun, ToolOperation
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    another_connection,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    operation_of,
    scripted_tool,
    verdicts,
)
from tests.database.till import book, booked, booking, end_backend, start_booking
from tests.processes import wait_until
from tools import Call, EffectType, NotSent, Rejected

pytestmark = [ON_DATABASE, pytest.mark.usefixtures("till")]

Start = Callable[..., AgentRun]


# -- Whatever the function does -----------------------------------------------------------------


def _raises(call: Call) -> None:
    raise ZeroDivisionError("by design")


def _rejects(call: Call) -> None:
    raise Rejected("out of stock")


def _is_not_sent(call: Call) -> None:
    raise NotSent("closed")


def _ends_the_process(call: Call) -> None:
    raise SystemExit(3)


def _breaks_a_constraint(call: Call) -> None:
    book(call)


def _returns_junk(call: Call) -> object:
    return object()


@pytest.mark.parametrize(
    ("then", "status"),
    [
        (_raises, "PREPARED"),
        (_is_not_sent, "PREPARED"),
        (_ends_the_process, "PREPARED"),
        (_breaks_a_constraint, "PREPARED"),
        (_returns_junk, "PREPARED"),
        (_rejects, "REJECTED"),
    ],
)
def test_what_a_function_wrote_before_it_failed_is_undone(
    start: Start, then: Callable[[Call], Any], status: str
) -> None:
    def write_and_fail(call: Call) -> Any:
        book(call)
        return then(call)

    run, script = start_booking(start, write_and_fail, book)
    drive(run)
    operation = operation_of(run)
    assert (operation.status, operation.attempts) == (status, 1)
    assert booked() == []
    assert not run.uncertain
    if status == "PREPARED":
        assert verdicts(run) == [("worker", "not_sent")]
        drive_when_due(run)
        assert (run.result, len(script.calls)) == ("booked", 2)
        assert booked() == [operation.id]
    else:
        assert (run.state, run.error) == (RunState.FAILED, "REJECTED: out of stock")


def _swallows_an_sql_error(call: Call) -> None:
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


def _asks_for_a_roll_back(call: Call) -> None:
    transaction.set_rollback(True)


def _closes_the_connection(call: Call) -> None:
    connection.close()


def _leaves_a_block_open(call: Call) -> None:
    transaction.atomic().__enter__()


BREAKS = [
    _swallows_an_sql_error,
    _asks_for_a_roll_back,
    _closes_the_connection,
    _leaves_a_block_open,
]


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_function_that_breaks_its_transaction_in_silence_has_done_nothing(
    start: Start, breaks: Callable[[Call], None]
) -> None:
    """It returns as if all were well; a try is counted, and another one may do better."""
    sent: list[str] = []

    def write_and_break(call: Call) -> str:
        book(call)
        breaks(call)
        return "as if booked"

    def note(call: Call) -> str:
        sent.append(ToolOperation.objects.get(id=call.operation_id).status)
        return "sent"

    booking(write_and_break, book)
    scripted_tool(note, note, name="send", effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(ToolCall("pay"), ToolCall("send")), tools=("pay", "send"))
    drive(run)
    assert (booked(), sent) == ([], [])
    assert (operation_of(run).status, operation_of(run).attempts) == ("PREPARED", 1)
    drive_when_due(run)
    assert (run.state, sent) == (RunState.COMPLETED, ["RUNNING"])
    assert booked() == [operation_of(run).id]
    # And nobody who comes after on this connection finds anything of it.
    other = start(decider=lambda context: Finish("unharmed"))
    drive(other)
    assert other.result == "unharmed"


def test_a_function_that_never_succeeds_is_given_up_as_never_sent(start: Start) -> None:
    run, script = start_booking(start, *[_raises] * 9, max_attempts=3)
    for _ in range(3):
        drive_when_due(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 3)
    assert operation_of(run).status == "CANCELLED"
    assert "ZeroDivisionError" in operation_of(run).error


@pytest.fixture
def owners(till: None) -> Iterator[None]:
    """Whose a booking is: a key of the kind that is checked only at COMMIT."""
    change("CREATE TABLE owner (id int PRIMARY KEY)")
    change("ALTER TABLE till ADD owner int REFERENCES owner DEFERRABLE INITIALLY DEFERRED")
    yield
    change("DROP TABLE owner CASCADE")


def _for_nobody(call: Call) -> str:
    change("INSERT INTO till VALUES (%s, %s, 7)", call.operation_id, call.attempt)
    return "as if booked"


@pytest.mark.usefixtures("owners")
def test_a_constraint_that_fails_only_at_the_commit_is_a_try_that_failed(start: Start) -> None:
    run, script = start_booking(start, _for_nobody, book)
    drive(run)
    assert (run.state, operation_of(run).attempts, booked()) == (RunState.TOOL_PREPARED, 1, [])
    assert verdicts(run) == [("worker", "not_sent")]
    assert "owner" in operation_of(run).error
    drive_when_due(run)
    assert (run.result, len(script.calls), booked()) == ("booked", 2, [operation_of(run).id])


@pytest.mark.usefixtures("owners")
def test_a_constraint_that_never_holds_is_given_up_and_the_decider_is_told(start: Start) -> None:
    run, script = start_booking(start, *[_for_nobody] * 9, max_attempts=2)
    for _ in range(4):
        drive_when_due(run)
    assert (run.state, len(script.calls), booked()) == (RunState.FAILED, 2, [])
    assert "owner" in run.error


@pytest.mark.parametrize("point", [events.Name.CALL_STARTING, events.Name.CALL_DONE])
def test_the_tries_of_workers_that_were_killed_count(start: Start, point: events.Name) -> None:
    """A function that takes its worker with it must not take one after the other."""
    run, script = start_booking(start, max_attempts=2)
    for number in (1, 2):
        with dies_at(point):
            drive_when_due(run)
        connection.close()
        run.refresh_from_db()
        assert operation_of(run).attempts == number
        expire_lease(run)
    drive(run)
    assert (run.state, operation_of(run).status) == (RunState.FAILED, "CANCELLED")
    assert (len(script.calls), booked()) == (0 if "start" in point else 2, [])


def test_a_durable_block_inside_is_refused_and_undone(start: Start) -> None:
    def durably(call: Call) -> None:
        book(call)
        with transaction.atomic(durable=True):
            pass

    run, _ = start_booking(start, durably, book)
    drive(run)
    assert (operation_of(run).status, booked()) == ("PREPARED", [])


def test_a_block_inside_that_fails_and_is_handled_undoes_itself_alone(start: Start) -> None:
    def half(call: Call) -> str:
        book(call)
        with suppress(DatabaseError), transaction.atomic():
            book(call)
        return "half"

    run, _ = start_booking(start, half)
    drive(run)
    assert (run.result, booked()) == ("half", [operation_of(run).id])


# -- After the commit ---------------------------------------------------------------------------


def test_what_a_function_wants_done_on_commit_is_done_after_it_and_not_without_it(
    start: Start,
) -> None:
    done: list[list[str]] = []

    def hooked(call: Call) -> str:
        book(call)
        transaction.on_commit(lambda: done.append(booked()))
        if call.attempt == 1:
            raise ZeroDivisionError
        return "booked"

    run, _ = start_booking(start, hooked, hooked)
    drive(run)
    assert done == []
    drive_when_due(run)
    assert (run.result, done) == ("booked", [[operation_of(run).id]])


def test_an_error_after_the_commit_does_not_undo_the_record(start: Start) -> None:
    def hooked(call: Call) -> str:
        transaction.on_commit(lambda: 1 // 0)
        return book(call)

    run, script = start_booking(start, hooked)
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "booked", 1)
    assert booked() == [operation_of(run).id]


@pytest.mark.parametrize("point", [events.Name.CALL_DONE, events.Name.COMMIT_STARTING])
def test_a_connection_that_breaks_before_the_commit_leaves_neither_and_the_run_goes_on(
    start: Start, point: events.Name
) -> None:
    run, script = start_booking(start)
    with suppress(psycopg.OperationalError), _broken_at(point, nth=1 if "call" in point else 3):
        drive(run)
    run.refresh_from_db()
    assert booked() == []
    assert (run.state, operation_of(run).status) == (RunState.TOOL_PREPARED, "PREPARED")
    assert run.lease_owner == ""
    drive_when_due(run)
    assert (run.result, len(script.calls), booked()) == ("booked", 2, [operation_of(run).id])


def test_a_commit_whose_answer_was_lost_is_read_back(start: Start) -> None:
    """A trigger holds the COMMIT open, the client's socket breaks, then it goes through."""
    change(
        """CREATE FUNCTION wait_for_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_advisory_lock_shared(77); PERFORM pg_advisory_unlock_shared(77);
            RETURN NULL; END $$"""
    )
    change(
        "CREATE CONSTRAINT TRIGGER slowly AFTER UPDATE ON runs_tooloperation"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.status = 'COMMITTED')"
        " EXECUTE FUNCTION wait_for_gate()"
    )
    run, script = start_booking(start)
    with another_connection() as gate:
        gate.execute("SELECT pg_advisory_lock(77)")
        cutter: list[threading.Thread] = []

        def cut_later(event: events.Event) -> None:
            if event.name is not events.Name.CALL_DONE:
                return
            backend = ask("SELECT pg_backend_pid()")
            wire = socket.socket(fileno=os.dup(connection.connection.pgconn.socket))

            def cut() -> None:
                with wire, another_connection() as look:
                    wait_until(lambda: _waits(look, backend), what="COMMIT waits at the gate")
                    wire.shutdown(socket.SHUT_RDWR)
                gate.execute("SELECT pg_advisory_unlock(77)")

            cutter.append(threading.Thread(target=cut))
            cutter[0].start()

        unsubscribe = events.subscribe(cut_later)
        try:
            drive(run)
        finally:
            unsubscribe()
            cutter[0].join()
    expire_lease(run)
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "booked", 1)
    assert booked() == [operation_of(run).id]


@contextmanager
def _broken_at(point: events.Name, *, nth: int) -> Iterator[None]:
    """End the server's side of this thread's connection at the nth such event."""
    seen = 0

    def end(event: events.Event) -> None:
        nonlocal seen
        seen += event.name is point
        if event.name is point and seen == nth:
            end_backend(ask("SELECT pg_backend_pid()"))

    unsubscribe = events.subscribe(end)
    try:
        yield
    finally:
        unsubscribe()


def _waits(look: Any, pid: int) -> bool:
    row = look.execute(
        "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]
    ).fetchone()
    return bool(row and row[0])
