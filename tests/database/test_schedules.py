"""The sweep over schedules: each slot starts one run, and one schedule's fault is its own."""

import threading
from collections.abc import Iterator
from datetime import datetime

import celery
import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agentops.sweeping import SWEEPS
from runs import Agent, Finish, schedules
from runs.agents import forget_agents
from runs.models import AgentRun, Schedule, Sweep
from runs.schedules import Swept, run_once
from runs.starting import Started
from runs.tasks import start_scheduled_runs
from tests.database.kit import ON_DATABASE, another_connection, drive
from tests.database.scheduling import (
    HOUR,
    MINUTE,
    NOON,
    reporter,
    runs_of,
    schedule,
    slots_of,
)

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def _agent() -> Iterator[None]:
    """Messages go to the real broker; nobody reads them here."""
    reporter()
    yield
    celery.current_app.control.purge()


def test_a_slot_that_has_come_starts_a_run_and_the_next_one_is_dated() -> None:
    schedule(due=NOON, objective="report", input={"day": 1}, labels={"team": "web"}, priority=7)
    assert run_once(NOON) == Swept(due=1, started=1)
    (run,) = runs_of()
    assert (run.agent, run.objective, run.input) == ("reporter", "report", {"day": 1})
    assert run.labels == {"team": "web", "schedule": "hourly", "slot": "2026-06-01T12:00:00Z"}
    assert run.priority == 7
    row = Schedule.objects.get()
    assert (row.next_at, row.last_slot, row.last_run) == (NOON + HOUR, NOON, run)
    assert (row.last_error, row.last_missed) == ("", None)


def test_the_agent_reads_its_slot_from_the_labels() -> None:
    Agent(name="dated", decider=lambda context: Finish(context.labels["slot"]))
    schedule(agent="dated", due=NOON)
    run_once(NOON)
    run = runs_of().get()
    drive(run)
    assert run.result == "2026-06-01T12:00:00Z"


def test_a_slot_that_has_not_come_starts_nothing() -> None:
    schedule(due=NOON)
    assert run_once(NOON - MINUTE) == Swept()
    assert not AgentRun.objects.exists()


def test_the_same_sweep_again_starts_nothing() -> None:
    schedule(due=NOON)
    run_once(NOON)
    assert run_once(NOON) == Swept()
    assert runs_of().count() == 1


def test_the_clock_is_the_databases() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT date_trunc('minute', now())")
        this_minute: datetime = cursor.fetchone()[0]
    schedule(cron="* * * * *", due=this_minute)
    assert run_once().started >= 1


def test_a_clock_that_was_put_back_starts_no_slot_twice() -> None:
    schedule(due=NOON)
    run_once(NOON)
    # As after an hour that came twice on the server itself.
    Schedule.objects.update(next_at=NOON, last_slot=None)
    assert run_once(NOON) == Swept(due=1)
    assert runs_of().count() == 1


def test_the_database_refuses_a_slot_before_the_last() -> None:
    schedule(due=NOON)
    run_once(NOON)
    with pytest.raises(IntegrityError, match="schedule_next_is_later"), transaction.atomic():
        Schedule.objects.update(next_at=NOON)


