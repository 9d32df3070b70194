"""The figures of a report in words and charts, for the page of service levels.

Guarantees: a ratio without anything to judge is no hundred percent, and says so; a percentile is
told as the bound that it is. Pure: nothing is read here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.html import format_html

from runs.admin.readonly import Cell, Fact
from runs.admin.show import Tone, badge, link
from runs.slo.measures import DISTRIBUTIONS, Measure
from runs.slo.objectives import Objective
from runs.slo.shapes import Distribution, IndicatorStanding, Levels, Point, Report

# With fewer verdicts than this, their shares say nothing about the rule.
FEW: Final = 20
MOSTLY: Final = 0.95
OFTEN: Final = 0.3
DAY: Final = 86_400


@dataclass(frozen=True)
class Card:
    """One objective: how it stands, in words, and over time as a chart's data."""

    title: str
    ratio: str
    tone: Tone
    verdict: str
    promise: str
    # The part of the error budget that is spent, in hundredths; None where there is none.
    spent: int | None
    budget: str
    chart: str
    rows: Sequence[tuple[str, str]]

    @property
    def short(self) -> Cell:
        """For a cell of a table."""
        return format_html("{} {}", self.ratio, badge(self.verdict, self.tone))


def card_of(one: IndicatorStanding, report: Report) -> Card:
    """An objective as the page shows it."""
    tone, verdict = _judge(one)
    points = [(_time(point, report), _part(point, one.name)) for point in report.series]
    return Card(
        title=one.title,
        ratio=percent(one.ratio),
        tone=tone,
        verdict=verdict,
        promise=_promise(one),
        spent=_spent(one),
        budget=_budget(one),
        chart=_chart(one, points),
        rows=[
            (_time(point, report), f"{point.good[one.name]:,} of {point.total[one.name]:,}")
            for point in report.series
            if point.total.get(one.name)
        ],
    )


def percent(part: float | None) -> str:
    """`99.2 %`; rounded down, so that what is not all is never shown as all."""
    if part is None:
        return "–"
    hundredths = int(part * 10_000) / 100
    return f"{hundredths:g} %"


def _judge(one: IndicatorStanding) -> tuple[Tone, str]:
    if not one.total:
        return "neutral", "nothing to judge"
    if one.is_kept is None:
        return "neutral", "nothing promised"
    if not one.is_kept:
        return "danger", "not kept"
    if one.budget_left is not None and one.budget_left < 0.25:
        return "warning", "nearly spent"
    return "success", "kept"


def _promise(one: IndicatorStanding) -> str:
    judged = f"{one.good:,} of {one.total:,}"
    bound = ""
    if one.bound is not None:
        bound = f" at most {_amount(one.bound, _UNITS_OF[one.name])}"
    if one.target is None:
        return f"{judged}{bound}; no target"
    return f"{judged}{bound}; promised are {percent(one.target)}"


def _spent(one: IndicatorStanding) -> int | None:
    if one.budget_left is None:
        return None
    return min(100, max(0, round((1 - one.budget_left) * 100)))


def _budget(one: IndicatorStanding) -> str:
    if one.budget_left is None:
        return ""
    bad = one.total - one.good
    if one.burn is None:
        return f"None may be bad, and {bad:,} {'is' if bad == 1 else 'are'}"
    if one.target == 1:
        return "None may be bad, and none is"
    if one.budget_left < 0:
        return f"The error budget is spent {one.burn:.1f} times over"
    return f"{percent(one.budget_left)} of the error budget is left, burn {one.burn:.2f}"


# -- Over time ---------------------------------------------------------------------


def _time(point: Point, report: Report) -> str:
    is_within_a_day = (report.until - report.since).total_seconds() < DAY + 3_600
    return point.at.strftime("%H:%M" if is_within_a_day else "%d %b %H:%M")


def _part(point: Point, name: Objective) -> float | None:
    total = point.total.get(name, 0)
    return point.good[name] / total if total else None


def _chart(one: IndicatorStanding, points: Sequence[tuple[str, float | None]]) -> str:
    """The data of the theme's line chart; empty where there is nothing to draw."""
    if not any(part is not None for _, part in points):
        return ""
    lines: list[dict[str, Any]] = [
        {
            "label": one.title,
            "data": [None if part is None else round(part * 100, 2) for _, part in points],
            "borderColor": "var(--color-primary-600)",
            "spanGaps": True,
            # A single point between two gaps would be no line at all.
            "pointStyle": "circle",
            "pointRadius": 2,
            "displayYAxis": True,
            "suffixYAxis": "%",
            "maxTicksXLimit": 6,
        }
    ]
    if one.target is not None:
        lines.append(
            {
                "label": "promised",
                "data": [round(one.target * 100, 2)] * len(points),
                "borderColor": "#9ca3af",
                "borderDash": [4, 4],
            }
        )
    return json.dumps({"labels": [at for at, _ in points], "datasets": lines})


