"""The sweep over schedules: what is due by the clock becomes runs.

Guarantees: a slot of a schedule starts at most one run, whatever runs twice or dies in between:
the run is written, under a key made of schedule and slot, in the transaction that moves the
schedule on, under its row lock. A slot that starts nothing, because its agent is gone or its
time was missed, is told in the row, and the next slot is tried again; no schedule holds up
another. Two sweeps at one time share the work. It is bounded by what is due: one indexed query
where nothing is, and that it ran.

Does not start to the second: a slot is due when it has come, and started by the next sweep.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from cronsim import CronSimError
from django.db import transaction
from django.db.models.functions import Now

from runs.access import RUNS_WRITE, Actor
from runs.cron import newest_slot, next_slot
from runs.errors import KeyInUse, RunsError
from runs.models import TEXT_LIMIT, Schedule, Sweep
from runs.schedule_commands import request_of
from runs.schedule_text import say_slot
from runs.starting import Started, start_run
from tools.errors import ToolError
from tools.redaction import bound_text

SWEEP: Final = "schedules"
# Schedules per sweep, and starts of one of them: what is left is due at the next sweep.
BATCH: Final = 200
MOST_STARTS: Final = 20
# A slot started no later than this was not missed: sweeps come by the second, and a worker
# that is replaced is back within it.
ON_TIME: Final = timedelta(minutes=1)
# What `all` starts goes back so far; a schedule that was forgotten for a year is not a flood.
CATCH_UP: Final = timedelta(days=7)
_SECOND: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Swept:
    """`refused` slots started nothing; `failed` schedules are tried again by the next sweep."""

    due: int = 0
    started: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Due:
    """What of a schedule is to be started now, oldest first, and where it stands then.

    `missed` is the newest slot that is left out; `next_at` is None where no slot follows.
    """

    slots: tuple[datetime, ...]
    next_at: datetime | None
    missed: datetime | None = None


def run_once(now: datetime | None = None) -> Swept:
    """One sweep, at `now` if it is given, else by the database's clock."""
    due = list(
        Schedule.objects.filter(next_at__lte=now or Now())
        .order_by("next_at")
        .values_list("id", Now())[:BATCH]
    )
    swept = Swept(due=len(due))
    for schedule_id, seen_at in due:
        try:
            started, refused = _start_due(schedule_id, now or seen_at)
        except Exception:
            # Nothing of it was written, and the others have nothing to do with it.
            log.exception("schedule_failed", schedule=schedule_id)
            swept = replace(swept, failed=swept.failed + 1)
        else:
            swept = replace(swept, started=swept.started + started, refused=swept.refused + refused)
    Sweep.objects.bulk_create(
        [Sweep(name=SWEEP, last_run_at=Now(), found=len(due))],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["last_run_at", "found"],
    )
    return swept


def find_due(row: Schedule, *, now: datetime) -> Due:
    """What the catch-up policy makes of the slots from the row's next one up to `now`."""
    zone, first = ZoneInfo(row.time_zone), row.next_at
    assert first is not None
    newest = newest_slot(row.cron, zone, first, now)
    after_all = next_slot(row.cron, zone, newest)
    match Schedule.CatchUp(row.catch_up):
        case Schedule.CatchUp.SKIP if now - newest > ON_TIME:
            return Due((), after_all, missed=newest)
        case Schedule.CatchUp.SKIP | Schedule.CatchUp.LATEST:
            return Due((newest,), after_all, missed=_last_before(newest, row, first))
        case Schedule.CatchUp.ALL:
            return _every_one(row, first, newest, now=now)
        case _ as never:
            assert_never(never)


def _every_one(row: Schedule, first: datetime, newest: datetime, *, now: datetime) -> Due:
    zone = ZoneInfo(row.time_zone)
    slot: datetime | None = first
    missed = None
    if now - first > CATCH_UP:
        slot = next_slot(row.cron, zone, now - CATCH_UP - _SECOND)
        missed = _last_before(slot or newest, row, first)
    slots: list[datetime] = []
    while slot is not None and slot <= newest and len(slots) < MOST_STARTS:
        slots.append(slot)
        slot = next_slot(row.cron, zone, slot)
    return Due(tuple(slots), slot, missed)


def _last_before(slot: datetime, row: Schedule, first: datetime) -> datetime | None:
    if slot <= first:
        return None
    return newest_slot(row.cron, ZoneInfo(row.time_zone), first, slot - _SECOND)


@transaction.atomic
def _start_due(schedule_id: int, now: datetime) -> tuple[int, int]:
    """Start what is due of one schedule and move it on; returns (started, refused)."""
    row = (
        Schedule.objects.select_for_update(skip_locked=True, no_key=True)
        .filter(id=schedule_id, next_at__lte=now)
        .first()
    )
    if row is None:
        return 0, 0
    try:
        due = find_due(row, now=now)
    except (ZoneInfoNotFoundError, CronSimError, ValueError) as error:
        # They were sound when they were saved; the time zones here are other ones now.
        why = bound_text(f"Its times cannot be reckoned any more: {error}", TEXT_LIMIT)
        Schedule.objects.filter(id=row.pk).update(enabled=False, next_at=None, last_error=why)
        return 0, 1
    values: dict[str, Any] = {"next_at": due.next_at}
    started = refused = 0
    for slot in due.slots:
        values["last_slot"] = slot
        try:
            came = _start(row, slot)
        except KeyInUse:
            raise
        except (RunsError, ToolError) as error:
            values["last_error"] = bound_text(str(error), TEXT_LIMIT)
            refused += 1
        else:
            values |= {"last_run": came.run, "last_error": ""}
            started += not came.replayed
    if due.missed is not None:
        values["last_missed"] = due.missed
    if due.next_at is None:
        values |= {"enabled": False, "last_error": "No further slot comes in the next 50 years."}
    Schedule.objects.filter(id=row.pk).update(**values)
    return started, refused


def _start(row: Schedule, slot: datetime) -> Started:
    actor = Actor(
        name=f"schedule {row.name}",
        scopes=frozenset({RUNS_WRITE}),
        # Who wrote what it starts has asked for it, and does not sign in it.
        user_id=row.saved_by_user_id,
    )
    key = f"schedule {row.name} {say_slot(slot)}"
    return start_run(actor=actor, **request_of(row, slot=slot), idempotency_key=key)
