"""Cancelling, pausing, correcting: safe at any moment, and the row says who asked."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from runs.access import operator
from runs.commands import cancel_run, compensate_run, pause_run, retry_run
from runs.errors import (
    InvalidInput,
    NothingToCorrect,
    NotPermitted,
    ParentDecides,
    UnknownRun,
    WrongState,
)
from runs.lease import claim
from runs.models import AgentRun
from runs.state import RunState
from tests.database.controlling import (
    ANN,
    READER,
    as_it_stands,
    asked_of,
    completed,
    failed,
    finish,
    newest_edge,
    pause_in,
    waiting,
)
from tests.database.gating import Start, tamper
from tests.database.kit import ON_DATABASE, another_connection, ask, change, drive
from tools import Rejected

pytestmark = ON_DATABASE

COMMANDS = {
    "cancel": cancel_run,
    "pause": pause_run,
    "retry": retry_run,
    "compensate": compensate_run,
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_nobody_asks_without_the_scope_or_of_a_run_that_is_not_there(
    start: Start, name: str
) -> None:
    run = start(decider=finish)
    before = as_it_stands(run)
    with pytest.raises(NotPermitted):
        COMMANDS[name](actor=READER, run_id=run.id)
    with pytest.raises(UnknownRun):
        COMMANDS[name](actor=ANN, run_id=uuid4())
    assert as_it_stands(run) == before
    assert asked_of(run) == []


@pytest.mark.parametrize("name", ["cancel", "pause", "compensate"])
@pytest.mark.parametrize("reason", ["a\0b", "x" * 2_001, 7])
def test_a_reason_that_cannot_be_stored_is_refused_by_name(
    start: Start, name: str, reason: object
) -> None:
    run = start(decider=finish)
    before = as_it_stands(run)
    with pytest.raises(InvalidInput, match="reason"):
        COMMANDS[name](actor=ANN, run_id=run.id, reason=reason)  # type: ignore[arg-type]
    assert as_it_stands(run) == before


# -- Cancel -------------------------------------------------------------------------------------


def test_a_cancel_can_ask_for_compensation_and_the_row_says_why(start: Start) -> None:
    run = start(decider=finish)
    asked = cancel_run(actor=ANN, run_id=run.id, compensate=True, reason="wrong order")
    assert (asked.cancel_requested_by, asked.cancel_compensates) == ("ann", True)
    row = run.requests.get()
    assert (row.kind, row.by, row.reason, row.details) == (
        "cancel",
        "ann",
        "wrong order",
        {"compensate": True},
    )


def test_a_later_word_adds_the_compensation_and_takes_nothing_away(start: Start) -> None:
    run = start(decider=finish)
    first = cancel_run(actor=ANN, run_id=run.id)
    more = cancel_run(actor=operator("bob"), run_id=run.id, compensate=True)
    assert more.cancel_compensates
    assert (more.cancel_requested_by, more.cancel_requested_at) == (
        "ann",
        first.cancel_requested_at,
    )
    less = cancel_run(actor=operator("eve"), run_id=run.id)
    assert less.cancel_compensates
    assert asked_of(run) == [("cancel", "ann"), ("cancel", "bob")]


def test_a_cancelled_run_is_not_cancelled_with_compensation_any_more(start: Start) -> None:
    run = start(decider=finish)
    cancel_run(actor=ANN, run_id=run.id)
    drive(run)
    assert run.state == RunState.CANCELLED
    assert cancel_run(actor=ANN, run_id=run.id).state == RunState.CANCELLED
    with pytest.raises(WrongState):
        cancel_run(actor=ANN, run_id=run.id, compensate=True)
    assert len(asked_of(run)) == 1


def test_what_is_being_corrected_is_not_cancelled(start: Start) -> None:
    run = completed(start)
    compensate_run(actor=ANN, run_id=run.id)
    with pytest.raises(WrongState, match="being corrected"):
        cancel_run(actor=ANN, run_id=run.id)


def test_a_cancel_waits_for_the_commit_under_way_and_never_meets_a_final_run(start: Start) -> None:
    """The run ends in another connection while the request waits for its row."""
    run = start(decider=finish)
    with another_connection(autocommit=False) as other:
        other.execute("SET session_replication_role = replica")
        other.execute(
            "UPDATE runs_agentrun SET state = 'COMPLETED', wake_at = NULL, sweep_at = NULL,"
            " finished_at = now() WHERE id = %s",
            [run.id],
        )
        change("SET lock_timeout = '100ms'")
        with pytest.raises(Exception, match="lock timeout"):
            cancel_run(actor=ANN, run_id=run.id)
        other.commit()
    with pytest.raises(WrongState):
        cancel_run(actor=ANN, run_id=run.id)
    run.refresh_from_db()
    assert (run.cancel_requested_at, run.wake_at) == (None, None)
    assert asked_of(run) == []


# -- Pause --------------------------------------------------------------------------------------


def test_a_pause_is_written_once_with_who_asked_and_makes_nothing_due(start: Start) -> None:
    run = waiting(start)
    first = pause_run(actor=ANN, run_id=run.id, reason="hold on")
    assert (first.pause_reason, first.wake_at, first.state) == ("hold on", None, "WAITING")
    again = pause_run(actor=operator("bob"), run_id=run.id, reason="me too")
    assert (again.paused_at, again.pause_reason) == (first.paused_at, "hold on")
    assert asked_of(run) == [("pause", "ann")]


def test_a_pause_without_a_reason_names_who_asked(start: Start) -> None:
    run = start(decider=finish)
    assert "ann" in pause_run(actor=ANN, run_id=run.id).pause_reason


def test_a_pause_of_the_engine_keeps_its_reason(start: Start) -> None:
    run = start(decider=finish)
    pause_in(run, "it insists")
    assert pause_run(actor=ANN, run_id=run.id, reason="mine").pause_reason == "it insists"
    assert asked_of(run) == []


def test_a_pause_touches_neither_state_nor_lease_nor_date_of_a_held_run(start: Start) -> None:
    run = start(decider=finish)
    assert claim(run_id=run.id, owner="worker 1") is not None
    before = as_it_stands(run)
    pause_run(actor=ANN, run_id=run.id)
    changed = {name for name, value in as_it_stands(run).items() if value != before[name]}
    assert changed == {"paused_at", "pause_reason"}


def test_a_paused_run_opens_no_step(start: Start) -> None:
    run = start(decider=finish)
    pause_run(actor=ANN, run_id=run.id)
    drive(run)
    assert (run.state, run.step_number) == ("READY", 0)


def test_a_run_that_ended_is_not_paused(start: Start) -> None:
    run = start(decider=finish)
    drive(run)
    with pytest.raises(WrongState, match="pause"):
        pause_run(actor=ANN, run_id=run.id)
    assert asked_of(run) == []


# -- Compensate ---------------------------------------------------------------------------------


def test_an_active_run_is_cancelled_with_compensation(start: Start) -> None:
    run = start(decider=finish)
    asked = compensate_run(actor=ANN, run_id=run.id, reason="wrong")
    assert (asked.cancel_requested_by, asked.cancel_compensates) == ("ann", True)
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
    compensate_run(actor=operator("bob"), run_id=run.id)
    assert asked_of(run) == [("compensate", "ann")]


def test_a_completed_run_is_opened_again_and_will_end_as_cancelled(start: Start) -> None:
    run = completed(start)
    before = run.version
    opened = compensate_run(actor=ANN, run_id=run.id, reason="wrong order")
    assert (opened.state, opened.version, opened.finished_at) == ("COMPENSATING", before + 1, None)
    assert (opened.compensation_reason, opened.compensation_ending) == ("wrong order", "CANCELLED")
    assert opened.compensating_since is not None
    assert ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun")
    assert newest_edge(run) == ("COMPENSATE", "COMPLETED", "COMPENSATING", "ann")
    assert asked_of(run) == [("compensate", "ann")]


def test_a_failed_run_will_end_as_failed(start: Start) -> None:
    run, _ = failed(start)
    assert compensate_run(actor=ANN, run_id=run.id).compensation_ending == "FAILED"
    assert newest_edge(run)[:3] == ("COMPENSATE", "FAILED", "COMPENSATING")


def test_a_request_of_its_former_life_does_not_cancel_a_run_that_is_opened_again(
    start: Start,
) -> None:
    run = completed(start)
    AgentRun.objects.filter(id=run.id).update(cancel_requested_by="eve", paused_at=run.created_at)
    tamper("UPDATE runs_agentrun SET cancel_requested_at = now() WHERE id = %s", run.id)
    opened = compensate_run(actor=ANN, run_id=run.id)
    assert (opened.cancel_requested_at, opened.paused_at) == (None, None)


def test_asking_again_while_it_is_corrected_changes_nothing(start: Start) -> None:
    run = completed(start)
    compensate_run(actor=ANN, run_id=run.id)
    before = as_it_stands(run)
    compensate_run(actor=operator("bob"), run_id=run.id)
    assert as_it_stands(run) == before
    assert len(asked_of(run)) == 1


@pytest.mark.parametrize("make", [lambda start: completed(start, writes=False), "refused"])
def test_a_run_that_did_nothing_has_nothing_to_correct(
    start: Start, make: str | Callable[[Start], AgentRun]
) -> None:
    if callable(make):
        run = make(start)
    else:
        run, _ = failed(start, Rejected("no"))
        tamper("UPDATE runs_tooloperation SET status = 'REJECTED'")
    before = as_it_stands(run)
    with pytest.raises(NothingToCorrect):
        compensate_run(actor=ANN, run_id=run.id)
    assert as_it_stands(run) == before
    assert asked_of(run) == []


def test_a_child_of_an_active_run_is_corrected_by_its_parent(start: Start) -> None:
    child, parent = completed(start), start(decider=finish)
    AgentRun.objects.filter(id=child.id).update(parent=parent, parent_operation="op_1", depth=1)
    with pytest.raises(ParentDecides) as refused:
        compensate_run(actor=ANN, run_id=child.id)
    assert refused.value.parent_id == str(parent.id)
    drive(parent)
    assert compensate_run(actor=ANN, run_id=child.id).state == "COMPENSATING"


def test_requests_are_never_changed_or_removed(start: Start) -> None:
    run = start(decider=finish)
    pause_run(actor=ANN, run_id=run.id)
    for sql in ("UPDATE runs_controlrequest SET by = 'eve'", "DELETE FROM runs_controlrequest"):
        with pytest.raises(Exception, match=r"append-only|stay while"):
            change(sql)
    assert asked_of(run) == [("pause", "ann")]
