"""Who carries a call out: whoever accepted it, under a lease of theirs, and else a worker."""

import threading
from collections.abc import Iterator
from typing import Final

import pytest
from django.db import connection
from django.db.models.functions import Now

from runs import Agent, External, engine, workers
from runs.commands import cancel_run, pause_run
from runs.gateway import driving
from runs.gateway.accepting import Accepted, Asked, accept_call
from runs.gateway.reading import read_operation
from runs.gateway.waiting import Board, Watch
from runs.models import AgentRun, GatewayCall
from runs.presenting import present_operation
from runs.queries import get_operation
from runs.state import OperationStatus
from tests.database.calling import ELSEWHERE, NEVER, carry_out, operation, run_of
from tests.database.kit import LOST, ON_DATABASE, run_edges, scripted_tool

pytestmark = ON_DATABASE
WEB: Final = "web 1"


def accept(key: str = "k1", **names: str) -> Accepted:
    asked = Asked(tool="pay", arguments={"amount": 1}, key=key, **names)  # type: ignore[arg-type]
    return accept_call(actor=ELSEWHERE, asked=asked, wait_seconds=30, owner=WEB)


def test_a_run_of_one_call_is_claimed_by_the_commit_that_writes_it() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    run = run_of(sent)
    assert (run.fence_token, run.lease_owner, run_edges(run)) == (1, WEB, ["CREATE"])
    # A worker that hears of it comes too late.
    assert not engine.advance(run_id=run.pk, owner="worker 1").claimed
    assert sent.work is not None
    assert engine.drive(sent.work).claimed
    run.refresh_from_db()
    assert (run.state, run.result, run.fence_token) == ("COMPLETED", "paid", 1)
    assert (len(script.calls), script.calls[0].fence_token) == (1, 1)


def test_a_worker_takes_over_whose_owner_dies_before_anything_was_sent() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    AgentRun.objects.update(lease_expires_at=Now())
    run = carry_out(sent)
    assert (run.state, run.fence_token, len(script.calls)) == ("COMPLETED", 2, 1)
    # Whoever held it before wakes up, and finds another token.
    assert sent.work is not None
    assert engine.drive(sent.work).lease_lost
    assert len(script.calls) == 1


def test_a_process_that_ends_gives_back_what_it_has_claimed() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    assert sent.work is not None
    engine.drain()
    try:
        assert engine.drive(sent.work).yielded
    finally:
        engine.drain(False)
    run = run_of(sent)
    assert (run.state, run.lease_owner, script.calls) == ("READY", "", [])
    assert carry_out(sent).state == "COMPLETED"


def test_a_known_key_claims_nothing_and_starts_nothing() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    first, again = accept(), accept()
    assert (again.replayed, again.work, again.call.pk) == (True, None, first.call.pk)
    assert (AgentRun.objects.count(), GatewayCall.objects.count()) == (1, 1)


def test_what_others_have_to_be_counted_for_first_is_claimed_by_whoever_counts() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    Agent(name="limited", decider=External(), tools=("pay",), concurrency=1)
    sent = accept(agent="limited")
    run = run_of(sent)
    assert (sent.work, run.lease_owner, run.fence_token) == (None, "", 0)
    assert carry_out(sent).state == "COMPLETED"


def test_a_call_of_a_thread_is_claimed_by_whoever_drives_it() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = accept(thread="t")
    assert (sent.work, run_of(sent).lease_owner) == (None, "")


def test_what_a_waiting_caller_reads_is_what_the_rows_say() -> None:
    scripted_tool(LOST, approval_policy=NEVER)
    sent = accept()
    assert sent.work is not None
    engine.drive(sent.work)
    found = read_operation(str(sent.call.operation_id))
    assert found is not None
    assert found.status == OperationStatus.UNKNOWN
    assert found.observations.all()
    assert present_operation(found) == present_operation(get_operation(found.pk))
    assert read_operation("op_of_nobody") is None


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """One of its own, since it is closed for good."""
    board = Board()
    monkeypatch.setattr("runs.gateway.waiting.board", board)
    # Nobody hears of anything from the rows, but by looking at them oneself.
    monkeypatch.setattr("runs.gateway.waiting.LOOK_SECONDS", 3600)
    yield board
    board._ends_listening()


