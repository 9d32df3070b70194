"""How often each sweep is to run, and whether it does.

Guarantees: the period of a sweep is that of its task in beat's schedule, and stands nowhere else;
start page, `doctor` and `/readyz` judge by the same rule. A tool's audits are a sweep of their own,
which moves on only when its provider has answered.

Does not tell a sweep that never ran because it fails from one whose first turn is yet to come.
"""

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from typing import Any, Final

from django.conf import settings

from agentops.notifications import handing_on
from approvals import sweeps as approvals
from runs import schedules, unsigned
from runs.audit_sweeps import audited_tools, sweep_name
from runs.desk import read_sweeps
from runs.slo import rolling

DUE_RUNS: Final = "due runs"
# Those that nothing goes on without.
SWEEPS: Final = (DUE_RUNS, approvals.SWEEP, schedules.SWEEP)
_AUDIT: Final = "runs.audit_effects"
_TASKS: Final = {
    DUE_RUNS: "runs.sweep_due_runs",
    approvals.SWEEP: "approvals.sweep_approvals",
    schedules.SWEEP: "runs.start_scheduled_runs",
    handing_on.SWEEP: "agentops.send_notifications",
    rolling.SWEEP: "runs.roll_up",
    unsigned.SWEEP: "runs.find_unsigned",
}
_LEAST: Final = timedelta(seconds=10)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class SweepStanding:
    """How many seconds ago a sweep ran last, infinite if it never did; and may at most have."""

    name: str
    task: str
    seconds: float
    allowed: float

    @property
    def is_needed(self) -> bool:
        """Whether nothing goes on without it."""
        return self.name in SWEEPS

    @property
    def has_run(self) -> bool:
        return self.seconds < inf

    @property
    def is_late(self) -> bool:
        return self.seconds > self.allowed and (self.has_run or self.is_needed)


def read_standings() -> list[SweepStanding]:
    """Every sweep that is asked for here, those that nothing goes on without first."""
    ages = {one.name: one.seconds for one in read_sweeps()}
    beat: dict[str, dict[str, Any]] = settings.CELERY_BEAT_SCHEDULE
    periods = {entry["task"]: entry["schedule"] for entry in beat.values()}
    tasks = _TASKS | {sweep_name(spec): _AUDIT for spec in audited_tools()}
    return [
        SweepStanding(name, task, ages.get(name, inf), _allowed(periods[task]))
        for name, task in tasks.items()
    ]


def _allowed(period: timedelta) -> float:
    """Ten turns missed; three, where ten take longer than a minute."""
    return max(_LEAST, min(10 * period, max(_MINUTE, 3 * period))).total_seconds()
