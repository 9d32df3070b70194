"""The commit door: whole or not at all, once, under the token it was planned under."""

import os
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.change import Change, Edge, NewDecision, Release
from runs.commit import Written, commit_if_held
from runs.engine import advance
from runs.errors import InsideTransaction, LeaseLost
from runs.lease import Claimed, claim
from runs.models import AgentRun, ToolObservation, ToolOperation
from runs.state import RunState
from runs.statement import Held
from tests.database.kit import ON_DATABASE, another_connection, ask, change, drive, scripted_tool
from tools import EffectType

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
TABLES = [
    "step", "stepattempt", "modeldecision", "tooloperation", "toolobservation", "checkpoint",
    "transition",
]  # fmt: skip


@pytest.fixture
def claimed(start: Start) -> Claimed:
    """A run in READY whose lease this test holds."""
    taken = claim(run_id=start(decider=lambda context: Finish(1)).id, owner="worker 1")
    assert taken is not None
    return taken


def _held(claimed: Claimed, **other: Any) -> Held:
    given: dict[str, Any] = {
        "run_id": claimed.lease.run_id,
        "version": claimed.row["version"],
        "fence_token": claimed.lease.fence_token,
        "actor": claimed.lease.owner,
        "step_id": None,
        "attempt_id": None,
    }
    return Held(**given | other)


def _open_step() -> Change:
    return Change(
        edges=[Edge("OPEN_STEP", "READY", "DECIDING", "", 1, 1)],
        run={"state": "DECIDING", "step_number": 1},
        open_step=1,
        open_attempt=1,
    )


def _everything(claimed: Claimed, step_id: int) -> Change:
    """A change with a row for every table, from DECIDING to TOOL_PREPARED."""
    operation = ToolOperation(
        id=f"op_{claimed.lease.run_id}",
        step_number=1,
        step_id=step_id,
        ordinal=0,
        status="PREPARED",
        tool="pay",
        arguments={"amount": 1},
        arguments_digest="d",
        idempotency_key="k",
    )
    seen = ToolObservation(
        operation_id=operation.id, source="person", verdict="unknown", attempt=1, fence_token=1
    )
    return Change(
        edges=[
            Edge("RECORD_DECISION", "DECIDING", "DECISION_RECORDED", "", 1, 1),
            Edge("PREPARE", "DECISION_RECORDED", "TOOL_PREPARED", "", 1, 1),
            Edge("INTEND", "", "PREPARED", "", 1, 1, operation.id),
        ],
        run={"state": "TOOL_PREPARED", "failures": 1},
        close_attempt="parked",
        decision=NewDecision("call_tools", {"v": 1}, "test", "1", {}),
        checkpoint={"v": 1},
        new_operations=[operation],
        observations=[seen],
        release=Release(wake_in=0.0, can_cancel=True),
    )


# -- Whole or not at all ------------------------------------------------------------------------


def test_a_change_is_written_whole(claimed: Claimed) -> None:
    opened = commit_if_held(_held(claimed), _open_step())
    written = commit_if_held(
        _held(
            claimed, version=opened.version, step_id=opened.step_id, attempt_id=opened.attempt_id
        ),
        _everything(claimed, opened.step_id or 0),
    )
    assert _rows() == {
        "step": 1, "stepattempt": 1, "modeldecision": 1, "tooloperation": 1,
        "toolobservation": 1, "checkpoint": 1, "transition": 5,
    }  # fmt: skip
    run = AgentRun.objects.get(id=claimed.lease.run_id)
    assert (run.state, run.failures, run.lease_owner) == ("TOOL_PREPARED", 1, "")
    assert (run.version, written.version) == (opened.version + 1, opened.version + 1)
    assert ask("SELECT outcome FROM runs_stepattempt") == "parked"
    assert ask("SELECT count(DISTINCT (version, at)) FROM runs_transition") == 3


@pytest.mark.parametrize(
    "stale",
    [
        {"fence_token": 0},
        {"fence_token": 99},
        {"version": 0},
        {"version": 99},
        {"run_id": "00000000-0000-0000-0000-000000000000"},
    ],
)
def test_a_stale_token_or_version_writes_nothing_at_all(
    claimed: Claimed, stale: dict[str, Any]
) -> None:
    opened = commit_if_held(_held(claimed), _open_step())
    before = _content()
    held = _held(
        claimed,
        **{
            "version": opened.version,
            "step_id": opened.step_id,
            "attempt_id": opened.attempt_id,
        }
        | stale,
    )
    with pytest.raises(LeaseLost) as lost:
        commit_if_held(held, _everything(claimed, opened.step_id or 0))
    assert lost.value.fence_token == held.fence_token
    assert _content() == before


