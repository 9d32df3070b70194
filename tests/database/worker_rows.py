"""Worker rows that tests look at, and other processes to make them of."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from runs.engine import advance
from runs.incarnation import start_of, this_place
from runs.models import AgentRun, ToolOperation, Worker
from tests.database.kit import call_once, change, scripted_tool

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="who lives is read from /proc")
LEASE = 30.0
LONG_AGO = timedelta(seconds=10 * LEASE)

Process = subprocess.Popen[bytes]


@contextmanager
def another_process() -> Iterator[Process]:
    """Another living process of this machine."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def waiting_runs(start: Callable[..., AgentRun], *workers: str) -> list[AgentRun]:
    """Runs, each with an unknown operation that the named worker sent, and due in an hour."""
    scripted_tool(*[TimeoutError("no answer")] * len(workers))
    runs = []
    for worker in workers:
        run = start(decider=call_once(), tools=("pay",))
        advance(run_id=run.id, owner=worker)
        change(
            "UPDATE runs_agentrun SET wake_at = now() + interval '1 hour',"
            " sweep_at = now() + interval '1 hour' WHERE id = %s",
            run.id,
        )
        assert ToolOperation.objects.get(run=run).status == "UNKNOWN"
        runs.append(run)
    return runs


def a_worker(name: str = "w", *, seen: timedelta = LONG_AGO, **facts: Any) -> Worker:
    """A worker of this machine whose row says that it is this very process."""
    place = this_place()
    here: dict[str, Any] = {
        "host": place.host,
        "boot_id": place.boot_id,
        "pid_namespace": place.pid_namespace,
        "pid": os.getpid(),
        "pid_started": start_of(os.getpid()),
    }
    worker = Worker.objects.create(name=name, **here | facts)
    Worker.objects.filter(name=name).update(last_seen_at=Now() - seen)
    return worker


def how_it_ended(name: str = "w") -> str:
    return Worker.objects.get(name=name).ended_by


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
