"""When a cron expression comes round: at changes of the clock, after pauses, and in bad words."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from runs.cron import newest_slot, next_slot, next_slots, problems_of_cron, problems_of_zone

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
# The clock goes forward, and back, in 2026; by half an hour on Lord Howe Island.
CHANGES = {
    BERLIN: (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)),
    NEW_YORK: (datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)),
    LORD_HOWE: (datetime(2026, 10, 3, 15, 30, tzinfo=UTC), datetime(2026, 4, 4, 15, tzinfo=UTC)),
    # At midnight; and by an hour in a zone that is 45 minutes off.
    ZoneInfo("America/Havana"): (
        datetime(2026, 3, 8, 5, tzinfo=UTC),
        datetime(2026, 11, 1, 5, tzinfo=UTC),
    ),
    ZoneInfo("Pacific/Chatham"): (
        datetime(2026, 9, 26, 14, tzinfo=UTC),
        datetime(2026, 4, 4, 14, tzinfo=UTC),
    ),
}
EVERY_CHANGE = [(zone, change) for zone, both in CHANGES.items() for change in both]


def ids(given: object) -> str:
    return given.key if isinstance(given, ZoneInfo) else str(given)


def walls(cron: str, zone: ZoneInfo, day: datetime, *, days: int = 1) -> list[str]:
    """What the clock on the wall shows at each slot, from midnight there on."""
    begin = day.astimezone(zone).replace(hour=0, minute=0).astimezone(UTC)
    found = next_slots(cron, zone, begin - MINUTE, count=2000)
    last = (day.astimezone(zone) + timedelta(days=days - 1)).date()
    local = [slot.astimezone(zone) for slot in found]
    return [f"{one:%d %H:%M %Z}" for one in local if one.date() <= last]


@pytest.mark.parametrize(
    ("zone", "moment"),
    [(BERLIN, "29 03:00 CEST"), (NEW_YORK, "08 03:00 EDT")],
    ids=ids,
)
def test_a_time_that_is_skipped_comes_once_at_the_moment_of_the_change(
    zone: ZoneInfo, moment: str
) -> None:
    assert walls("30 2 * * *", zone, CHANGES[zone][0]) == [moment]
    assert next_slot("30 2 * * *", zone, CHANGES[zone][0] - MINUTE) == CHANGES[zone][0]


@pytest.mark.parametrize(
    ("zone", "cron", "moment"),
    [(BERLIN, "30 2 * * *", "25 02:30 CEST"), (NEW_YORK, "30 1 * * *", "01 01:30 EDT")],
    ids=ids,
)
def test_a_time_that_comes_twice_counts_the_first_time(
    zone: ZoneInfo, cron: str, moment: str
) -> None:
    assert walls(cron, zone, CHANGES[zone][1]) == [moment]


def test_half_past_two_in_new_york_comes_once_when_the_clock_goes_back() -> None:
    assert walls("30 2 * * *", NEW_YORK, CHANGES[NEW_YORK][1]) == ["01 02:30 EST"]


def test_asked_within_the_repeated_hour_the_next_one_is_tomorrow() -> None:
    within = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert within.astimezone(BERLIN).strftime("%H:%M %Z") == "02:10 CET"
    found = next_slot("30 2 * * *", BERLIN, within)
    assert found == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_several_times_in_a_skipped_hour_are_one() -> None:
    assert walls("0,20,40 2 * * *", BERLIN, CHANGES[BERLIN][0]) == ["29 03:00 CEST"]


@pytest.mark.parametrize(("zone", "change"), EVERY_CHANGE, ids=ids)
def test_every_15_minutes_is_every_15_minutes(zone: ZoneInfo, change: datetime) -> None:
    slots = next_slots("*/15 * * * *", zone, change - DAY, count=4 * 48)
    assert {later - earlier for earlier, later in pairwise(slots)} == {15 * MINUTE}
    assert change in slots


@pytest.mark.parametrize(("zone", "change"), EVERY_CHANGE, ids=ids)
@pytest.mark.parametrize(
    ("minute", "hour"), [(30, None), (0, None), (None, 5), (None, 2), (10, 0), (None, 0)], ids=str
)
def test_a_starred_schedule_starts_whenever_the_wall_shows_its_time(
    zone: ZoneInfo, change: datetime, minute: int | None, hour: int | None
) -> None:
    cron = f"{'*/5' if minute is None else minute} {'*' if hour is None else hour} * * *"
    if minute is not None and hour is not None:
        cron = f"{minute} */24 * * *"
    begin, end = change - DAY, change + DAY

    def matches(at: datetime) -> bool:
        wall = at.astimezone(zone)
        right_minute = wall.minute % 5 == 0 if minute is None else wall.minute == minute
        return right_minute and hour in (None, wall.hour)

    # Of all minutes only these can match; a slot at another one is found as well.
    minutes = [begin + n * 5 * MINUTE for n in range(1, 2 * 24 * 12)]
    found = next_slots(cron, zone, begin, count=600)
    assert [slot for slot in found if slot < end] == [at for at in minutes if matches(at)]


def test_half_an_hour_that_is_skipped_or_comes_twice() -> None:
    forward, back = CHANGES[LORD_HOWE]
    assert walls("15 2 * * *", LORD_HOWE, forward) == ["04 02:30 +11"]
    assert walls("45 1 * * *", LORD_HOWE, back) == ["05 01:45 +11"]
    assert walls("0,30 * * * *", LORD_HOWE, back)[2:6] == [
        "05 01:00 +11",
        "05 01:30 +11",
        "05 01:30 +1030",
        "05 02:00 +1030",
    ]


@pytest.mark.parametrize(("zone", "change"), EVERY_CHANGE, ids=ids)
def test_a_fixed_time_comes_once_a_day(zone: ZoneInfo, change: datetime) -> None:
    for hour in range(24):
        slots = next_slots(f"30 {hour} * * *", zone, change - 3 * DAY, count=6)
        days = [slot.astimezone(zone).date() for slot in slots]
        assert days == [days[0] + n * DAY for n in range(6)]


@pytest.mark.parametrize(("zone", "change"), EVERY_CHANGE, ids=ids)
@pytest.mark.parametrize("cron", ["*/7 * * * *", "30 1,2,3 * * *", "0 3 * * 0"])
def test_the_newest_slot_is_the_last_of_those_up_to_then(
    zone: ZoneInfo, change: datetime, cron: str
) -> None:
    slots = next_slots(cron, zone, change - 20 * DAY, count=300)
    for slot, following in list(pairwise(slots))[-3:]:
        assert newest_slot(cron, zone, slots[0], slot) == slot
        assert newest_slot(cron, zone, slots[0], following - timedelta(seconds=1)) == slot


def test_a_year_of_missed_minutes_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def count(*given: object) -> datetime | None:
        nonlocal asked
        asked += 1
        return next_slot(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("runs.cron.next_slot", count)
    first, now = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert newest_slot("* * * * *", BERLIN, first, now) == datetime(2026, 1, 1, tzinfo=UTC)
    assert asked < 40


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("61 * * * *", "minute '61'"),
        ("0 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day-of-month '0'"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * MONDAY", "day-of-week 'MONDAY'"),
        ("0 0 * * 1#2/2", "day-of-week '1#2/2'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("\0 * * * *", "minute"),
        ("² * * * *", "minute"),
        ("* * *", "five fields, not 3"),
        ("0 * * * * *", "five fields, not 6"),
        ("@daily", "five fields, not 1"),
        ("", "five fields, not 0"),
        ("0 0 30 2 *", "No such day"),
        ("0 0 30 FEB,FEB *", "No such day"),
        ("0 " * 60, "at most 100 characters"),
    ],
    ids=ascii,
)
def test_a_bad_expression_is_told_what_is_wrong_with_it(cron: str, told: str) -> None:
    (problem,) = problems_of_cron(cron)
    assert problem.field == "cron"
    assert told in problem.fix


@pytest.mark.parametrize(
    "cron", ["*/15 9-17 * * MON-FRI", "0 0 L * *", "0 0 29 2 *", "0 8 * * 1#2"]
)
def test_a_good_expression_has_no_problem(cron: str) -> None:
    assert problems_of_cron(cron) == []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Berlin", "Europe/Berlin"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("../../etc/passwd", ""),
        ("", ""),
        ("\0", ""),
        ("localtime", ""),
    ],
    ids=ascii,
)
def test_an_unknown_zone_is_told_with_the_nearest(name: str, nearest: str) -> None:
    (problem,) = problems_of_zone(name)
    assert problem.field == "time_zone"
    assert (f"'{nearest}'" in problem.fix) == bool(nearest)
    assert problems_of_zone("Europe/Berlin") == problems_of_zone("UTC") == []
