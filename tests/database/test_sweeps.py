"""Sweeps: whoever is due is found and told, once per pause, by any number of sweeps."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import celery
import pytest
from django.conf import settings
from django.db import connection

from runs import Finish, events, sweeps, wake
from runs.lease import claim
from runs.models import AgentRun, Sweep
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    Script,
    another_connection,
    ask,
    call_once,
    change,
    drive,
    listening,
    operation_of,
    scripted_tool,
)

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


@pytest.fixture(autouse=True)
def _broker() -> Iterator[None]:
    """Messages go to the real broker; nobody reads them here."""
    yield
    celery.current_app.control.purge()


@pytest.fixture
def make(start: Start) -> Callable[[], AgentRun]:
    return lambda: start(decider=lambda context: Finish(1))


Make = Callable[[], AgentRun]


def test_a_run_that_is_due_is_found_once_per_pause(make: Make) -> None:
    make()
    assert sweeps.run_once() == sweeps.Swept(found=1, hinted=1)
    assert sweeps.run_once() == sweeps.Swept(found=0, hinted=0)
    left = ask("SELECT EXTRACT(EPOCH FROM sweep_at - now()) FROM runs_agentrun")
    assert sweeps.HINT_AGAIN_SECONDS - 2 < left <= sweeps.HINT_AGAIN_SECONDS
    change("UPDATE runs_agentrun SET sweep_at = now()")
    assert sweeps.run_once().found == 1


def test_a_sweep_touches_nothing_but_its_own_date(make: Make) -> None:
    run = make()
    before = _without_sweep_date(run)
    sweeps.run_once()
    assert _without_sweep_date(run) == before


def test_a_run_that_is_not_due_is_not_found(make: Make) -> None:
    make()
    change("UPDATE runs_agentrun SET wake_at = now() + '5 s', sweep_at = now() + interval '5 s'")
    assert sweeps.run_once().found == 0


def test_a_finished_run_is_not_found(make: Make) -> None:
    drive(make())
    assert sweeps.run_once().found == 0


def test_a_held_run_is_not_found_until_its_lease_is_over(make: Make) -> None:
    run = make()
    assert claim(run_id=run.id, owner="worker 1") is not None
    assert sweeps.run_once().found == 0
    change("UPDATE runs_agentrun SET lease_expires_at = now(), sweep_at = now()")
    assert sweeps.run_once().found == 1
    drive(run, owner="worker 2")
    assert run.state == RunState.COMPLETED


def test_a_parked_run_is_found_when_its_date_comes(start: Start) -> None:
    scripted_tool(ConnectionResetError("lost"), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.sweep_at == run.wake_at
    assert sweeps.run_once().found == 0
    change("UPDATE runs_agentrun SET sweep_at = now(), wake_at = now()")
    assert sweeps.run_once().found == 1


def test_what_waits_for_a_person_is_not_found(start: Start) -> None:
    from tools import Approve

    scripted_tool(7, approval_policy=Approve())
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    assert sweeps.run_once().found == 0


def test_those_who_wait_longest_are_told_first_and_no_more_than_a_batch(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "BATCH", 2)
    runs = [make() for _ in range(3)]
    for age, run in enumerate(runs):
        change(
            "UPDATE runs_agentrun SET wake_at = now() - make_interval(secs => %s), sweep_at = now()"
            " WHERE id = %s",
            age,
            run.id,
        )
    assert sweeps.run_once().found == 2
    assert ask("SELECT id FROM runs_agentrun WHERE sweep_at <= now()") == runs[0].id
    assert sweeps.run_once().found == 1


def test_a_row_that_is_locked_is_left_to_the_next_sweep(make: Make) -> None:
    first, second = make(), make()
    with another_connection(autocommit=False) as other:
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR UPDATE", [first.id])
        assert sweeps.run_once().found == 1
        other.rollback()
    assert ask("SELECT sweep_at <= now() FROM runs_agentrun WHERE id = %s", first.id)
    assert not ask("SELECT sweep_at <= now() FROM runs_agentrun WHERE id = %s", second.id)


def test_sweeps_at_one_time_tell_each_run_once(make: Make) -> None:
    for _ in range(6):
        make()
    together = threading.Barrier(4)
    told: list[sweeps.Swept] = []

    def sweep() -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            told.append(sweeps.run_once())
        finally:
            connection.close()

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.found for one in told) == 6


def test_a_sweep_does_not_wait_for_another_one(make: Make) -> None:
    make()
    with another_connection(autocommit=False) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [sweeps._LOCK])
        assert sweeps.run_once() == sweeps.Swept(found=0, hinted=0)
        other.rollback()
    assert sweeps.run_once().found == 1


def test_a_sweep_leaves_a_sign_that_it_ran(make: Make) -> None:
    make()
    sweeps.run_once()
    first = Sweep.objects.get(name="due runs")
    assert first.found == 1
    sweeps.run_once()
    second = Sweep.objects.get(name="due runs")
    assert (second.found, second.last_run_at > first.last_run_at) == (0, True)


def test_a_broker_that_is_away_costs_one_try_and_loses_no_run(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        make()
    monkeypatch.delenv("CELERY_BROKER_URL", raising=False)  # Celery prefers it to what it is told
    app = celery.Celery(broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.broker_transport_options = {"max_retries": 0}
    monkeypatch.setattr(celery, "current_app", app)
    with listening() as heard:
        assert sweeps.run_once() == sweeps.Swept(found=3, hinted=0)
    assert [event.name for event in heard] == [events.Name.HINT_LOST]
    monkeypatch.undo()
    change("UPDATE runs_agentrun SET sweep_at = now()")
    assert sweeps.run_once() == sweeps.Swept(found=3, hinted=3)


def test_a_hint_for_an_unknown_operation_is_named_after_its_reconciliation(
    start: Start, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_tool(ConnectionResetError("lost"), look_up=Script())
    uncertain = start(decider=call_once(), tools=("pay",))
    drive(uncertain)
    plain = make()
    change("UPDATE runs_agentrun SET sweep_at = now(), wake_at = now()")
    told: list[tuple[UUID, str | None]] = []

    def note(due: Sequence[wake.Hint]) -> int:
        told.extend((one.run_id, one.operation_id) for one in due)
        return wake.hint_all(due)

    monkeypatch.setattr(sweeps, "hint_all", note)
    sweeps.run_once()
    assert set(told) == {(uncertain.id, operation_of(uncertain).id), (plain.id, None)}


def test_a_sweep_does_not_queue_up_behind_the_turns(make: Make) -> None:
    """Its message would be old before its time came."""
    if not settings.CELERY_BROKER_URL.startswith("redis"):
        pytest.skip("RabbitMQ orders by priority only in queues that were declared for it")
    wake.hint(make().id)
    celery.current_app.send_task("runs.sweep_due_runs")
    with celery.current_app.connection_for_read() as broker:
        names = [broker.default_channel.basic_get("celery", no_ack=True) for _ in range(2)]
    assert [message.headers["task"] for message in names] == [
        "runs.sweep_due_runs",
        "runs.advance_run",
    ]


def _without_sweep_date(run: AgentRun) -> dict[str, Any]:
    row: dict[str, Any] = {**AgentRun.objects.values().get(id=run.id)}
    del row["sweep_at"]
    return row