def test_two_sweeps_at_once_start_one_run() -> None:
    for number in range(4):
        schedule(f"hourly{number}", due=NOON)
    together = threading.Barrier(3)
    found: list[Swept] = []

    def sweep() -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            found.append(run_once(NOON))
        finally:
            connection.close()

    threads = [threading.Thread(target=sweep) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(swept.started for swept in found) == 4
    assert [runs_of(f"hourly{number}").count() for number in range(4)] == [1, 1, 1, 1]


def test_a_schedule_that_another_sweep_has_in_hand_is_left_to_it() -> None:
    mine, other = schedule("mine", due=NOON), schedule("other", due=NOON)
    with another_connection(autocommit=False) as elsewhere:
        elsewhere.execute("SELECT 1 FROM runs_schedule WHERE id = %s FOR NO KEY UPDATE", [other.pk])
        assert run_once(NOON) == Swept(due=2, started=1)
        elsewhere.rollback()
    assert (runs_of(mine.name).count(), runs_of(other.name).count()) == (1, 0)
    assert run_once(NOON).started == 1


def test_a_crash_before_the_commit_leaves_nothing_and_the_next_sweep_starts_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule(due=NOON)
    start = schedules.start_run

    def start_and_die(**given: object) -> None:
        start(**given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(schedules, "start_run", start_and_die)
    with pytest.raises(KeyboardInterrupt):
        run_once(NOON)
    assert not AgentRun.objects.exists()
    assert Schedule.objects.get().next_at == NOON
    monkeypatch.undo()
    assert run_once(NOON).started == 1
    assert slots_of() == ["2026-06-01T12:00:00Z"]


def test_a_crash_after_the_commit_has_started_one() -> None:
    schedule(due=NOON)
    schedules._start_due(Schedule.objects.get().pk, NOON)
    assert run_once(NOON).started == 0
    assert runs_of().count() == 1


def test_a_disabled_schedule_starts_nothing() -> None:
    schedule(enabled=False)
    assert Schedule.objects.get().next_at is None
    assert run_once(NOON + 1000 * HOUR) == Swept()


def test_an_agent_that_is_gone_is_told_and_tried_again_at_the_next_slot() -> None:
    reporter("brief")
    schedule("a-brief", agent="brief", due=NOON - MINUTE)
    schedule("sound", due=NOON)
    forget_agents({"brief"})
    assert run_once(NOON) == Swept(due=2, started=1, refused=1)
    row = Schedule.objects.get(name="a-brief")
    assert "no agent is called 'brief'" in row.last_error
    assert (row.enabled, row.next_at, row.last_run) == (True, NOON + HOUR, None)
    assert run_once(NOON) == Swept()
    reporter("brief")
    assert run_once(NOON + HOUR).started == 2
    row.refresh_from_db()
    assert (row.last_error, row.last_run) == ("", runs_of("a-brief").get())


def test_a_fault_of_one_schedule_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule("first", due=NOON - HOUR)
    schedule("second", due=NOON)
    start = schedules._start

    def fail_for_first(row: Schedule, slot: datetime) -> Started:
        if row.name == "first":
            raise RuntimeError("a bug")
        return start(row, slot)

    monkeypatch.setattr(schedules, "_start", fail_for_first)
    assert run_once(NOON) == Swept(due=2, started=1, failed=1)
    # What it was to start is not lost.
    assert Schedule.objects.get(name="first").next_at == NOON - HOUR
    monkeypatch.undo()
    assert run_once(NOON).started == 1


def test_times_that_cannot_be_reckoned_any_more_disable_the_schedule() -> None:
    schedule(due=NOON)
    Schedule.objects.update(time_zone="Mars/Olympus")
    assert run_once(NOON) == Swept(due=1, refused=1)
    row = Schedule.objects.get()
    assert (row.enabled, row.next_at) == (False, None)
    assert "Mars/Olympus" in row.last_error


def test_one_query_finds_out_that_nothing_is_due() -> None:
    schedule(due=NOON)
    with CaptureQueriesContext(connection) as queries:
        run_once(NOON - MINUTE)
    asked = [one["sql"] for one in queries if one["sql"].startswith(("SELECT", "INSERT", "UPDATE"))]
    assert len(asked) == 2
    assert "runs_schedule" in asked[0]
    assert "runs_sweep" in asked[1]


def test_what_is_due_is_found_by_the_index_of_dates() -> None:
    schedule(due=NOON)
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        plan = Schedule.objects.filter(next_at__lte=NOON).order_by("next_at").explain()
        cursor.execute("RESET enable_seqscan")
    assert "schedule_due" in plan


def test_more_than_a_batch_is_due_again_at_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules, "BATCH", 2)
    for number in range(3):
        schedule(f"hourly{number}", due=NOON - number * MINUTE)
    assert run_once(NOON).started == 2
    assert run_once(NOON).started == 1


def test_that_a_sweep_ran_is_kept_and_health_asks_for_it() -> None:
    start_scheduled_runs()
    first = Sweep.objects.get(name=schedules.SWEEP)
    start_scheduled_runs()
    assert Sweep.objects.get(name=schedules.SWEEP).last_run_at > first.last_run_at
    assert schedules.SWEEP in SWEEPS


def test_beat_asks_for_the_sweep_by_its_name() -> None:
    beat = celery.current_app.conf.beat_schedule
    assert start_scheduled_runs.name in {one["task"] for one in beat.values()}
