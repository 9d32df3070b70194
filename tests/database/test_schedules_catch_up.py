"""Slots that were missed: what each policy starts of them, and how much at once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import celery
import pytest

from runs import schedules
from runs.models import Schedule
from runs.schedules import CATCH_UP, ON_TIME, Swept, find_due, run_once
from tests.database.kit import ON_DATABASE
from tests.database.scheduling import DAY, HOUR, MINUTE, NOON, reporter, schedule, slots_of

pytestmark = ON_DATABASE

SECOND = timedelta(seconds=1)
LATE = NOON + 3 * HOUR + 10 * MINUTE


@pytest.fixture(autouse=True)
def _agent() -> Iterator[None]:
    reporter()
    yield
    celery.current_app.control.purge()


def test_skip_starts_none_of_the_missed() -> None:
    schedule(catch_up="skip", due=NOON)
    assert run_once(LATE) == Swept(due=1)
    row = Schedule.objects.get()
    assert (row.next_at, row.last_missed) == (NOON + 4 * HOUR, NOON + 3 * HOUR)
    assert row.last_slot is None


@pytest.mark.parametrize(("late", "started"), [(ON_TIME, 1), (ON_TIME + SECOND, 0)], ids=str)
def test_skip_starts_what_is_a_little_late(late: timedelta, started: int) -> None:
    schedule(catch_up="skip", due=NOON)
    assert run_once(NOON + late).started == started


def test_skip_starts_the_newest_if_that_is_on_time() -> None:
    schedule(catch_up="skip", due=NOON)
    assert run_once(NOON + 3 * HOUR + SECOND).started == 1
    assert slots_of() == ["2026-06-01T15:00:00Z"]
    assert Schedule.objects.get().last_missed == NOON + 2 * HOUR


def test_latest_starts_only_the_newest_of_the_missed() -> None:
    schedule(catch_up="latest", due=NOON)
    assert run_once(LATE).started == 1
    assert slots_of() == ["2026-06-01T15:00:00Z"]
    row = Schedule.objects.get()
    assert (row.next_at, row.last_missed) == (NOON + 4 * HOUR, NOON + 2 * HOUR)


def test_latest_is_not_too_late_for_a_yearly_one() -> None:
    schedule(cron="0 12 1 6 *", catch_up="latest", due=NOON)
    assert run_once(NOON + 300 * DAY).started == 1
    assert Schedule.objects.get().last_missed is None


def test_all_starts_every_one_oldest_first() -> None:
    schedule(catch_up="all", due=NOON)
    assert run_once(LATE).started == 4
    assert slots_of() == [f"2026-06-01T{hour}:00:00Z" for hour in (12, 13, 14, 15)]
    assert Schedule.objects.get().last_missed is None


def test_all_starts_a_few_per_sweep_and_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules, "MOST_STARTS", 3)
    schedule(catch_up="all", due=NOON)
    schedule("sound", due=NOON + 3 * HOUR)
    assert run_once(LATE).started == 3 + 1
    assert run_once(LATE) == Swept(due=1, started=1)
    assert run_once(LATE) == Swept()
    assert len(set(slots_of())) == 4


def test_all_goes_back_a_week_and_says_what_it_left_out() -> None:
    schedule(cron="0 12 * * *", catch_up="all", due=NOON)
    assert run_once(NOON + 30 * DAY).started == CATCH_UP.days + 1
    assert slots_of()[0] == "2026-06-24T12:00:00Z"
    assert Schedule.objects.get().last_missed == NOON + 22 * DAY


def test_all_starts_nothing_where_everything_is_older_than_a_week() -> None:
    schedule(cron="0 12 1 * *", catch_up="all", due=NOON)
    assert run_once(NOON + 20 * DAY).started == 0
    row = Schedule.objects.get()
    assert (row.next_at, row.last_missed) == (datetime(2026, 7, 1, 12, tzinfo=UTC), NOON)


def test_all_tries_the_other_slots_where_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    row = schedule(catch_up="all", due=NOON)
    # As if somebody had taken the key of the second slot with another request.
    Schedule.objects.update(next_at=NOON + HOUR, objective="other")
    run_once(NOON + HOUR)
    Schedule.objects.filter(pk=row.pk).update(next_at=NOON, last_slot=None, objective="")
    assert run_once(LATE) == Swept(due=1, started=3, refused=1)
    assert len(slots_of()) == 4


def test_a_slot_that_a_change_of_the_clock_skipped_is_caught_up_with_once() -> None:
    due = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    schedule(cron="30 2 * * *", time_zone="Europe/Berlin", catch_up="all", due=due)
    run_once(datetime(2026, 3, 30, 12, tzinfo=UTC))
    assert slots_of() == ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]


def test_a_slot_that_comes_twice_by_the_wall_starts_once() -> None:
    due = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    schedule(cron="30 2 * * *", time_zone="Europe/Berlin", due=due)
    for minutes in range(0, 120, 10):
        run_once(due + minutes * MINUTE)
    assert slots_of() == ["2026-10-25T00:30:00Z"]


def test_a_year_of_minutes_is_reckoned_at_once() -> None:
    for policy in Schedule.CatchUp.values:
        row = schedule(cron="* * * * *", catch_up=policy, due=NOON)
        due = find_due(row, now=NOON + 365 * DAY)
        assert len(due.slots) <= schedules.MOST_STARTS