def test_a_worker_that_was_taken_over_writes_nothing(claimed: Claimed) -> None:
    change("UPDATE runs_agentrun SET lease_expires_at = now() WHERE lease_owner <> ''")
    successor = claim(run_id=claimed.lease.run_id, owner="worker 2")
    assert successor is not None
    before = _content()
    with pytest.raises(LeaseLost):
        commit_if_held(_held(claimed), _open_step())
    assert _content() == before
    commit_if_held(_held(successor), _open_step())


def test_the_same_change_is_written_once(claimed: Claimed) -> None:
    commit_if_held(_held(claimed), _open_step())
    before = _content()
    with pytest.raises(LeaseLost):
        commit_if_held(_held(claimed), _open_step())
    assert _content() == before


def test_a_change_inside_a_transaction_is_refused(claimed: Claimed) -> None:
    with transaction.atomic(), pytest.raises(InsideTransaction):
        commit_if_held(_held(claimed), _open_step())
    with transaction.atomic(), pytest.raises(InsideTransaction):
        advance(run_id=claimed.lease.run_id, owner="worker 1")


def test_a_commit_tells_what_the_worker_may_not_know(claimed: Claimed) -> None:
    change("UPDATE runs_agentrun SET cancel_requested_at = now(), cancel_requested_by = 'ann'")
    written = commit_if_held(_held(claimed), _open_step())
    assert written.cancel_requested_by == "ann"
    assert 0 < written.lease_left <= 30
    assert written.step_id == ask("SELECT id FROM runs_step")
    assert written.attempt_id == ask("SELECT id FROM runs_stepattempt")


def test_a_lease_is_only_ever_lengthened(claimed: Claimed) -> None:
    longer = commit_if_held(_held(claimed), Change(lease_seconds=500.0))
    assert 490 < longer.lease_left <= 500
    kept = commit_if_held(_held(claimed, version=longer.version), Change(lease_seconds=1.0))
    assert 480 < kept.lease_left <= 500


# -- One statement, two commits per step --------------------------------------------------------


def test_a_steady_tool_step_is_two_statements_two_trips_and_two_commits(start: Start) -> None:
    steps = 12
    scripted_tool(*range(steps), effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        if context.step_number <= steps:
            return CallTools(ToolCall("pay"))
        return Finish(None)

    run = start(decider=decide, tools=("pay",))
    with _traced(at=events.Name.DECIDER_STARTING) as said:
        drive(run)
    assert run.state == RunState.COMPLETED
    # From one question to the next; the first steps parse each shape of statement once.
    steady = said[4:]
    assert len(steady) == steps - 3
    for step in steady:
        # A simple query is a trip of its own; an extended one is a trip that ends with Sync.
        trips = re.findall(r"\tF\t\d+\t(Sync|Query)", step)
        assert trips == ["Sync", "Sync"], step
        # Each statement outside a transaction block is one commit.
        assert len(re.findall(r"\tB\t\d+\tCommandComplete", step)) == 2
        assert re.findall(r"\tB\t\d+\tReadyForQuery\t (.)", step) == ["I", "I"]


def test_the_number_of_commits_grows_by_two_per_step(start: Start) -> None:
    def written(steps: int) -> int:
        scripted_tool(*range(steps), name=f"pay{steps}", effect=EffectType.READ)

        def decide(context: Context) -> Decision:
            if context.step_number <= steps:
                return CallTools(ToolCall(f"pay{steps}"))
            return Finish(None)

        run = start(decider=decide, tools=(f"pay{steps}",))
        before = run.version
        drive(run)
        # Every write of a run's state is one version.
        return run.version - before

    assert written(9) - written(4) == 2 * 5


@contextmanager
def _traced(*, at: events.Name) -> Iterator[list[str]]:
    """What libpq says and hears on this thread's connection, cut at every such event."""
    connection.ensure_connection()
    parts: list[str] = []
    with tempfile.TemporaryFile() as file:
        wire = connection.connection.pgconn
        wire.trace(os.dup(file.fileno()))
        read_to = 0

        def cut(event: events.Event) -> None:
            nonlocal read_to
            if event.name is at:
                text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size - read_to, read_to)
                read_to += len(text)
                parts.append(text.decode(errors="replace"))

        unsubscribe = events.subscribe(cut)
        try:
            yield parts
        finally:
            unsubscribe()
            wire.untrace()


