"""A TRANSACTIONAL tool and the record of its operation: both, or neither."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.engine import Progress, advance
from runs.models import AgentRun
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
    listening,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
    verdicts,
)
from tests.database.till import book, booked, booking, start_booking
from tools import Approve, Call, NotSent

pytestmark = [ON_DATABASE, pytest.mark.usefixtures("till")]

Start = Callable[..., AgentRun]
# Every moment of a step at which its worker may end, before and after the one commit.
DEATHS = [
    (events.Name.CALL_STARTING, 1, False),
    (events.Name.CALL_DONE, 1, False),
    (events.Name.COMMIT_STARTING, 3, False),
    (events.Name.COMMIT_DONE, 3, True),
]


# -- Both or neither ----------------------------------------------------------------------------


def test_the_effect_and_its_record_come_together(start: Start) -> None:
    run, _ = start_booking(start)
    drive(run)
    operation = operation_of(run)
    assert (run.state, run.result, operation.status) == (RunState.COMPLETED, "booked", "COMMITTED")
    assert booked() == [operation.id]
    # xmin is the transaction that wrote a row: it is one and the same.
    assert ask("SELECT xmin::text FROM till") == ask(
        "SELECT xmin::text FROM runs_toolobservation WHERE run_id = %s", run.id
    )
    assert operation_edges(run) == ["INTEND", "SEND", "COMMIT"]


@pytest.mark.parametrize(("point", "nth", "is_committed"), DEATHS)
def test_a_worker_that_dies_leaves_both_or_neither(
    start: Start, point: events.Name, nth: int, is_committed: bool
) -> None:
    run, script = start_booking(start)
    with dies_at(point, nth=nth):
        drive(run)
    operation = operation_of(run)
    assert booked() == ([operation.id] if is_committed else [])
    assert operation.status == ("COMMITTED" if is_committed else "PREPARED")
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.state, run.result) == (RunState.COMPLETED, "booked")
    assert booked() == [operation.id]
    # Nothing about it was ever unknown.
    assert "LOSE_OUTCOME" not in operation_edges(run)
    assert "TAKE_OVER" not in run_edges(run)
    assert len(script.calls) == (1 if is_committed or point == "call_starting" else 2)


def test_a_worker_that_was_replaced_while_its_function_ran_books_nothing(start: Start) -> None:
    def be_replaced(call: Call) -> str:
        book(call)
        with another_connection() as other:
            other.execute(
                "UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1,"
                " lease_owner = 'worker 2'"
            )
        return "stale"

    run, script = start_booking(start, be_replaced, book)
    progress = drive(run)
    assert progress.lease_lost
    assert booked() == []
    assert (run.state, operation_of(run).status) == (RunState.TOOL_PREPARED, "PREPARED")
    # What was undone is no evidence of anything.
    assert verdicts(run) == []
    expire_lease(run)
    drive(run, owner="worker 2")
    assert (run.result, len(script.calls)) == ("booked", 2)
    assert booked() == [operation_of(run).id]


def test_of_two_workers_in_the_function_at_once_one_books(start: Start) -> None:
    """The first stands still inside its function; a second one takes over and finishes."""
    entered, may_go_on = threading.Event(), threading.Event()

    def stand_still(call: Call) -> str:
        entered.set()
        assert may_go_on.wait(20)
        change("INSERT INTO till VALUES (%s, 1) ON CONFLICT DO NOTHING", call.operation_id)
        return "stale"

    run, script = start_booking(start, stand_still, book)
    progress: list[Progress] = []

    def work() -> None:
        progress.append(advance(run_id=run.id, owner="worker 1"))
        connection.close()

    first = threading.Thread(target=work)
    first.start()
    assert entered.wait(20)
    expire_lease(run)
    drive(run, owner="worker 2")
    may_go_on.set()
    first.join()
    assert [one.lease_lost for one in progress] == [True]
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, "booked", 2)
    assert booked() == [operation_of(run).id]
    assert ask("SELECT amount FROM till") == 2  # the second try's


# -- Beside other calls -------------------------------------------------------------------------


def test_two_such_calls_of_one_decision_are_two_transactions(start: Start) -> None:
    seen: list[list[str]] = []

    def look(call: Call) -> str:
        seen.append(booked())
        return book(call)

    booking(look)
    booking(look, name="second")
    run = start(decider=call_once(ToolCall("pay"), ToolCall("second")), tools=("pay", "second"))
    drive(run)
    first, second = (operation_of(run, ordinal=n) for n in (0, 1))
    assert run.state == RunState.COMPLETED
    assert seen == [[], [first.id]]
    assert booked() == sorted([first.id, second.id])


def test_no_transaction_is_open_while_a_network_call_is_made(start: Start) -> None:
    found: list[Any] = []

    def call_out(call: Call) -> str:
        found.append(
            ask(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%%'"
            )
        )
        found.append(booked())
        return "sent"

    booking()
    scripted_tool(call_out, name="send")
    run = start(decider=call_once(ToolCall("pay"), ToolCall("send")), tools=("pay", "send"))
    drive(run)
    assert run.state == RunState.COMPLETED
    assert found == [0, [operation_of(run).id]]


def test_no_transaction_is_open_while_the_decider_is_asked(start: Start) -> None:
    seen: list[tuple[list[str], bool]] = []

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay"))
        seen.append((booked(), connection.in_atomic_block))
        return Finish(context.last.result)

    booking()
    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert seen == [([operation_of(run).id], False)]


def test_a_step_costs_two_commits_as_any_other(start: Start) -> None:
    def commits(steps: int) -> int:
        booking(*[book] * steps, name=f"pay{steps}", repeatable=True)

        def decide(context: Context) -> Decision:
            if context.step_number <= steps:
                return CallTools(ToolCall(f"pay{steps}"))
            return Finish(None)

        run = start(decider=decide, tools=(f"pay{steps}",), repeats_allowed=100)
        with listening() as heard:
            drive(run)
        assert run.state == RunState.COMPLETED
        return [event.name for event in heard].count(events.Name.COMMIT_DONE)

    assert commits(7) - commits(3) == 2 * 4


def test_a_call_after_one_that_waits_for_a_signature_waits_too(start: Start) -> None:
    booking()
    booking(name="big", approval_policy=Approve())
    run = start(decider=call_once(ToolCall("pay"), ToolCall("big")), tools=("pay", "big"))
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    assert booked() == [operation_of(run).id]
    assert operation_of(run).status == "COMMITTED"


def test_a_cancel_request_during_the_function_is_honoured_after_the_commit(start: Start) -> None:
    def cancel_meanwhile(call: Call) -> str:
        with another_connection() as other:
            other.execute(
                "UPDATE runs_agentrun SET cancel_requested_at = now(), cancel_requested_by = 'ann'"
            )
        return book(call)

    booking(cancel_meanwhile)
    scripted_tool(NotSent("no route"), name="send")
    run = start(decider=call_once(ToolCall("pay"), ToolCall("send")), tools=("pay", "send"))
    drive(run)
    drive_when_due(run)
    assert (run.state, operation_of(run).status) == (RunState.CANCELLED, "COMMITTED")
    assert booked() == [operation_of(run).id]
