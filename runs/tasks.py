"""Celery's front door: short, named, idempotent tasks that call one function each.

A message names the run, or the operation, for which it was sent. It is a turn all the same:
the run that is driven is the one whose turn it is (`turns.py`), which may be another.
"""

import os
import signal
from typing import Any, Final
from uuid import UUID

import structlog
from celery import shared_task
from celery.signals import (
    celeryd_after_setup,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)

from runs import (
    audit_sweeps,
    delegation,
    engine,
    pinning,
    schedules,
    sweeps,
    turns,
    unsigned,
    watch,
    workers,
)
from runs.models import ToolOperation
from runs.slo import rolling
from tools.execution import abandoned, wait_until_back

log = structlog.get_logger(__name__)

# Functions that ignored their deadline and still run. Beyond this the process is replaced.
MOST_ABANDONED = 16

# At its end a worker waits this long for functions past their deadline: what they say late
# is evidence, and lost with the process.
LATE_ANSWER_SECONDS = 5.0

# What one sweep over the runs does, in this order.
SWEEPS: Final = (delegation.tell_untold_once, sweeps.run_once, sweeps.run_watches_once)


@shared_task(name="runs.advance_run")
def advance_run(run_id: str) -> str | None:
    """Give this run's turn: one due run is driven until it waits, ends or its slice is used.

    Which one is the value, for Flower: no backend keeps it.
    """
    return _advance(run_id)


@shared_task(name="runs.reconcile_operation")
def reconcile_operation(operation_id: str) -> str | None:
    """The same, for a run with an operation whose outcome is unknown."""
    run_id = ToolOperation.objects.values_list("run_id", flat=True).get(id=operation_id)
    return _advance(str(run_id))


@shared_task(name="runs.watch_operation")
def watch_operation(operation_id: str) -> None:
    """Look up a closed operation once more: its effect may have come late."""
    watch.watch(operation_id)


@shared_task(name="runs.sweep_due_runs")
def sweep_due_runs() -> None:
    """Tell parents of runs that ended; hint at runs and watched operations whose date passed."""
    for sweep in SWEEPS:
        sweep()


@shared_task(name="runs.start_scheduled_runs")
def start_scheduled_runs() -> None:
    """Start a run for every slot of a schedule that has come."""
    schedules.run_once()


@shared_task(name="runs.audit_effects")
def audit_effects() -> None:
    """Compare what providers list as their effects with what is recorded."""
    audit_sweeps.run_once()


@shared_task(name="runs.find_unsigned")
def find_unsigned() -> None:
    """Look for what left without the signature that its policy asks for."""
    unsigned.run_once()


@shared_task(name="runs.roll_up")
def roll_up() -> None:
    """Count what happened since the last time into slices of time."""
    rolling.run_once()


def _advance(run_id: str) -> str | None:
    with workers.at_work() as owner:
        if owner is None:
            return None
        driven = turns.take_turn(hinted=UUID(run_id), owner=owner).run_id
    if abandoned() > MOST_ABANDONED:
        # Threads cannot be ended, processes can: give the leases back and make room.
        log.error("worker_ends", abandoned=abandoned())
        _end_process()
    return str(driven) if driven is not None else None


def _end_process() -> None:
    engine.drain()
    os.kill(os.getpid(), signal.SIGTERM)


@worker_init.connect
def _start(**_: Any) -> None:
    engine.drain(on=False)


@celeryd_after_setup.connect
def _read_lanes(instance: Any, **_: Any) -> None:
    for lane in pinning.own_lanes():
        instance.app.amqp.queues.select_add(lane)


@worker_ready.connect
def _attend_here(sender: Any, **_: Any) -> None:
    # The parent of forked workers runs no task, and a connection of its own would be theirs too.
    if "prefork" not in type(sender.pool).__module__:
        workers.attend(on_declared_ended=_end_process)


@worker_process_init.connect
def _attend_forked(**_: Any) -> None:
    workers.attend(on_declared_ended=_end_process)


@worker_shutdown.connect
@worker_process_shutdown.connect
def _hear_late_answers(**_: Any) -> None:
    wait_until_back(seconds=LATE_ANSWER_SECONDS)
    workers.report_end()


@worker_shutting_down.connect
def _drain(**_: Any) -> None:
    engine.drain()
