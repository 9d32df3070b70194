"""Real worker processes end in every way there is: who comes to know of it, and who must not."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db.models import Q
from django.db.models.functions import Now

from agentops import processes
from examples.shop.provider_process import ProviderProcess
from runs.models import StepAttempt, ToolOperation, Worker
from runs.worker_ends import EndedBy
from tests.crash.conftest import StartRun
from tests.crash.laws import wait_until_finished
from tests.processes import Celery, Program, environment, of_this_test, wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="who lives is read from /proc"),
]

LEASE = timedelta(seconds=1)

Run = Callable[..., Program]


@pytest.fixture
def program(transactional_db: None, provider: ProviderProcess, tmp_path: Path) -> Iterator[Run]:
    """Start a program on the test's servers: `program("manage.py", "up", PORT="1234")`."""
    with ExitStack() as started:

        def start(*arguments: str, **more: str) -> Program:
            env = environment(of_this_test(), more={"SHOP_PAYMENTS_URL": provider.url, **more})
            begun = Program(*arguments, env=env, log=tmp_path / f"{arguments[1]}.log")
            # Captured, and shown with a failure alone.
            started.callback(lambda: print(f"-- {arguments[1]} said:\n{begun.said}"))
            return started.enter_context(begun)

        yield start


def row_of(pid: int) -> Worker:
    """The row of the worker process with this id, once there is one."""
    rows = Worker.objects.filter(pid=pid)
    wait_until(rows.exists, what=f"process {pid} has a row", seconds=30)
    return rows.get()


def wait_for_end(worker: Worker) -> str:
    ended = Worker.objects.filter(name=worker.name, ended_at__isnull=False)
    wait_until(ended.exists, what=f"{worker.name} is known to have ended", seconds=30)
    return ended.get().ended_by


def is_unended(worker: Worker) -> bool:
    return Worker.objects.filter(name=worker.name, ended_at__isnull=True).exists()


def wait_until_silent(worker: Worker) -> None:
    since = Q(last_seen_at__lt=Now() - timedelta(seconds=1.5))
    silent = Worker.objects.filter(since, name=worker.name)
    wait_until(silent.exists, what=f"{worker.name} was not seen for more than a lease")


def test_a_worker_works_under_the_name_of_its_row_is_seen_while_it_lives_and_reports_its_end(
    celery: Celery, start_agent: StartRun
) -> None:
    celery.beat()
    program = celery.worker("w")
    worker = row_of(program.pid)
    run = start_agent("crash_sighted")
    wait_until_finished(run.id)
    names = StepAttempt.objects.filter(step__run=run).values_list("worker", flat=True)
    assert set(names) == {worker.name}
    seen_again = Worker.objects.filter(name=worker.name, last_seen_at__gt=worker.last_seen_at)
    wait_until(seen_again.exists, what="it is seen again")
    program.terminate()
    assert program.wait() == 0
    assert wait_for_end(worker) == EndedBy.REPORTED


def test_a_worker_does_not_report_its_end_while_a_function_of_it_is_out(
    celery: Celery, provider: ProviderProcess, start_agent: StartRun
) -> None:
    provider.fault("hold")
    program = celery.worker("w")
    worker = row_of(program.pid)
    run = start_agent("crash_stubborn")
    unknown = ToolOperation.objects.filter(run=run, status="UNKNOWN")
    wait_until(unknown.exists, what="the call is past its deadline")
    program.terminate()
    program.wait(seconds=60)
    assert is_unended(worker)
    assert "worker_end_not_reported" in program.said


def test_a_worker_that_was_killed_is_found_gone_by_the_next_one_and_one_that_stands_still_is_not(
    celery: Celery,
) -> None:
    programs = [celery.worker(name) for name in ("still", "killed")]
    still, killed = (row_of(program.pid) for program in programs)
    sleeper, victim = programs
    sleeper.stop()
    wait_until_silent(still)
    victim.kill()
    assert is_unended(killed)
    celery.worker("next")
    assert wait_for_end(killed) == EndedBy.SUCCESSOR
    assert f"found no process {victim.pid}" in Worker.objects.get(name=killed.name).evidence
    # Who found the one gone has looked at the other as well.
    assert is_unended(still)
    sleeper.go_on()
    seen_again = Worker.objects.filter(name=still.name, last_seen_at__gt=Now() - LEASE)
    wait_until(seen_again.exists, what="it is seen again")


def test_a_worker_that_was_declared_ended_and_lives_begins_nothing_and_ends(
    celery: Celery,
) -> None:
    program = celery.worker("w")
    worker = row_of(program.pid)
    call_command("worker_ended", worker.name, "--even-if-alive", "--evidence", "I think so")
    assert wait_for_end(worker) == EndedBy.OPERATOR
    assert program.wait() == 0
    assert "worker_declared_ended" in program.said


def test_each_process_of_a_forking_pool_is_a_worker_of_its_own_that_others_find_gone(
    program: Run, celery: Celery, start_agent: StartRun
) -> None:
    celery.beat()
    parent, [victim, sibling] = _forking_pool(program)
    runs = [start_agent("crash_sighted") for _ in range(4)]
    wait_until_finished(*[run.id for run in runs])
    assert not Worker.objects.filter(pid=parent.pid).exists()
    names = set(StepAttempt.objects.values_list("worker", flat=True))
    assert names <= {victim.name, sibling.name}
    os.kill(victim.pid, signal.SIGKILL)
    assert wait_for_end(victim) == EndedBy.SUCCESSOR
    assert parent.lives
    assert is_unended(sibling)
    parent.terminate()
    assert parent.wait(seconds=60) == 0
    assert wait_for_end(sibling) == EndedBy.REPORTED


def _forking_pool(program: Run) -> tuple[Program, list[Worker]]:
    # Named so, because the name prefork leaves the pool of the settings in place.
    pool = ("--pool=processes", "--concurrency=2")
    parent = program("-m", "celery", *processes.worker(name="forking"), *pool)
    rows = Worker.objects.all()
    wait_until(lambda: rows.count() == 2, what="both processes have a row", seconds=30)
    return parent, list(rows)


def test_a_worker_that_is_killed_under_up_is_ended_by_its_supervisor(program: Run) -> None:
    ports = {name: str(free_port()) for name in ("PORT", "FLOWER_PORT")}
    up = program("manage.py", "up", "--no-flower", "--json", **ports)
    wait_until(Worker.objects.exists, what="the worker has a row", seconds=60)
    [worker] = Worker.objects.all()
    os.kill(worker.pid, signal.SIGKILL)
    assert wait_for_end(worker) == EndedBy.SUPERVISOR
    assert "worker-1 was ended by SIGKILL" in Worker.objects.get(name=worker.name).evidence
    successors = Worker.objects.exclude(name=worker.name)
    wait_until(successors.exists, what="another one took its place", seconds=30)
    [successor] = successors
    # Asked twice, it ends everything at once: nobody has the time to report.
    os.kill(successor.pid, signal.SIGSTOP)
    up.terminate()
    wait_until(lambda: "stopping, workers first" in up.said, what="it was asked to stop")
    up.terminate()
    assert up.wait() == 0, up.said
    assert wait_for_end(successor) == EndedBy.SUPERVISOR


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
