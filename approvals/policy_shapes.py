"""Policies as people and programs read them.

Guarantees: a version is shown with all that it says, and next to the one before it as what
changed between the two.

Does not read rows.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from approvals.durations import say_duration
from approvals.policies import say_target
from runs.shapes import Shape
from runs.tables import printable, show_time
from tools.models import ToolPolicy

ANY: Final = "any"
# The words for each field, in the order in which they are shown.
LABELS: Final = {
    "outcome": "outcome",
    "tool": "tool",
    "provider": "provider",
    "agent": "agent",
    "when": "when",
    "groups": "groups that must sign",
    "quorum": "people who must sign",
    "approve_by": "time to decide",
    "execute_by": "time to send",
    "escalate_to": "escalate to",
    "escalate_after": "escalate after",
    "remind_after": "remind after",
    "window_seconds": "window",
    "window_by": "window counts",
    "window_money": "window adds up",
    "active": "counts",
}
SIGNATURE_FIELDS: Final = (
    *("groups", "quorum", "approve_by", "execute_by"),
    *("escalate_to", "escalate_after", "remind_after"),
)


class Policy(Shape):
    """One version of a policy. Times are seconds."""

    name: str
    version: int
    active: bool
    outcome: str
    tool: str | None
    provider: str | None
    agent: str | None
    when: str
    groups: list[str]
    quorum: int
    approve_by_seconds: float
    execute_by_seconds: float
    escalate_to: list[str]
    escalate_after_seconds: float | None
    remind_after_seconds: float | None
    window_seconds: int | None
    window_by: str
    window_money: str | None
    author: str
    reason: str
    created_at: datetime


class Stopped(Shape):
    """One switch that is on: nothing is sent by this tool, this provider, or at all."""

    tool: str | None
    provider: str | None
    everything: bool
    author: str
    reason: str
    since: datetime


def present_policy(row: ToolPolicy) -> Policy:
    """A version of a policy."""
    return Policy(
        name=row.name,
        version=row.version,
        active=row.active,
        outcome=row.outcome,
        tool=row.tool or None,
        provider=row.provider or None,
        agent=row.agent or None,
        when=row.when,
        groups=list(row.groups),
        quorum=row.quorum,
        approve_by_seconds=row.approve_by.total_seconds(),
        execute_by_seconds=row.execute_by.total_seconds(),
        escalate_to=list(row.escalate_to),
        escalate_after_seconds=_seconds(row.escalate_after),
        remind_after_seconds=_seconds(row.remind_after),
        window_seconds=row.window_seconds,
        window_by=row.window_by,
        window_money=row.window_money or None,
        author=row.author,
        reason=row.reason,
        created_at=row.created_at,
    )


def present_stop(row: ToolPolicy) -> Stopped:
    """A switch that is on."""
    return Stopped(
        tool=row.tool or None,
        provider=row.provider or None,
        everything=not (row.tool or row.provider),
        author=row.author,
        reason=row.reason,
        since=row.created_at,
    )


def say_field(row: ToolPolicy, field: str) -> str:
    """One field of a version in words."""
    value: Any = getattr(row, field)
    match field:
        case "tool" | "provider" | "agent":
            return value or ANY
        case "groups" | "escalate_to":
            return ", ".join(value) or "none"
        case "window_seconds":
            return "none" if value is None else say_duration(timedelta(seconds=value))
        case "window_money":
            return value or "nothing"
        case "active":
            return "yes" if value else "no, it is retired"
        case "outcome" | "window_by":
            return str(row._get_FIELD_display(row._meta.get_field(field)))  # type: ignore[attr-defined]
    if isinstance(value, timedelta):
        return say_duration(value)
    return "none" if value is None else str(value)


def say_scope(row: ToolPolicy) -> str:
    """Which calls a policy is about, in words."""
    parts = [
        f"{field} {getattr(row, field)}"
        for field in ("tool", "provider", "agent")
        if getattr(row, field)
    ]
    return ", ".join(parts) or "every call"


def fields_shown(row: ToolPolicy) -> list[str]:
    """The fields that say something in this version."""
    hidden = set() if row.outcome == ToolPolicy.Outcome.REQUIRE_APPROVAL else {*SIGNATURE_FIELDS}
    if row.window_seconds is None:
        hidden |= {"window_seconds", "window_by", "window_money"}
    return [field for field in LABELS if field not in hidden]


def changes(before: ToolPolicy | None, after: ToolPolicy) -> list[tuple[str, str, str]]:
    """Field by field what a version changed: its label, the old and the new value in words."""
    if before is None:
        return []
    return [
        (label, say_field(before, field), say_field(after, field))
        for field, label in LABELS.items()
        if getattr(before, field) != getattr(after, field)
    ]


def say_changes(before: ToolPolicy | None, after: ToolPolicy) -> str:
    """The same in one line."""
    if before is None:
        return "first version"
    told = "; ".join(f"{label}: {old} → {new}" for label, old, new in changes(before, after))
    return told or "nothing"


def policies_table(rows: Sequence[ToolPolicy]) -> Table:
    """One row per policy."""
    table = _table("policy", "version", "outcome", "about", "when", "groups", "author", "reason")
    for row in rows:
        outcome = row.outcome if row.active else "retired"
        cells = (
            *(row.name, row.version, outcome, say_scope(row), row.when),
            *(", ".join(row.groups), row.author, row.reason),
        )
        table.add_row(*(Text(printable(str(cell))) for cell in cells))
    return table


def history_table(rows: Sequence[ToolPolicy]) -> Table:
    """One row per version, newest first: who, when, why, and what changed."""
    table = _table("version", "at", "author", "reason", "what changed")
    for row, before in zip(rows, [*rows[1:], None], strict=True):
        cells = (
            *(row.version, show_time(row.created_at), row.author, row.reason),
            say_changes(before, row),
        )
        table.add_row(*(Text(printable(str(cell))) for cell in cells))
    return table


def stops_table(rows: Sequence[ToolPolicy]) -> Table:
    """One row per switch that is on."""
    table = _table("stopped", "since", "by", "reason")
    for row in rows:
        cells = (say_target(row), show_time(row.created_at), row.author, row.reason)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else time.total_seconds()
