"""Runs, operations and timelines as tables for a terminal.

Guarantees: text that came from outside (a provider's message, an llm's words) is
shown as text: control characters are replaced and markup is not read.

Does not fetch anything and knows no commands.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from rich.table import Table
from rich.text import Text

from runs.shapes import (
    MARKS,
    Agent,
    DuplicateCounts,
    IncidentOfRun,
    Limits,
    Operation,
    Run,
    Spent,
    TimelineEntry,
    Tool,
)

LONGEST_CELL: Final = 300
_SHORT_ID: Final = 11
_MOODS: Final = {
    "COMPLETED": "green",
    "COMMITTED": "green",
    "TOOL_COMMITTED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELLED": "red",
    "UNKNOWN": "yellow",
    "TOOL_STATUS_UNKNOWN": "yellow",
    "WAITING_FOR_RESOLUTION": "yellow",
    "WAITING_FOR_APPROVAL": "cyan",
    "AWAITING_APPROVAL": "cyan",
}


def timeline_table(entries: Iterable[TimelineEntry]) -> Table:
    """One row per entry. Times are UTC; the fencing token shows who held the run."""
    table = _table("#", "at", "actor", "token", "step", "what", "from → to", "why")
    for entry in entries:
        what = entry.kind.replace("_", " ")
        if entry.operation_id is not None:
            what += f" {entry.operation_id[:_SHORT_ID]}"
        table.add_row(
            _text(entry.seq),
            _text(entry.at.strftime("%H:%M:%S.%f")[:-3]),
            _text(entry.actor),
            _text(entry.fence_token or ""),
            _text(entry.step_number or ""),
            _text(what),
            _movement(entry),
            _text(_why(entry)),
        )
    return table


def runs_table(runs: Sequence[Run]) -> Table:
    """One row per run."""
    table = _table("run", "agent", "state", "steps", "created", "waits for", "error")
    for run in runs:
        table.add_row(
            _text(run.id),
            _text(run.agent),
            _state(run.state),
            _text(run.spent.steps),
            _text(show_time(run.created_at)),
            _text("a person: it is paused" if run.paused_at else say_wait(run)),
            _text(run.error or ""),
        )
    return table


def say_wait(run: Run) -> str:
    """What a run waits for: `signal paid until 2026-01-31 12:00:00 UTC`; empty if for nothing."""
    wait = run.waiting_for
    if wait is None:
        return ""
    until = f"until {show_time(wait.until)}" if wait.until else None
    return " ".join(part for part in (wait.kind, wait.name, until) if part)


def say_spent(spent: Spent, most: Limits) -> str:
    """What a run has spent, and of how much: `3 of 40 steps, 0 tokens, 0 USD`."""
    words = [
        f"{used}{'' if limit is None else f' of {limit}'} {unit}"
        for used, limit, unit in (
            (spent.steps, most.steps, "steps"),
            (spent.tokens, most.tokens, "tokens"),
            (spent.cost_usd, most.cost_usd, "USD"),
        )
    ]
    return ", ".join(words) + (f", until {show_time(most.until)}" if most.until else "")


def operations_table(operations: Sequence[Operation]) -> Table:
    """One row per operation."""
    table = _table("operation", "tool", "status", "run", "step", "sends", "unknown since", "note")
    for operation in operations:
        table.add_row(
            _text(operation.operation_id),
            _text(operation.tool),
            _state(operation.status),
            _text(operation.run),
            _text(operation.step_number),
            _text(operation.attempts),
            _text(show_time(operation.unknown_since)),
            _text(_note(operation)),
        )
    return table


def incidents_table(incidents: Sequence[IncidentOfRun]) -> Table:
    """One row per incident."""
    table = _table("incident", "at", "operation", "tool", "run", "reference", "detail")
    for incident in incidents:
        table.add_row(
            Text(incident.kind, style="red"),
            _text(show_time(incident.at)),
            _text(incident.operation_id),
            _text(incident.tool),
            _text(incident.run),
            _text(incident.external_ref or ""),
            _text(incident.detail),
        )
    return table


def say_counts(counts: DuplicateCounts) -> str:
    """The duplicates that were prevented, and those that were not, in one line."""
    return (
        f"Replays: {counts.replays}. Refused repeats: {counts.refused_repeats}. "
        f"Late commits: {counts.late_commits}. Duplicates: {counts.duplicates}. "
        f"Overdue: {counts.overdue}. Unapproved: {counts.unapproved}."
    )


def say_window(window: Mapping[str, str | None]) -> str:
    """The marks of a send in their order: `opened 12:00:01.000, … deadline 12:00:31.000`."""
    return ", ".join(
        f"{words} {datetime.fromisoformat(at):%H:%M:%S.%f}"[:-3]
        for name, words in MARKS.items()
        if (at := window.get(name))
    )


def say_in_flight(operation: Operation) -> str:
    """Whether an earlier send may yet take effect, and until when; empty if it cannot."""
    if not operation.may_be_in_flight:
        return ""
    until = show_time(operation.settles_at)
    return "may still be in flight" + (f" until {until}" if until else "; nobody knows how long")


def tools_table(tools: Sequence[Tool]) -> Table:
    """One row per tool: what it does and how it is recovered."""
    table = _table(
        "tool", "effect", "provider", "key", "look-up", "audit", "approval", "description"
    )
    for tool in tools:
        table.add_row(
            _text(tool.name),
            _text(tool.effect_type),
            _text(tool.provider or ""),
            _text(tool.idempotency_support),
            _text("yes" if tool.can_reconcile else "no"),
            _text("yes" if tool.can_audit else "no"),
            _text(tool.approval.when if tool.approval else ""),
            _text(tool.description),
        )
    return table


def agents_table(agents: Sequence[Agent]) -> Table:
    """One row per agent."""
    table = _table("agent", "version", "decider", "on a new version", "result", "tools")
    for agent in agents:
        table.add_row(
            _text(agent.name),
            _text(agent.version),
            _text(", else ".join([agent.decider, *agent.fallback])),
            _text(agent.on_version_change.replace("_", " ")),
            _text("any" if agent.output is None else agent.output.get("title", "by its schema")),
            _text(", ".join(agent.tools)),
        )
    return table


def facts_table(facts: Sequence[tuple[str, object]]) -> Table:
    """Names and values, one pair per row."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts:
        table.add_row(Text(name, style="dim"), _text(value))
    return table


