"""A report as tables for a terminal.

Guarantees: as for `runs/tables.py`. Does not fetch anything.
"""

from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from runs.slo.measures import DISTRIBUTIONS, Measure
from runs.slo.objectives import Objective
from runs.slo.shapes import Distribution, IndicatorStanding, Levels, Report
from runs.tables import printable, show_time

_UNITS: Final = {Objective.LATENCY: "s", Objective.COST: "USD"}
ALL: Final = "all"


def indicators_table(report: Report) -> Table:
    """One row per objective, of all and then of each group."""
    table = _table("of", "objective", "good", "of all", "ratio", "target", "budget left", "burn")
    for levels in (report.all, *report.groups):
        for one in levels.indicators:
            if levels is not report.all and not one.total:
                continue
            mood = {True: "green", False: "red", None: ""}[one.is_kept]
            table.add_row(
                _name(levels),
                Text(_title(one)),
                Text(str(one.good)),
                Text(str(one.total)),
                Text(_percent(one.ratio), style=mood),
                Text(_percent(one.target)),
                Text(_percent(one.budget_left)),
                Text(_burn(one)),
            )
    return table


def counts_table(report: Report) -> Table:
    """What was counted, one row per measure that has a value."""
    table = _table("of", "measure", "count", "sum", "mean", "half", "95 of 100")
    for levels in (report.all, *report.groups):
        for row in _counted(levels):
            table.add_row(_name(levels), *(Text(cell) for cell in row))
    return table


def say_counted(report: Report) -> str:
    """Over which time this was, and how new it is."""
    span = f"From {show_time(report.since)} until {show_time(report.until)}"
    if report.counted_at is None:
        return f"{span}. Nothing was counted yet: are beat and a worker up?"
    return f"{span}, counted last at {show_time(report.counted_at)}."


def _counted(levels: Levels) -> Iterator[tuple[str, ...]]:
    for measure, count in levels.counts.items():
        if count:
            yield (_words(measure), str(count), "", "", "", "")
    for measure, total in levels.sums.items():
        if total:
            yield (_words(measure), "", f"{total:.6g}", "", "", "")
    for measure, spread in levels.distributions.items():
        if spread.count:
            half, most = (_at_most(spread, measure, at) for at in (0.5, 0.95))
            mean = f"{spread.mean:.4g}"
            yield (_words(measure), str(spread.count), f"{spread.total:.6g}", mean, half, most)


def _at_most(spread: Distribution, measure: Measure, part: float) -> str:
    at_most = spread.p50_at_most if part == 0.5 else spread.p95_at_most
    if at_most is None:
        return f"> {DISTRIBUTIONS[measure][-2]:g}"
    return f"≤ {at_most:g}"


def _title(one: IndicatorStanding) -> str:
    if one.bound is None:
        return one.title
    return f"{one.title} (≤ {one.bound:g} {_UNITS[one.name]})"


def _burn(one: IndicatorStanding) -> str:
    if one.target is None:
        return ""
    return "spent" if one.burn is None else f"{one.burn:.2f}"


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.4g} %"


def _name(levels: Levels) -> Text:
    return Text(printable(" ".join(one for one in (levels.agent, levels.name) if one) or ALL))


def _words(measure: Measure) -> str:
    return measure.replace("_", " ")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in columns:
        table.add_column(title, overflow="fold")
    return table
