"""Counters of what leaves no row of its own: events of the kernel, over all processes.

Guarantees: every label value is out of a closed set of ours; anything else is counted under the
empty one. A series is there with 0 before anything was counted.

Does not see what a process that was killed had counted in its last seconds. Where the database's
answer got lost on its way, a few seconds of one process may be counted twice.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.metrics_core import Metric

from agentops.metrics.families import counters
from agentops.models import EventCount
from runs.events import Name
from runs.models import ToolObservation

Verdict = ToolObservation.Verdict


@dataclass(frozen=True)
class Counted:
    """How an event is counted: under which name, and by which of its fields, if any, that has one
    of these values."""

    name: str
    what: str
    field: str = ""
    values: tuple[str, ...] = ("",)

    def label_of(self, fields: Mapping[str, Any]) -> str:
        value = str(fields.get(self.field, ""))
        return value if value in self.values else ""


COUNTED: Final[Mapping[Name, Counted]] = {
    Name.RUN_CLAIMED: Counted("claims", "Runs that a process took under a lease."),
    Name.COMMIT_DONE: Counted("commits", "Commits of the state of a run."),
    Name.DECIDER_STARTING: Counted("deciders_asked", "Times that a decider was asked."),
    Name.CALL_DONE: Counted(
        "calls",
        "Calls of tools that came to an end, by what it was.",
        field="outcome",
        values=(Verdict.COMMITTED, Verdict.REJECTED, Verdict.NOT_SENT, Verdict.UNKNOWN),
    ),
    Name.LOOK_UP_DONE: Counted(
        "look_ups",
        "Times that a provider was asked about an unknown operation, by what it said.",
        field="verdict",
        values=(Verdict.COMMITTED, Verdict.NOT_FOUND, Verdict.INDETERMINATE),
    ),
    Name.LEASE_LOST: Counted(
        "leases_lost_events", "Times that a process found that it held a run no more."
    ),
    Name.LATE_EVIDENCE: Counted(
        "late_evidence", "Answers that came to a process which held their run no more."
    ),
    Name.REPLAYED: Counted(
        "replays", "Calls that were answered with what an earlier one of the same intent came to."
    ),
    Name.HINT_LOST: Counted(
        "hints_lost",
        "Messages that the broker did not take, and for which a sweep makes up.",
        field="task",
        values=("runs.advance_run", "runs.reconcile_operation", "runs.watch_operation"),
    ),
}


def read() -> Iterator[Metric]:
    """Read what all processes have written."""
    rows = list(EventCount.objects.values_list("name", "label", "count"))
    for counted in COUNTED.values():
        values = dict.fromkeys(counted.values, 0)
        values |= {label: count for name, label, count in rows if name == counted.name}
        labels = [counted.field] if counted.field else []
        yield counters(
            counted.name,
            counted.what,
            labels=labels,
            values={(label,) if labels else (): count for label, count in values.items()},
        )
