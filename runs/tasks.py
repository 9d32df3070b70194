"""Celery's front door: short, named, idempotent tasks that call one function each."""

import os
import signal
import socket
from typing import Any
from uuid import UUID, uuid4

import structlog
from celery import shared_task
from celery.signals import worker_init, worker_shutdown, worker_shutting_down

from runs import engine, sweeps
from runs.models import ToolOperation
from runs.wake import hint
from tools.execution import abandoned, wait_until_back

log = structlog.get_logger(__name__)

# Functions that ignored their deadline and still run. Beyond this the process is replaced.
MOST_ABANDONED = 16

# At its end a worker waits this long for functions past their deadline: what they say late
# is evidence, and lost with the process.
LATE_ANSWER_SECONDS = 5.0

# One name per worker process, new at every start.
OWNER = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"


@shared_task(name="runs.advance_run")
def advance_run(run_id: str) -> None:
    """Drive one run until it waits, ends or its turn is over."""
    _advance(run_id)


@shared_task(name="runs.reconcile_operation")
def reconcile_operation(operation_id: str) -> None:
    """Drive the run of an operation whose outcome is unknown."""
    run_id = ToolOperation.objects.values_list("run_id", flat=True).get(id=operation_id)
    _advance(str(run_id))


@shared_task(name="runs.sweep_due_runs")
def sweep_due_runs() -> None:
    """Hint at every run whose date has passed."""
    sweeps.run_once()


def _advance(run_id: str) -> None:
    progress = engine.advance(run_id=UUID(run_id), owner=OWNER)
    if progress.yielded:
        hint(UUID(run_id))
    if abandoned() > MOST_ABANDONED:
        # Threads cannot be ended, processes can: give the leases back and make room.
        log.error("worker_ends", abandoned=abandoned())
        engine.drain()
        os.kill(os.getpid(), signal.SIGTERM)


@worker_init.connect
def _start(**_: Any) -> None:
    engine.drain(on=False)


@worker_shutdown.connect
def _hear_late_answers(**_: Any) -> None:
    wait_until_back(seconds=LATE_ANSWER_SECONDS)


@worker_shutting_down.connect
def _drain(**_: Any) -> None:
    engine.drain()
