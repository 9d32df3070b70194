"""Whether everything moves: stuck runs, runs that nobody serves, workers, what is due, sweeps.

Guarantees: what is as it should be is said in one line; what is not says why, and what to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.html import format_html

from agentops.desk.shapes import (
    ROWS,
    Figure,
    Section,
    Viewer,
    say_count,
    say_many,
    say_seconds,
    tagged,
)
from agentops.sweeping import DUE_RUNS, SweepStanding, read_standings
from runs.admin.readonly import Cell, Table
from runs.admin.show import Tone, line, link, list_url, run_badge, run_link, visible
from runs.desk import Due, count_due
from runs.models import AgentRun, Definition, Worker
from runs.state import RunState
from runs.stuck import Stuck, find_stuck
from runs.unserved import Unserved, find_unserved

# A run that is due is told of every second or so; one that waits longer is not heard of.
PROMPT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Machines:
    """Who works, what is due, and how the sweeps stand."""

    due: Due
    sweeps: Sequence[SweepStanding]

    @property
    def warning(self) -> str:
        """Why nobody takes over what a worker left, nor asks its provider; empty if any does."""
        if not self.due.alive:
            return "No worker is alive"
        if any(one.name == DUE_RUNS and one.is_late for one in self.sweeps):
            return "The sweep for due runs stands still"
        return ""


def read_machines() -> Machines:
    return Machines(due=count_due(), sweeps=read_standings())


def describe_stuck(viewer: Viewer) -> tuple[list[Figure], list[Section]]:
    """Runs with nothing that moves them on."""
    if not viewer.may("runs.view_agentrun"):
        return [], []
    found = find_stuck(most=ROWS + 1)
    count = str(len(found)) if len(found) <= ROWS else f"{ROWS}+"
    figure = Figure(count, "stuck", "#stuck", "danger" if found else "neutral")
    if not found:
        well = "No run is stuck: each has somebody who is due to move it on."
        return [figure], [Section("stuck", "Stuck runs", well=well)]
    table = Table(["run", "state", "why"], [_stuck_row(one) for one in found[:ROWS]])
    note = (
        "To pause a run and resume it has a worker look at it again; its page says what is there."
    )
    return [figure], [Section("stuck", "Stuck runs", table, note=note, tone="danger")]


def _stuck_row(one: Stuck) -> list[Cell]:
    known = one.state in set(RunState)
    return [
        format_html("{} <small>{}</small>", run_link(one.run_id), line(one.agent, 60)),
        run_badge(one.state) if known else line(one.state, 40),
        one.why,
    ]


def describe_unserved(viewer: Viewer) -> tuple[list[Figure], list[Section]]:
    """Runs that no living worker goes on with."""
    if not viewer.may("runs.view_agentrun"):
        return [], []
    found = find_unserved()
    count = sum(one.runs for one in found)
    figure = Figure(
        say_count(count), "served by nobody", "#unserved", "danger" if count else "neutral"
    )
    if not found:
        well = "Every active run is served by a living worker."
        return [figure], [Section("unserved", "Runs that nobody serves", well=well)]
    table = Table(
        ["agent", "version", "runs", "what is missing"],
        [_unserved_row(one) for one in found[:ROWS]],
    )
    note = "Start a worker with the code that serves them, or with the tool."
    return [figure], [
        Section("unserved", "Runs that nobody serves", table, note=note, tone="danger")
    ]


def _unserved_row(one: Unserved) -> list[Cell]:
    missing = (
        f"a worker with the tool {visible(one.tool)[:60]}"
        if one.tool
        else "a worker of this version"
    )
    version: Cell = "none"
    if one.version:
        version = link(list_url(Definition, q=one.version), line(one.version, 20))
    return [
        link(list_url(AgentRun, agent=one.agent), line(one.agent, 60)),
        version,
        say_count(one.runs),
        missing,
    ]


def describe_workers(viewer: Viewer, machines: Machines) -> tuple[list[Figure], list[Section]]:
    """Who works, what is due, and whether sweeps run."""
    if not viewer.may("runs.view_worker"):
        return [], []
    due, sweeps = machines.due, sorted(machines.sweeps, key=lambda one: not one.is_late)
    figures = [
        Figure(
            say_count(due.alive),
            "worker alive" if due.alive == 1 else "workers alive",
            list_url(Worker),
            "neutral" if due.alive else "danger",
        ),
        Figure(
            say_count(due.count),
            "due, held by nobody",
            "#workers",
            "danger" if is_late(due) else "neutral",
        ),
    ]
    rows = [_workers_row(due), _due_row(due), *(_sweep_row(one) for one in sweeps)]
    table = Table(["what", "how it stands"], rows)
    has_run = any(one.has_run for one in sweeps)
    note = "" if has_run else "No sweep has run yet: start the stack with manage.py up."
    is_well = due.alive and not is_late(due) and not any(one.is_late for one in sweeps)
    tone: Tone = "neutral" if is_well else "danger"
    return figures, [Section("workers", "Workers and sweeps", table, note=note, tone=tone)]


def is_late(due: Due) -> bool:
    """Whether a run has been due for so long that nobody seems to take it."""
    return due.oldest_seconds > PROMPT_SECONDS


def _workers_row(due: Due) -> list[Cell]:
    silent = f", {due.silent} not seen lately" if due.silent else ""
    tone: Tone = "danger" if not due.alive else "warning" if due.silent else "neutral"
    return [link(list_url(Worker), "workers"), tagged(f"{due.alive} alive{silent}", tone)]


def _due_row(due: Due) -> list[Cell]:
    if not due.count:
        return ["due runs", "none waits for a worker"]
    waits = say_many(due.count, "waits for a worker,", "wait for a worker, the first")
    words = f"{waits} for {say_seconds(due.oldest_seconds)}"
    return ["due runs", tagged(words, "danger" if is_late(due) else "neutral")]


def _sweep_row(one: SweepStanding) -> list[Cell]:
    words = f"ran {say_seconds(one.seconds)} ago" if one.has_run else "has not run yet"
    return [f"sweep: {line(one.name, 40)}", tagged(words, "danger" if one.is_late else "neutral")]
