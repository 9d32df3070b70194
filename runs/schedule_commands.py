"""Writing schedules, and starting one now: the commands.

Guarantees: whoever writes has the scope `schedules:write`; a schedule with a mistake in it is
refused whole and nothing is saved; of two who save on the ground of the same version one is
told of the other. The next start is reckoned anew where its times are written, and always lies
ahead: nothing is missed by a schedule while it is disabled.

Does not start anything by itself: `schedules.py` does.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from runs.access import RUNS_WRITE, SCHEDULES_WRITE, Actor
from runs.cron import next_slot, problems_of_cron, problems_of_zone
from runs.errors import InvalidSchedule, ScheduleChanged, UnknownSchedule
from runs.models import Schedule
from runs.schedule_text import ScheduleText, labels_of, problems_of, problems_of_name
from runs.starting import Started, start_run


def get_schedule(name: str) -> Schedule:
    """The schedule of this name, with its last run. Raises UnknownSchedule."""
    return _one_of(Schedule.objects.select_related("last_run"), name)


def save_schedule(
    *, actor: Actor, name: str, text: ScheduleText, based_on: int | None = None
) -> Schedule:
    """Write a schedule, new or as it is from now on; returns its row.

    `based_on` is the version that the author saw, 0 for none; without one the last to save
    wins. Raises InvalidSchedule, ScheduleChanged or NotPermitted.
    """
    actor.require(SCHEDULES_WRITE)
    if problems := [*problems_of_name(name), *problems_of(text)]:
        raise InvalidSchedule(problems)
    written = asdict(text) | {
        "cron": " ".join(text.cron.split()),
        "saved_by": actor.name,
        "saved_by_user_id": actor.user_id,
    }
    with transaction.atomic():
        row = Schedule.objects.select_for_update(no_key=True).filter(name=name).first()
        if based_on is not None and based_on != (row.version if row else 0):
            raise ScheduleChanged(name=name, saved_by=row.saved_by if row else "somebody")
        if row is None:
            return _create(name, written, created_by=actor.name)
        moved = (row.cron, row.time_zone) != (written["cron"], text.time_zone)
        if not text.enabled:
            written["next_at"] = None
        elif moved or row.next_at is None:
            written["next_at"] = _next_start(text, after=row.last_slot)
        return _write(row, **written, last_error="", version=row.version + 1, saved_at=Now())


def enable_schedule(*, actor: Actor, name: str) -> Schedule:
    """Start runs again, from the next slot on. Again, it changes nothing.

    Raises UnknownSchedule, InvalidSchedule (its times cannot be read any more) or NotPermitted.
    """
    actor.require(SCHEDULES_WRITE)
    with transaction.atomic():
        row = _lock(name)
        if row.enabled:
            return row
        if problems := [*problems_of_cron(row.cron), *problems_of_zone(row.time_zone)]:
            raise InvalidSchedule(problems)
        next_at = _next_start(ScheduleText.of(row), after=row.last_slot)
        return _write(row, enabled=True, next_at=next_at, last_error="")


def disable_schedule(*, actor: Actor, name: str) -> Schedule:
    """Start no more runs; those that were started go on. Again, it changes nothing.

    Raises UnknownSchedule or NotPermitted.
    """
    actor.require(SCHEDULES_WRITE)
    with transaction.atomic():
        return _write(_lock(name), enabled=False, next_at=None)


def delete_schedule(*, actor: Actor, name: str) -> None:
    """Forget a schedule; its runs stay. Raises UnknownSchedule or NotPermitted."""
    actor.require(SCHEDULES_WRITE)
    with transaction.atomic():
        _lock(name).delete()


def start_now(*, actor: Actor, name: str, idempotency_key: str | None = None) -> Started:
    """Start a run of the schedule besides its slots, which stay as they are.

    The run is the actor's. Raises UnknownSchedule, NotPermitted, and what `start_run` raises.
    """
    actor.require(SCHEDULES_WRITE)
    starter = Actor(name=actor.name, scopes=frozenset({RUNS_WRITE}), user_id=actor.user_id)
    with transaction.atomic():
        row = _lock(name)
        started = start_run(
            actor=starter, **request_of(row, slot=None), idempotency_key=idempotency_key
        )
        if not started.replayed:
            _write(row, last_run=started.run)
        return started


def request_of(row: Schedule, *, slot: datetime | None) -> dict[str, Any]:
    """What `start_run` is asked for, apart from who asks and under which key."""
    return {
        "agent": row.agent,
        "objective": row.objective,
        "input": row.input,
        "labels": labels_of(row, slot),
        "priority": row.priority,
    }


def _lock(name: str) -> Schedule:
    return _one_of(Schedule.objects.select_for_update(no_key=True), name)


def _one_of(rows: "QuerySet[Schedule]", name: str) -> Schedule:
    # PostgreSQL takes no NUL, so no name has one.
    row = None if "\0" in name else rows.filter(name=name).first()
    if row is None:
        raise UnknownSchedule(name=name)
    return row


def _create(name: str, written: dict[str, Any], *, created_by: str) -> Schedule:
    text = ScheduleText(**{one: written[one] for one in ScheduleText.__dataclass_fields__})
    if text.enabled:
        written["next_at"] = _next_start(text, after=None)
    try:
        with transaction.atomic():
            row = Schedule.objects.create(name=name, created_by=created_by, **written)
    except IntegrityError as error:
        other = Schedule.objects.filter(name=name).first()
        if other is None:
            raise
        raise ScheduleChanged(name=name, saved_by=other.saved_by) from error
    row.refresh_from_db()
    return row


def _write(row: Schedule, **values: Any) -> Schedule:
    Schedule.objects.filter(pk=row.pk).update(**values)
    row.refresh_from_db()
    return row


def _next_start(text: ScheduleText, *, after: datetime | None) -> datetime | None:
    """The first slot that is ahead, by the clock that the sweep goes by."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        now: datetime = cursor.fetchone()[0]
    # A slot that had its run comes no second time, whatever was done to the clock.
    return next_slot(text.cron, text.zone, max(now, after or now))