def wait_for(watch: Watch, *, settled_only: bool) -> threading.Thread:
    """Somebody who waits for longer than a test may take."""
    thread = threading.Thread(
        target=watch.wait, kwargs={"seconds": 3600, "settled_only": settled_only}, daemon=True
    )
    thread.start()
    return thread


def test_whoever_waits_hears_of_the_commit_of_another_thread(board: Board) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    with board.watching(str(sent.call.operation_id)) as watch:
        assert watch is not None
        waiter = wait_for(watch, settled_only=True)
        assert sent.work is not None
        engine.drive(sent.work)
        waiter.join(60)
        assert (waiter.is_alive(), watch.status) == (False, OperationStatus.COMMITTED)


def test_what_takes_long_is_no_end_for_whoever_waits_for_one(board: Board) -> None:
    scripted_tool(LOST, approval_policy=NEVER)
    sent = accept()
    name = str(sent.call.operation_id)
    with board.watching(name) as patient, board.watching(name) as other:
        assert patient is not None
        assert other is not None
        waits_on, comes_back = (
            wait_for(patient, settled_only=True),
            wait_for(other, settled_only=False),
        )
        assert sent.work is not None
        engine.drive(sent.work)
        comes_back.join(60)
        assert operation(sent).status == "UNKNOWN"
        assert (comes_back.is_alive(), waits_on.is_alive()) == (False, True)
        # Nobody is kept waiting by a process that ends.
        board.close()
        waits_on.join(60)
        assert not waits_on.is_alive()


def test_what_was_settled_before_somebody_waited_is_seen_in_its_row(board: Board) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    assert sent.work is not None
    engine.drive(sent.work)
    with board.watching(str(sent.call.operation_id)) as watch:
        assert watch is not None
        assert watch.status is None
        watch.look()
        waiter = wait_for(watch, settled_only=True)
        waiter.join(60)
        assert not waiter.is_alive()


def test_a_call_that_its_run_never_took_up_ends_with_the_run(board: Board) -> None:
    scripted_tool("paid", "paid", approval_policy=NEVER)
    first = accept(thread="t")
    carry_out(first)
    pause_run(actor=ELSEWHERE, run_id=run_of(first).pk)
    second = accept("k2", thread="t")
    with board.watching(str(second.call.operation_id)) as watch:
        assert watch is not None
        watch.look()
        assert watch.status is None
        cancel_run(actor=ELSEWHERE, run_id=run_of(first).pk)
        assert carry_out(second).state == "CANCELLED"
        watch.look()
        assert watch.status == OperationStatus.CANCELLED


def test_whoever_watches_when_the_board_has_gone_to_sleep_wakes_it(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.gateway.waiting.LOOK_SECONDS", 0)
    monkeypatch.setattr("runs.gateway.waiting.IDLE_SECONDS", 0)
    with board.watching("op_of_nobody"):
        looker = board._looker
    assert looker is not None
    looker.join(60)
    # It said so before it ended.
    assert (looker.is_alive(), board._looker) == (False, None)
    with board.watching("op_of_nobody"):
        assert board._looker is not None


def test_a_process_that_may_begin_nothing_gives_back_what_it_has_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = accept()
    this_process = workers._Me()
    this_process.closed.set()
    monkeypatch.setattr(workers, "_me", this_process)
    assert not driving._drive_once(run_of(sent).pk, sent.work)
    run = run_of(sent)
    assert (run.state, run.lease_owner, script.calls) == ("READY", "", [])
    assert carry_out(sent).state == "COMPLETED"


def test_whoever_lets_a_run_go_looks_for_what_came_meanwhile() -> None:
    def accept_elsewhere() -> None:
        accept("k2", thread="t")
        connection.close()

    def meanwhile(_: object) -> str:
        # Whoever accepts it cannot have the run.
        other = threading.Thread(target=accept_elsewhere)
        other.start()
        other.join()
        return "paid"

    script = scripted_tool(meanwhile, approval_policy=NEVER)
    sent = accept(thread="t")
    progress = engine.advance(run_id=run_of(sent).pk, owner=WEB)
    assert (progress.called, progress.yielded, len(script.calls)) == (True, True, 1)
    # Then the run is due, and all is done.
    assert not engine.advance(run_id=run_of(sent).pk, owner=WEB).called
    assert not GatewayCall.objects.filter(taken_at__isnull=True).exists()
