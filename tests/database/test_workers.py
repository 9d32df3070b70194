"""Which process a worker is, whether it is gone, and what it says of itself."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from runs import incarnation, workers
from runs.incarnation import start_of, this_place, why_gone
from runs.models import Worker
from runs.worker_ends import EndedBy, end_gone_neighbours, standing
from tests.database.kit import ON_DATABASE, another_connection, change
from tests.database.worker_rows import (
    LEASE,
    ON_LINUX,
    Process,
    a_worker,
    another_process,
    how_it_ended,
    is_zombie,
)
from tests.processes import is_stopped, wait_until
from tools import Call, EffectType, Timeout, tool
from tools.execution import execute, in_flight, wait_until_back
from tools.registry import get_tool

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> str:
    """This process, as if it had just started: the name that it works under."""
    monkeypatch.setattr(workers, "_me", workers._Me())
    return workers._me.name


@pytest.fixture
def other() -> Iterator[Process]:
    with another_process() as process:
        yield process


# -- Whether a process is gone ------------------------------------------------------------------


@ON_LINUX
def test_a_living_process_is_not_gone(other: Process) -> None:
    for pid in (os.getpid(), other.pid, 1):
        started = start_of(pid)
        assert started is not None
        assert why_gone(pid=pid, started=started) is None


@ON_LINUX
def test_an_id_that_passed_to_another_process_shows_the_first_one_gone() -> None:
    mine = start_of(os.getpid())
    assert mine is not None
    assert "another one" in (why_gone(pid=os.getpid(), started=mine - 1) or "")


@ON_LINUX
def test_a_stopped_process_is_not_gone(other: Process) -> None:
    started = start_of(other.pid)
    assert started is not None
    other.send_signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(other.pid), what="it stands still")
    assert why_gone(pid=other.pid, started=started) is None


@ON_LINUX
def test_a_process_that_ended_is_gone_before_and_after_it_is_collected(
    other: Process,
) -> None:
    started = start_of(other.pid)
    assert started is not None
    other.kill()
    wait_until(lambda: is_zombie(other.pid), what="it has ended")
    assert "not yet collected" in (why_gone(pid=other.pid, started=started) or "")
    other.wait()
    assert why_gone(pid=other.pid, started=started) == f"no process {other.pid}"


@ON_LINUX
def test_a_process_whose_first_thread_ended_goes_on() -> None:
    """Its state reads as that of a collectable process, while another thread still acts."""
    program = (
        "import ctypes, threading, time;"
        "threading.Thread(target=time.sleep, args=(600,)).start();"
        "print('on', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: is_zombie(process.pid), what="its first thread has ended")
        started = start_of(process.pid)
        assert started is not None
        assert why_gone(pid=process.pid, started=started) is None
        process.kill()


def test_facts_that_cannot_be_read_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A system without /proc."""
    monkeypatch.setattr(incarnation, "_PROC", tmp_path)
    place = this_place()
    assert (place.boot_id, place.pid_namespace, place.is_known) == ("", "", False)
    assert start_of(os.getpid()) is None
    assert why_gone(pid=os.getpid(), started=1) is None
    a_worker(pid=2**22 - 1, pid_started=None)
    assert end_gone_neighbours(me="me") == []


# -- This process -------------------------------------------------------------------------------


def test_a_process_has_its_row_before_it_begins_anything(fresh: str) -> None:
    with workers.at_work() as name:
        row = Worker.objects.get()
    assert name == row.name == fresh
    assert (row.pid, row.pid_started) == (os.getpid(), start_of(os.getpid()))
    place = this_place()
    assert (row.host, row.boot_id, row.pid_namespace) == (
        place.host,
        place.boot_id,
        place.pid_namespace,
    )
    assert standing(row) == "alive"


def test_a_process_has_one_row_however_often_it_works(fresh: str) -> None:
    for _ in range(3):
        with workers.at_work():
            pass
    assert Worker.objects.count() == 1


def test_a_row_that_cannot_be_written_keeps_no_worker_from_working(fresh: str) -> None:
    with another_connection(autocommit=False) as holder:
        holder.execute("LOCK TABLE runs_worker")
        change("SET lock_timeout = '50ms'")
        try:
            with workers.at_work() as name:
                assert name == fresh
        finally:
            change("RESET lock_timeout")
    assert not Worker.objects.exists()
    with workers.at_work():
        assert Worker.objects.get().name == fresh


def test_a_process_that_reported_its_end_begins_nothing_any_more(fresh: str) -> None:
    with workers.at_work():
        pass
    assert workers.report_end()
    assert how_it_ended(fresh) == EndedBy.REPORTED
    with workers.at_work() as name:
        assert name is None
    assert not workers.report_end()


def test_a_process_at_work_reports_no_end(fresh: str) -> None:
    with workers.at_work():
        assert not workers.report_end()
    assert how_it_ended(fresh) == ""
    with workers.at_work() as name:
        assert name == fresh


def test_a_function_past_its_deadline_keeps_its_process_from_reporting_its_end(fresh: str) -> None:
    goes_on, said = threading.Event(), []

    @tool(effect_type=EffectType.READ, timeout_policy=Timeout(seconds=0.1))
    def linger(call: Call) -> None:
        """Linger."""
        goes_on.wait(30)

    with workers.at_work():
        execute(spec=get_tool("linger"), call=a_call(seconds=0.1), on_late=said.append)
    assert in_flight()
    assert not workers.report_end()
    assert how_it_ended(fresh) == ""
    goes_on.set()
    assert wait_until_back(seconds=20)
    assert workers.report_end()


def test_a_row_is_not_made_after_its_end_was_reported(fresh: str) -> None:
    assert not workers.report_end()
    assert not workers._see(workers._me)
    assert not Worker.objects.exists()


def a_call(*, seconds: float) -> Call:
    return Call(
        operation_id="op_1",
        idempotency_key="op_1",
        fence_token=1,
        attempt=1,
        run_id="run_1",
        step_number=1,
        arguments={},
        deadline=datetime.now(UTC) + timedelta(seconds=seconds),
        expires_at_monotonic=time.monotonic() + seconds,
    )
