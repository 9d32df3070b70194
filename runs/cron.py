"""When a cron expression comes round in a time zone.

Guarantees, at a change of the clock, what Debian's cron does: a schedule at fixed times (neither
minute nor hour begins with `*`) starts once at a time that is skipped, at the moment of the
change, and once at a time that comes twice, the first time; any other starts whenever the clock
on the wall matches, so that every 15 minutes is every 15 minutes. Times are in UTC and on the
full minute.

Does not know seconds, and does not foresee what a government decides later: a time is
as right as the zone's rules are where it is computed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from tools.errors import Problem

LONGEST_CRON: Final = 100
_FIELDS: Final = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L for the last day or LW for the last working day",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, 5L for the last Friday or 1#2 for the second Monday",
}
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
# No zone has changed its offset twice in this time.
_COARSE: Final = timedelta(days=7)


def problems_of_cron(cron: str) -> list[Problem]:
    """What keeps `cron` from being an expression that comes round; nothing if it does."""

    def problem(fix: str) -> list[Problem]:
        return [Problem("cron", ascii(cron[:LONGEST_CRON]), fix)]

    if len(cron) > LONGEST_CRON:
        return problem(f"Use at most {LONGEST_CRON} characters.")
    fields = cron.split()
    if len(fields) != len(_FIELDS):
        return problem(
            f"Write five fields, not {len(fields)}: minute, hour, day of the month, month, day of "
            "the week, such as '30 2 * * *'."
        )
    for field, (name, possible) in zip(fields, _FIELDS.items(), strict=True):
        alone = ["*"] * len(fields)
        alone[list(_FIELDS).index(name)] = field
        if not _is_read(" ".join(alone)):
            return problem(
                f"{name} {field!a} is not possible: use {possible}; also * for each, */n for "
                "every nth, a-b for a range and commas between several."
            )
    if not _is_read(cron) or next_slot(cron, ZoneInfo("UTC"), datetime.now(UTC)) is None:
        return problem("No such day comes in the next 50 years; look at day and month.")
    return []


def problems_of_zone(name: str) -> list[Problem]:
    """What keeps `name` from being an IANA time zone; nothing if it is one."""
    known = _zones()
    if name in known:
        return []
    by_part = {part.lower(): zone for zone in sorted(known) for part in (zone, zone.split("/")[-1])}
    near = get_close_matches(name.strip().lower().replace(" ", "_")[:100], by_part, n=1)
    hint = f"Did you mean {by_part[near[0]]!r}? " if near else ""
    fix = f"{hint}Write an IANA name, such as Europe/Berlin or UTC."
    return [Problem("time_zone", ascii(name[:100]), fix)]


def next_slot(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first time later than `after`; None where none comes in 50 years."""
    minute, hour = cron.split()[:2]
    if minute.startswith("*") or hour.startswith("*"):
        return _next_by_the_wall(cron, zone, after)
    return _next_at_fixed_times(cron, zone, after)


def next_slots(cron: str, zone: ZoneInfo, after: datetime, *, count: int) -> list[datetime]:
    """The first `count` times later than `after`."""
    found: list[datetime] = []
    while len(found) < count and (slot := next_slot(cron, zone, after)) is not None:
        found.append(slot)
        after = slot
    return found


def newest_slot(cron: str, zone: ZoneInfo, slot: datetime, until: datetime) -> datetime:
    """The last time up to `until`, given that `slot` is one. Looks at few of those between."""
    too_late = until
    while too_late - slot > _MINUTE:
        middle = slot + (too_late - slot) / 2
        found = next_slot(cron, zone, middle)
        if found is not None and found <= until:
            slot = found
        else:
            too_late = middle
    while (found := next_slot(cron, zone, slot)) is not None and found <= until:
        slot = found
    return slot


def _next_at_fixed_times(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    for wall in _matches(cron, _wall(after, zone)):
        slot = wall.replace(tzinfo=zone).astimezone(UTC)
        if _wall(slot, zone) != wall:
            # The clock skips this time; read with the offset after the change it lies before it.
            before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
            slot = _first_change(zone, before, slot) or slot
        # After a time that comes twice, the wall shows times that are over.
        if slot > after:
            return slot
    return None


def _next_by_the_wall(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """From one change of the clock to the next, the wall runs as UTC does."""
    since, wall, seen = after, _wall(after, zone), after
    while (found := next(_matches(cron, wall), None)) is not None:
        slot = since + (found - wall)
        change = _first_change(zone, seen, slot)
        if change is None:
            return slot
        # The very moment of the change may match, so look from right before it.
        since, wall, seen = change - _SECOND, _wall(change, zone) - _SECOND, change
    return None


def _matches(cron: str, wall: datetime) -> Iterator[datetime]:
    """The times on the wall that match, later than `wall`, as if the clock never changed."""
    # The library has rules for changes of the clock, which miss times where a change, or a
    # zone's offset, is no whole hour; told of no zone, it applies none.
    return iter(CronSim(cron, wall))


def _wall(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_change(zone: ZoneInfo, begin: datetime, end: datetime) -> datetime | None:
    """When the zone's offset is first another than at `begin`, up to `end`."""
    offset = begin.astimezone(zone).utcoffset()
    begin = begin.replace(microsecond=0)
    while begin < end:
        changed = min(begin + _COARSE, end)
        if changed.astimezone(zone).utcoffset() == offset:
            begin = changed
            continue
        while changed - begin > _SECOND:
            middle = begin + timedelta(seconds=(changed - begin) // _SECOND // 2)
            if middle.astimezone(zone).utcoffset() == offset:
                begin = middle
            else:
                changed = middle
        return changed.replace(microsecond=0)
    return None


def _is_read(cron: str) -> bool:
    try:
        CronSim(cron, datetime(2000, 1, 1))
    except (CronSimError, AssertionError, ValueError):
        # It asserts, in places, what only a strange expression breaks.
        return False
    return True


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones() - {"Factory", "localtime"})