# -- Counts and distributions --------------------------------------------------------


def counted_facts(
    levels: Levels, measures: Iterable[Measure], *, lists: Mapping[Measure, str] | None = None
) -> list[Fact]:
    """Each measure under its name; where there is any, with a link to the list of them."""
    facts = []
    for one in measures:
        count = levels.counts.get(one, 0)
        url = (lists or {}).get(one) if count else None
        facts.append(Fact(_name(one), link(url, f"{count:,}") if url else f"{count:,}"))
    return facts


def summed_facts(levels: Levels) -> list[Fact]:
    """What llms used."""
    return [
        Fact(_name(one), f"${total:,.2f}" if one is Measure.LLM_COST_USD else f"{total:,.0f}")
        for one, total in levels.sums.items()
    ]


def _name(measure: Measure) -> str:
    return measure.value.removesuffix("_usd").replace("_", " ").capitalize()


def say_people(levels: Levels) -> str:
    """Whether people are asked at the right level, as far as their verdicts tell."""
    unchanged, changed, denied = (
        levels.counts[one]
        for one in (
            Measure.APPROVALS_UNCHANGED,
            Measure.APPROVALS_CHANGED,
            Measure.APPROVALS_DENIED,
        )
    )
    decided = unchanged + changed + denied
    if not decided:
        return "Nobody decided on an approval in this window."
    shares = (
        f"Of {decided:,} decided approvals {percent(unchanged / decided)} were signed as they "
        f"were, {percent(changed / decided)} changed and {percent(denied / decided)} denied. "
    )
    if decided < FEW:
        return f"{shares}Too few to judge the rules by."
    if unchanged / decided >= MOSTLY:
        return (
            f"{shares}People change next to nothing: a rule may be asking for signatures that "
            "nobody needs, and what is always signed is soon signed unread."
        )
    if (changed + denied) / decided >= OFTEN:
        return (
            f"{shares}People often want something else than the agent: look at what it is told, "
            "before anybody loosens a rule."
        )
    return f"{shares}People change some and let most pass: the rules ask at about the right level."


def say_duplicates(levels: Levels) -> str:
    """What became of everything that was asked for, or sent, more than once."""
    counts = levels.counts
    seconds = counts[Measure.DUPLICATES]
    repeats = counts[Measure.REPEATS_ANSWERED] + counts[Measure.REPEATS_REFUSED]
    sent = counts[Measure.OPERATIONS_SENT]
    part = (
        f", {percent(repeats / (sent + repeats))} of what was asked for" if sent + repeats else ""
    )
    were = "repeat was" if repeats == 1 else "repeats were"
    said = f"{repeats:,} {were} answered or refused without a second send{part}. "
    if not seconds:
        return f"{said}No second effect was found."
    if seconds == 1:
        return f"{said}1 second effect was found: it is an incident."
    return f"{said}{seconds:,} second effects were found: each is an incident."


def spread_rows(levels: Levels) -> list[tuple[str, ...]]:
    """How values of each distribution lie, one row for each that has any."""
    rows: list[tuple[str, ...]] = []
    for measure, title in _SPREADS.items():
        spread = levels.distributions[measure]
        if spread.count:
            rows.append((title, f"{spread.count:,}", *_lies(spread, measure)))
    return rows


def _lies(spread: Distribution, measure: Measure) -> tuple[str, str, str, str]:
    unit = "USD" if measure is Measure.RUN_COST_USD else "s"
    if not spread.total:
        # The first bound is above all of them, and says less than is known.
        none = _amount(0, unit)
        return none, none, none, none
    beyond = f"over {_amount(DISTRIBUTIONS[measure][-2], unit)}"
    half, most = (
        beyond if bound is None else _amount(bound, unit)
        for bound in (spread.p50_at_most, spread.p95_at_most)
    )
    return _amount(spread.mean or 0, unit), half, most, _amount(spread.total, unit)


def _amount(value: float, unit: str) -> str:
    if unit == "USD":
        return f"${value:,.2f}" if value >= 0.01 or not value else f"${value:.4f}"
    for size, name in ((DAY, "d"), (3_600, "h"), (60, "min")):
        if value >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value:.3g} s"


_SPREADS: Final = {
    Measure.RUN_SECONDS: "run, from creation to its end",
    Measure.RUN_WORKING_SECONDS: "run, without waiting for people",
    Measure.APPROVAL_SECONDS: "approval, until somebody decided",
    Measure.UNKNOWN_SECONDS: "unknown outcome, until it was settled",
    Measure.RUN_COST_USD: "run, what its llms cost",
    Measure.LLM_SECONDS: "request to an llm",
}
_UNITS_OF: Final = {Objective.LATENCY: "s", Objective.COST: "USD"}
