"""Shows the figures: a table for people, JSON for programs.

Guarantees that both hold the same figures, and that every speed stands beside its ratio
to the floor measured around it: absolute figures say more about the disk than about us.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.rounds import Line
from tests.bench.sample import Wait
from tests.bench.server import Server

NOTES = (
    "Speeds are medians. From `commits` on, figures are per steady step; `writing` is the part",
    "of the commits that waits for the disk, `statements` is what pg_stat_statements counts:",
    "the client's, and the server's own deferred foreign key checks.",
)
# Beyond it, somebody else was at work on the machine.
QUIET = 1.5
HEADINGS = (
    "steps/s",
    "of floor",
    "range",
    "commits",
    "writing",
    "round trips",
    "statements",
    "WAL bytes",
)


def show_lines(lines: Sequence[Line], *, server: Server, console: Console) -> None:
    """Prints one row per contender, the floor first, and the settings that matter."""
    table = Table(box=box.MARKDOWN)
    table.add_column("", no_wrap=True)
    for title in HEADINGS:
        table.add_column(title, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(line.contender.title, *_cells(line))
    console.print(table)
    console.print(*NOTES, sep="\n")
    console.print(", ".join(f"{key}={value}" for key, value in server.settings.items()))
    floor = [sample.rate for sample in lines[0].samples]
    if max(floor) > QUIET * min(floor):
        console.print(
            f"The floor itself varied {max(floor) / min(floor):.1f}-fold: the machine was busy with"
            " other things, so do not quote these figures."
        )


def show_waits(waits: Sequence[Wait], *, console: Console) -> None:
    """Prints how long things took, in milliseconds."""
    table = Table(box=box.MARKDOWN)
    table.add_column("", no_wrap=True)
    for title in ("median ms", "range", "times"):
        table.add_column(title, justify="right", no_wrap=True)
    for wait in waits:
        ends = f"{min(wait.seconds) * 1000:.1f} to {max(wait.seconds) * 1000:.1f}"
        table.add_row(wait.title, f"{wait.median * 1000:.1f}", ends, str(len(wait.seconds)))
    console.print(table)


def as_json(lines: Sequence[Line], waits: Sequence[Wait], *, server: Server) -> dict[str, Any]:
    """The same figures; steps per second, costs per step, waits in seconds, None unknown."""
    return {
        "server": dict(server.settings),
        "contenders": {line.contender.key: _figures(line) for line in lines},
        "waits": {wait.title: {"median": wait.median, "all": wait.seconds} for wait in waits},
    }


def _figures(line: Line) -> Mapping[str, Any]:
    cost = line.cost
    return {
        "title": line.contender.title,
        "skipped": line.skipped,
        "rate": line.rate,
        "rates": [sample.rate for sample in line.samples],
        "ratio_to_floor": line.ratio,
        "commits": cost.counters.commits if cost else None,
        "writing_commits": cost.counters.writes if cost else None,
        "round_trips": cost.round_trips if cost else None,
        "statements": cost.counters.statements if cost else None,
        "wal_bytes": cost.counters.wal_bytes if cost else None,
    }


def _cells(line: Line) -> Sequence[str]:
    if line.skipped is not None:
        return ("skipped", *[""] * (len(HEADINGS) - 1))
    figures = _figures(line)
    rates = figures["rates"]
    return (
        _number(figures["rate"], ",.0f"),
        _number(figures["ratio_to_floor"], ".0%"),
        f"{min(rates):,.0f} to {max(rates):,.0f}" if rates else "",
        _number(figures["commits"], ".2f"),
        _number(figures["writing_commits"], ".2f"),
        _number(figures["round_trips"], ".2f"),
        _number(figures["statements"], ".2f"),
        _number(figures["wal_bytes"], ",.0f"),
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