# -- A connection that breaks in the middle of the commit ---------------------------------------


def test_a_connection_lost_before_the_commit_is_tried_again(claimed: Claimed) -> None:
    _end_backend(_own_backend())
    written = commit_if_held(_held(claimed), _open_step())
    assert written.version == claimed.row["version"] + 1
    assert _rows()["step"] == 1


def test_a_backend_that_ends_while_it_waits_has_written_nothing_and_is_tried_again(
    claimed: Claimed,
) -> None:
    backend = _own_backend()
    with another_connection(autocommit=False) as blocker:
        blocker.execute("SELECT 1 FROM runs_agentrun FOR UPDATE")
        helper = threading.Thread(target=_end_when_waiting, args=(backend, blocker))
        helper.start()
        written = commit_if_held(_held(claimed), _open_step())
        helper.join()
    assert written.version == claimed.row["version"] + 1
    assert (_rows()["step"], _rows()["transition"]) == (1, 2)


@pytest.mark.parametrize("retries_before_release", [0, 1])
def test_a_commit_that_arrived_although_its_answer_did_not_is_recognised(
    claimed: Claimed, retries_before_release: int
) -> None:
    """The client's socket breaks while its statement waits for a lock, then gets it."""
    backend = _own_backend()
    wire = socket.socket(fileno=os.dup(connection.connection.pgconn.socket))
    with another_connection(autocommit=False) as blocker, wire:
        blocker.execute("SELECT 1 FROM runs_agentrun FOR UPDATE")

        def cut() -> None:
            _until(lambda look: _waits(look, backend))
            wire.shutdown(socket.SHUT_RDWR)
            if retries_before_release:
                # The second try waits behind the first one, which is still alive.
                _until(lambda look: _waiting(look) == 2)
            blocker.rollback()

        helper = threading.Thread(target=cut)
        helper.start()
        written = commit_if_held(_held(claimed), _open_step())
        helper.join()
    assert written == Written(
        version=claimed.row["version"] + 1,
        lease_left=written.lease_left,
        cancel_requested_by=None,
        cancel_compensates=False,
        is_paused=False,
        step_id=ask("SELECT id FROM runs_step"),
        attempt_id=ask("SELECT id FROM runs_stepattempt"),
        policy_generation=0,
    )
    assert (_rows()["step"], _rows()["transition"]) == (1, 2)


def test_a_lease_that_was_lost_while_the_connection_was_broken_is_noticed(
    claimed: Claimed,
) -> None:
    _end_backend(_own_backend())
    with another_connection() as other:
        other.execute(
            "UPDATE runs_agentrun SET fence_token = fence_token + 1, version = version + 1"
        )
    with pytest.raises(LeaseLost):
        commit_if_held(_held(claimed), _open_step())
    assert _rows()["step"] == 0


def _own_backend() -> int:
    return int(ask("SELECT pg_backend_pid()"))


def _end_backend(pid: int) -> None:
    with another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


def _end_when_waiting(pid: int, blocker: Any) -> None:
    _until(lambda look: _waits(look, pid))
    _end_backend(pid)
    blocker.rollback()


def _waits(look: Any, pid: int) -> bool:
    row = look.execute(
        "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [pid]
    ).fetchone()
    return bool(row and row[0])


def _waiting(look: Any) -> int:
    row = look.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    ).fetchone()
    return int(row[0])


def _until(condition: Callable[[Any], bool]) -> None:
    """Ask until it holds, for 10 seconds at most."""
    gives_up = threading.Event()
    threading.Timer(10, gives_up.set).start()
    with another_connection() as look:
        while not condition(look):
            assert not gives_up.is_set(), "it never came to that"


def _rows() -> dict[str, int]:
    return {table: ask(f"SELECT count(*) FROM runs_{table}") for table in TABLES}


def _content() -> list[Any]:
    """Every row of every table, as text."""
    return [
        ask(f"SELECT string_agg(t::text, '|' ORDER BY t::text) FROM runs_{table} t")
        for table in [*TABLES, "agentrun"]
    ]
