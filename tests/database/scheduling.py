"""What the tests of schedules share: agents that finish, schedules that are due, their runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from runs import Agent, Finish
from runs.access import operator
from runs.models import AgentRun, Schedule
from runs.schedule_commands import save_schedule
from runs.schedule_text import ScheduleText

# A Monday, at noon; every test says what time it is.
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def reporter(name: str = "reporter") -> Agent:
    """An agent that finishes at once."""
    return Agent(name=name, decider=lambda context: Finish(None))


def schedule(name: str = "hourly", *, due: datetime | None = None, **given: Any) -> Schedule:
    """A schedule of `reporter`, every hour; with `due` its next slot."""
    text = ScheduleText(**({"agent": "reporter", "cron": "0 * * * *"} | given))
    row = save_schedule(actor=operator(), name=name, text=text)
    if due is not None:
        Schedule.objects.filter(pk=row.pk).update(next_at=due)
        row.refresh_from_db()
    return row


def runs_of(name: str = "hourly") -> "QuerySet[AgentRun]":
    """The runs that the schedule started at its slots, oldest first."""
    return AgentRun.objects.filter(created_by=f"schedule {name}").order_by("id")


def slots_of(name: str = "hourly") -> list[str]:
    """The slots of those runs, as their labels have them."""
    return [run.labels["slot"] for run in runs_of(name)]