def show_time(at: datetime | None) -> str:
    """A time as people read it, or nothing."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""


def printable(text: str) -> str:
    """`text` on one bounded line, without characters that steer a terminal."""
    short = text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in short)


def _note(operation: Operation) -> str:
    notes = [str(incident.kind) for incident in operation.incidents]
    if in_flight := say_in_flight(operation):
        notes.append(in_flight)
    if operation.repeats is not None:
        notes.append(f"repeats {operation.repeats}")
    if operation.error:
        notes.append(operation.error)
    return "; ".join(notes)


def _why(entry: TimelineEntry) -> str:
    known = [entry.reason]
    if entry.reconciliation_result is not None:
        known.insert(0, f"look-up says {entry.reconciliation_result}:")
    if entry.timeout_stage is not None:
        known.append(f"(interrupted at: {entry.timeout_stage})")
    evidence = entry.evidence or {}
    if window := evidence.get("window"):
        known.append(f"(send {evidence['send']}: {say_window(window)})")
    if repeats := evidence.get("repeats"):
        known.append(f"(repeats {repeats})")
    if waits_for := evidence.get("waits_for"):
        known.append(f"({_of_wait(waits_for, evidence)})")
    if corrects := evidence.get("compensates"):
        known.append(f"(corrects {corrects})")
    if entry.external_ref is not None:
        known.append(f"[{entry.external_ref}]")
    if also := evidence.get("also"):
        known.append(f"(and besides: {', '.join(also)})")
    return " ".join(known)


def _of_wait(kind: str, evidence: Mapping[str, str | None]) -> str:
    words = [kind, evidence.get("name")]
    if until := evidence.get("until"):
        words.append(f"until {show_time(datetime.fromisoformat(until))}")
    if outcome := evidence.get("outcome"):
        words.append(outcome.replace("_", " "))
    if author := evidence.get("author"):
        words.append(f"from {author}")
    return " ".join(word for word in words if word)


def _movement(entry: TimelineEntry) -> Text:
    if entry.to_state is None:
        return Text("")
    before = _state(entry.from_state) if entry.from_state else Text("·")
    return Text.assemble(before, " → ", _state(entry.to_state))


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _state(name: str) -> Text:
    return Text(printable(name), style=_MOODS.get(name, ""))


def _text(value: object) -> Text:
    return Text(printable(str(value)))
