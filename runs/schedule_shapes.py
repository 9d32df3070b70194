"""Schedules as callers read them: JSON for the API and `--json`, and tables for a terminal.

Guarantees: an input is shown without the values that its agent's tools declare sensitive.

Does not fetch anything; the last run is to be selected with the rows.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field
from rich.table import Table
from rich.text import Text

from runs.models import Schedule as ScheduleRow
from runs.schedule_text import ScheduleText
from runs.sensitive import names_of_agent
from runs.shapes import Shape
from runs.state import RunState
from runs.tables import printable, show_time
from tools.redaction import redact


class Schedule(Shape):
    """What is started, at which times, and what came of it last. All times are UTC."""

    name: str
    agent: str
    objective: str
    input: Any
    labels: dict[str, str]
    priority: int | None = Field(description="null: the agent's")
    cron: str
    time_zone: str = Field(description="an IANA name; the cron expression is read there")
    catch_up: ScheduleRow.CatchUp = Field(description="what is started of slots that were missed")
    enabled: bool
    next_at: datetime | None = Field(description="null while it is disabled")
    last_slot: datetime | None = Field(description="the newest slot that was to start a run")
    last_missed: datetime | None = Field(description="the newest slot that started none")
    last_run: UUID | None
    last_run_state: RunState | None
    last_error: str | None = Field(description="why the last slot started nothing")
    version: int
    created_by: str
    saved_by: str
    created_at: datetime
    saved_at: datetime


class SchedulePage(Shape):
    """Schedules by name."""

    next: str | None
    previous: str | None
    results: list[Schedule]


def present_schedule(row: ScheduleRow) -> Schedule:
    """One schedule."""
    run = row.last_run
    return Schedule(
        **{
            name: getattr(row, name)
            for name in ScheduleText.__dataclass_fields__
            if name != "input"
        },
        name=row.name,
        input=redact(row.input, names_of_agent(row.agent)),
        next_at=row.next_at,
        last_slot=row.last_slot,
        last_missed=row.last_missed,
        last_run=run.id if run else None,
        last_run_state=RunState(run.state) if run else None,
        last_error=row.last_error or None,
        version=row.version,
        created_by=row.created_by,
        saved_by=row.saved_by,
        created_at=row.created_at,
        saved_at=row.saved_at,
    )


def schedules_table(schedules: Sequence[Schedule]) -> Table:
    """One row per schedule."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("schedule", "agent", "cron", "time zone", "next start", "last run", "error"):
        table.add_column(column, overflow="fold")
    for one in schedules:
        cells = (
            one.name,
            one.agent,
            one.cron,
            one.time_zone,
            show_time(one.next_at) or "disabled",
            f"{one.last_run} {one.last_run_state}" if one.last_run else "",
            one.last_error or "",
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
