"""What a schedule says, and everything that is wrong with it before it is saved.

Guarantees: every problem is told at once, with its field, its value and the fix; what passes
here is what starting a run takes, with the labels that name the schedule and its slot.

Does not see what changes later: an agent that is gone when a slot comes is told then.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from runs.agents import get_agent
from runs.cron import problems_of_cron, problems_of_zone
from runs.errors import InvalidInput, UnknownAgent
from runs.models import SCHEDULE_NAME, Schedule
from runs.starting import HIGHEST_PRIORITY, MAX_LABELS, check_request
from tools.errors import Problem
from tools.redaction import bound_text

SCHEDULE_LABEL: Final = "schedule"
SLOT_LABEL: Final = "slot"
_OWN_LABELS: Final = frozenset({SCHEDULE_LABEL, SLOT_LABEL})
_NAME: Final = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{SCHEDULE_NAME - 1}}}")


@dataclass(frozen=True, kw_only=True)
class ScheduleText:
    """What people write of a schedule, apart from its name."""

    agent: str
    cron: str
    time_zone: str = "UTC"
    catch_up: str = Schedule.CatchUp.LATEST.value
    objective: str = ""
    input: Any = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    priority: int | None = None
    enabled: bool = True

    @classmethod
    def of(cls, row: Schedule) -> "ScheduleText":
        """What a row says."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)


def problems_of_name(name: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        fix = f"Use 1 to {SCHEDULE_NAME} small letters, digits, - and _, a letter or digit first."
        yield Problem("name", _shown(name), fix)


def problems_of(text: ScheduleText) -> Iterator[Problem]:
    """Everything that is wrong with a schedule."""
    yield from _agent(text.agent)
    yield from problems_of_cron(text.cron)
    yield from problems_of_zone(text.time_zone)
    if text.catch_up not in Schedule.CatchUp.values:
        fix = f"Use one of: {', '.join(Schedule.CatchUp.values)}."
        yield Problem("catch_up", _shown(text.catch_up), fix)
    if text.priority is not None and abs(text.priority) > HIGHEST_PRIORITY:
        fix = f"Give a whole number from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}, or none."
        yield Problem("priority", str(text.priority), fix)
    yield from _labels(text.labels)
    yield from _request(text)


def labels_of(row: Schedule, slot: datetime | None) -> dict[str, str]:
    """The labels of a run that is started for `slot`, or by a person in between."""
    named = {SCHEDULE_LABEL: row.name}
    return {**row.labels, **named, **({SLOT_LABEL: say_slot(slot)} if slot else {})}


def say_slot(slot: datetime) -> str:
    """A slot as its run's label has it: `2026-03-29T01:00:00Z`."""
    return f"{slot.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _agent(name: str) -> Iterator[Problem]:
    try:
        get_agent(name)
    except UnknownAgent as error:
        yield Problem("agent", _shown(name), error.fix)


def _labels(labels: Any) -> Iterator[Problem]:
    if not isinstance(labels, dict):
        return
    if own := sorted(_OWN_LABELS & labels.keys()):
        yield Problem("labels", ", ".join(own), "Use another name: a schedule sets this one.")
    if len(labels) > (most := MAX_LABELS - len(_OWN_LABELS)):
        yield Problem("labels", f"{len(labels)} labels", f"Give at most {most}.")


def _request(text: ScheduleText) -> Iterator[Problem]:
    """What starting a run would refuse, one field at a time."""
    sound: dict[str, Any] = {"agent": "", "objective": "", "input": {}, "labels": {}}
    for name in ("objective", "input", "labels"):
        try:
            check_request({**sound, name: getattr(text, name)}, key=None)
        except InvalidInput as error:
            yield Problem(name, error.value, error.fix)


def _shown(given: str) -> str:
    return bound_text(ascii(given), 100)
