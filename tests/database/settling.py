"""What tests of settling share: calls that were lost, workers that vanished, and look-ups.

Time goes by in the rows alone (`kit.let_pass`); every wait is the kernel's own date.
"""

from collections.abc import Callable
from typing import Any

from runs import events, worker_ends
from runs.evidence import read_settling
from runs.models import AgentRun, ToolObservation, Worker
from runs.settling import Settling
from runs.state import RunState
from tests.database.kit import (
    LOST,
    PLAIN,
    Script,
    ask,
    call_once,
    change,
    dies_at,
    drive,
    expire_lease,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import EffectType, Reconciled
from tools.registry import get_tool

Start = Callable[..., AgentRun]
WINDOW = PLAIN.settle_window
UNKNOWN = RunState.TOOL_STATUS_UNKNOWN
PERSON = RunState.WAITING_FOR_RESOLUTION
MANY = 300


def ship(*answers: Any, look_up: Script | None = None, **declared: Any) -> Script:
    """A tool whose provider honours no key: what is sent twice happens twice."""
    declared = {"provider": PLAIN, "effect": EffectType.NON_IDEMPOTENT_WRITE} | declared
    return scripted_tool(*answers, look_up=look_up or never_found(), **declared)


def never_found() -> Script:
    return Script(*[Reconciled.not_found()] * MANY)


def lose(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose call came back without an answer, and the call's script."""
    script = ship(LOST, *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == UNKNOWN
    return run, script


def vanish(start: Start, *answers: Any, **declared: Any) -> tuple[AgentRun, Script]:
    """A run whose "worker 1" died in the middle of the call, taken over by "worker 2"."""
    script = ship("nobody hears this", *answers, **declared)
    run = start(decider=call_once(), tools=("pay",))
    with dies_at(events.Name.CALL_DONE):
        drive(run, owner="worker 1")
    expire_lease(run)
    drive(run, owner="worker 2")
    assert run.state == UNKNOWN
    return run, script


def end_worker(name: str) -> None:
    """The worker process is known to have ended, now."""
    Worker.objects.create(name=name, host="h", pid=1)
    assert worker_ends.end(name, by=Worker.EndedBy.SUPERVISOR, evidence="exited with 137")


def settling_of(run: AgentRun) -> Settling:
    """How far it is settled, by what is on record and the database's clock."""
    operation = operation_of(run)
    return read_settling(
        operation,
        list(operation.observations.order_by("id")),
        window=WINDOW,
        now=ask("SELECT statement_timestamp()"),
    )


def drive_now(run: AgentRun) -> None:
    """Drive at this moment, whatever the date says; nothing else is moved."""
    change("UPDATE runs_agentrun SET wake_at = now() WHERE id = %s", run.id)
    drive(run, owner="worker 2")


def say_next(run: AgentRun, answer: Any) -> None:
    """What the tool's look-up will say next."""
    look_up = get_tool(operation_of(run).tool).reconcile_handler
    assert isinstance(look_up, Script)
    look_up.answers.appendleft(answer)


def evidence(run: AgentRun, source: str) -> list[ToolObservation]:
    """The observations of this source, oldest first."""
    return list(operation_of(run).observations.filter(source=source).order_by("id"))


def waits_for_a_person(run: AgentRun, *, asked_on: bool = False) -> None:
    """`asked_on`: the provider is still asked, for a day."""
    run.refresh_from_db()
    operation = operation_of(run)
    assert (run.state, operation.status) == (RunState.WAITING_FOR_RESOLUTION, "UNKNOWN")
    assert (run.wake_at, run.lease_owner) == (run.sweep_at, "")
    assert (run.wake_at is not None, operation.next_reconcile_at is not None) == (
        asked_on,
        asked_on,
    )
    assert (run.uncertain, run.finished_at, operation.settled_at) == (True, None, None)
    assert run_edges(run).count("NEED_PERSON") == 1
