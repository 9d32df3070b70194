"""How workers are known to have ended, and what follows from it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_django import Settings

from agentops.exits import WorkerExits
from agentops.supervisor import Ended
from runs import workers
from runs.access import OPERATIONS_RECONCILE, Actor, operator
from runs.errors import InvalidInput, NotPermitted
from runs.incarnation import start_of
from runs.models import AgentRun, StepAttempt, ToolOperation, Worker
from runs.worker_ends import (
    KEPT,
    EndedBy,
    SaidEnds,
    UnknownWorker,
    WorkerSeenAlive,
    end,
    end_child,
    end_gone_neighbours,
    end_workers,
    forget_old,
)
from tests.database.kit import ON_DATABASE, another_connection, ask, change
from tests.database.worker_rows import (
    LEASE,
    ON_LINUX,
    a_worker,
    another_process,
    how_it_ended,
    is_zombie,
    waiting_runs,
)
from tests.processes import is_stopped, wait_until

Start = Callable[..., AgentRun]

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE


# -- Neighbours ---------------------------------------------------------------------------------


@ON_LINUX
def test_a_neighbour_whose_id_passed_to_another_process_is_ended() -> None:
    started = start_of(os.getpid())
    assert started is not None
    a_worker("earlier", pid_started=started - 1)
    a_worker("this very one")
    assert end_gone_neighbours(me="me") == ["earlier"]
    assert how_it_ended("earlier") == EndedBy.SUCCESSOR
    assert Worker.objects.get(name="earlier").evidence.startswith("me found process ")
    assert how_it_ended("this very one") == ""


@ON_LINUX
def test_a_killed_neighbour_is_ended_and_a_stopped_one_is_not() -> None:
    with another_process() as other:
        a_worker(pid=other.pid, pid_started=start_of(other.pid))
        other.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(other.pid), what="it stands still")
        assert end_gone_neighbours(me="me") == []
        other.kill()
        wait_until(lambda: is_zombie(other.pid), what="it has ended")
        assert end_gone_neighbours(me="me") == ["w"]


@ON_LINUX
@pytest.mark.parametrize("fact", ["host", "boot_id", "pid_namespace"])
def test_a_worker_of_another_place_is_left_alone(fact: str) -> None:
    a_worker(pid_started=1, **{fact: "elsewhere"})
    assert end_gone_neighbours(me="me") == []


@ON_LINUX
def test_a_worker_that_was_just_seen_is_left_alone_whatever_the_kernel_shows() -> None:
    """Two machines woken from one memory snapshot look alike to the kernel."""
    a_worker(pid_started=1, seen=timedelta(seconds=LEASE / 2))
    assert end_gone_neighbours(me="me") == []


@ON_LINUX
def test_a_process_does_not_end_itself() -> None:
    a_worker("me", pid_started=1)
    assert end_gone_neighbours(me="me") == []


# -- Children -----------------------------------------------------------------------------------


def child_ended(*, pid: int, pid_started: int | None, alive_for: float = 60.0) -> list[str]:
    return end_child(
        pid=pid,
        pid_started=pid_started,
        alive_for=timedelta(seconds=alive_for),
        evidence="it was ended by SIGKILL",
    )


def test_a_collected_child_is_ended_also_if_it_was_just_seen() -> None:
    worker = a_worker(pid=4242, pid_started=17, seen=timedelta(0))
    assert child_ended(pid=4242, pid_started=17) == ["w"]
    assert how_it_ended() == EndedBy.SUPERVISOR
    worker.refresh_from_db()
    assert worker.evidence == "it was ended by SIGKILL"
    assert child_ended(pid=4242, pid_started=17) == []


def test_a_worker_that_has_a_childs_former_id_is_left_alone() -> None:
    a_worker(pid=4242, pid_started=18)
    assert child_ended(pid=4242, pid_started=17) == []
    assert child_ended(pid=4242, pid_started=None) == []


def test_without_a_start_time_only_a_worker_younger_than_the_child_is_meant() -> None:
    a_worker("older", pid=4242, pid_started=None)
    change("UPDATE runs_worker SET started_at = now() - interval '2 minutes'")
    a_worker("younger", pid=4242, pid_started=None)
    assert child_ended(pid=4242, pid_started=None) == ["younger"]
    assert how_it_ended("older") == ""


# -- Operators ----------------------------------------------------------------------------------


def said_ended(*names: str, **more: Any) -> SaidEnds:
    said: dict[str, Any] = {"actor": operator("robin"), "evidence": "it is switched off"}
    return end_workers(names=names, **said | more)


def test_an_operators_word_is_kept_with_name_and_reason() -> None:
    a_worker()
    said = said_ended("w")
    assert (said.ended, said.already_ended, said.due) == (["w"], [], [])
    row = Worker.objects.get()
    assert (row.ended_by, row.evidence) == (EndedBy.OPERATOR, "robin: it is switched off")
    assert ask("SELECT ended_at <= now() AND ended_at > now() - interval '1 min' FROM runs_worker")


def test_an_end_is_said_only_by_those_who_may() -> None:
    a_worker()
    with pytest.raises(NotPermitted):
        said_ended("w", actor=Actor(name="robin", scopes=frozenset({OPERATIONS_RECONCILE})))
    assert how_it_ended() == ""


@pytest.mark.parametrize("reason", ["", "  ", "x" * 2_001, "\0"])
def test_an_end_needs_a_reason_that_can_be_kept(reason: str) -> None:
    a_worker()
    with pytest.raises(InvalidInput, match="evidence"):
        said_ended("w", evidence=reason)
    assert how_it_ended() == ""


def test_nobody_is_ended_when_one_of_them_lives() -> None:
    a_worker("a")
    a_worker("b", seen=timedelta(seconds=LEASE / 2))
    with pytest.raises(WorkerSeenAlive, match="b was seen"):
        said_ended("a", "b")
    assert (how_it_ended("a"), how_it_ended("b")) == ("", "")
    assert said_ended("a", "b", even_if_alive=True).ended == ["a", "b"]


def test_nobody_is_ended_when_one_of_them_is_unknown() -> None:
    a_worker("a")
    for name in ("c", "\0"):
        with pytest.raises((UnknownWorker, InvalidInput)):
            said_ended("a", name)
    with pytest.raises(InvalidInput, match="give a host"):
        said_ended()
    assert how_it_ended("a") == ""


def test_a_hosts_workers_are_ended_together_and_no_others() -> None:
    a_worker("a", host="one")
    a_worker("b", host="one")
    a_worker("c", host="another")
    assert said_ended("c", host="one").ended == ["a", "b", "c"]
    again = said_ended(host="one")
    assert (again.ended, again.already_ended) == ([], [])


def test_an_end_stands_whoever_else_says_so() -> None:
    a_worker(pid_started=1)
    assert end("w", by=EndedBy.REPORTED, evidence="first")
    before = Worker.objects.get()
    said = said_ended("w")
    assert (said.ended, said.already_ended) == ([], ["w"])
    assert end_gone_neighbours(me="me") == []
    assert not end("w", by=EndedBy.SUPERVISOR, evidence="third")
    after = Worker.objects.get()
    assert (after.ended_at, after.ended_by, after.evidence) == (
        before.ended_at,
        EndedBy.REPORTED,
        "first",
    )


# -- What follows from an end -------------------------------------------------------------------


def is_due(run: AgentRun) -> bool:
    return bool(
        ask("SELECT wake_at <= now() AND sweep_at <= now() FROM runs_agentrun WHERE id=%s", run.id)
    )


@pytest.mark.parametrize("how", ["operator", "supervisor", "successor", "reported"])
def test_what_a_worker_sent_without_a_known_outcome_is_due_once_it_is_known_to_have_ended(
    how: str, start: Start
) -> None:
    its, anothers = waiting_runs(start, "w", "another")
    operation = ToolOperation.objects.get(run=its)
    a_worker(pid_started=1)
    match how:
        case "operator":
            assert said_ended("w").due == [operation.id]
        case "supervisor":
            assert child_ended(pid=os.getpid(), pid_started=1) == ["w"]
        case "successor" if sys.platform == "linux":
            assert end_gone_neighbours(me="me") == ["w"]
        case _:
            assert end("w", by=EndedBy.REPORTED, evidence="it said so")
    assert is_due(its)
    assert not is_due(anothers)


def test_a_run_that_somebody_holds_keeps_its_date(start: Start) -> None:
    [run] = waiting_runs(start, "w")
    change(
        "UPDATE runs_agentrun SET lease_owner = 'another', lease_expires_at = now()"
        " + interval '1 min' WHERE id = %s",
        run.id,
    )
    a_worker()
    assert said_ended("w").due == []
    assert not is_due(run)


# -- Races --------------------------------------------------------------------------------------


@contextmanager
def meanwhile(statement: str) -> Iterator[None]:
    """Another connection changes the row, and commits once somebody waits for it."""
    with another_connection(autocommit=False) as first, another_connection() as watcher:
        first.execute(statement)

        def commit_when_met() -> None:
            def somebody_waits() -> bool:
                found = watcher.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND datname = current_database()"
                ).fetchone()
                return bool(found and found[0])

            wait_until(somebody_waits, what="the second one waits for the first")
            first.commit()

        thread = threading.Thread(target=commit_when_met)
        thread.start()
        yield
        thread.join()


def test_of_two_that_end_a_worker_at_once_the_first_is_recorded() -> None:
    a_worker()
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'reported', evidence = 'first'"
    ):
        assert not end("w", by=EndedBy.SUPERVISOR, evidence="second")
    assert Worker.objects.get().evidence == "first"


def test_an_operators_word_that_comes_second_changes_nothing() -> None:
    a_worker()
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'reported', evidence = 'first'"
    ):
        said = said_ended("w")
    assert (said.ended, said.already_ended) == ([], ["w"])
    assert Worker.objects.get().evidence == "first"


def test_a_worker_that_is_seen_while_its_end_is_said_is_not_ended() -> None:
    a_worker()
    with (
        meanwhile("UPDATE runs_worker SET last_seen_at = clock_timestamp()"),
        pytest.raises(WorkerSeenAlive),
    ):
        said_ended("w")
    assert how_it_ended() == ""


def test_a_worker_that_is_declared_ended_while_it_says_that_it_lives_learns_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_me", workers._Me())
    assert workers._see(workers._me)
    with meanwhile(
        "UPDATE runs_worker SET ended_at = now(), ended_by = 'operator', evidence = 'x'"
    ):
        assert not workers._see(workers._me)


def saw_exit(pid: int, *, on_trouble: Callable[[str], None]) -> None:
    with WorkerExits(on_trouble=on_trouble) as exits:
        exits.note_start("worker-1", pid)
        exits.note_end(Ended(name="worker-1", pid=pid, status=-9, restart_in=0.5))


@ON_LINUX
def test_what_a_supervisor_saw_is_written_down_before_its_block_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_worker(seen=timedelta(0))
    # Somebody else has the row in hand: the writer has to wait, and is waited for.
    with meanwhile("UPDATE runs_worker SET last_seen_at = now()"):
        saw_exit(os.getpid(), on_trouble=print)
    assert how_it_ended() == EndedBy.SUPERVISOR
    assert Worker.objects.get().evidence == (
        f"process {os.getpid()}: worker-1 was ended by SIGKILL"
    )
    assert capsys.readouterr().out == ""


@ON_LINUX
def test_an_exit_that_cannot_be_written_down_is_told_and_harms_nobody() -> None:
    a_worker()
    told: list[str] = []
    with another_connection(autocommit=False) as holder:
        # Longer than any statement waits for a lock.
        holder.execute("LOCK TABLE runs_worker")
        saw_exit(os.getpid(), on_trouble=told.append)
    assert told == ["the end of worker-1 was not written down: OperationalError"]
    assert how_it_ended() == ""


# -- Forgetting ---------------------------------------------------------------------------------


def test_only_workers_that_ended_long_ago_and_that_no_open_step_names_are_forgotten(
    start: Start,
) -> None:
    [run] = waiting_runs(start, "needed")
    assert StepAttempt.objects.get(step__run=run).worker == "needed"
    long_ago = datetime.now(UTC) - KEPT - timedelta(days=1)
    for name in ("old", "needed"):
        a_worker(name, ended_at=long_ago, ended_by=EndedBy.REPORTED)
    a_worker("recent", ended_at=long_ago + timedelta(days=2), ended_by=EndedBy.REPORTED)
    a_worker("unended", started_at=long_ago)
    assert forget_old() == 1
    assert set(Worker.objects.values_list("name", flat=True)) == {"needed", "recent", "unended"}
