"""The report: service levels over a window, by agent, version or tool.

Guarantees: it is made of rollups alone, with the same few statements however many runs there
were; what is asked for and not known is refused, with what is.

Does not count: `rolling.py` does, every half minute, so the newest runs may be missing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import DateTimeField, F, Func, Q, Value
from django.db.models import Sum as Total
from django.utils import timezone

from runs.agents import all_agents
from runs.errors import InvalidInput
from runs.models import Rollup, Sweep
from runs.slo import shapes, windows
from runs.slo.indicators import INDICATORS, MEASURES, Indicator, Standing, objectives_of, tally
from runs.slo.objectives import DEFAULTS
from runs.slo.reading import Label, Sum, select_rollups, sum_measures
from runs.slo.rolling import SWEEP
from runs.slo.shapes import By, IndicatorStanding, Levels, Point, Report
from runs.slo.windows import Window
from tools.registry import all_tools

_LABELS: Final[dict[By, Label]] = {"agent": "agent", "version": "agent_version", "tool": "tool"}
MOST_GROUPS: Final = 200


def build_report(
    *,
    window: str = windows.DEFAULT,
    by: str | None = None,
    agent: str | None = None,
    tool: str | None = None,
) -> Report:
    """Service levels over `window` (`24h`, `7d`), of one agent or tool if it is given.

    `by` is agent, version or tool; the `MOST_GROUPS` groups with the most to tell are shown.
    Raises InvalidInput.
    """
    span = windows.look_back(window, now=timezone.now())
    grouped = _read_by(by)
    if agent is not None:
        _require_known("agent", agent, [one.name for one in all_agents()])
    if tool is not None:
        _require_known("tool", tool, [one.name for one in all_tools()])
    label = _LABELS[grouped] if grouped is not None else None
    labels: set[Label] = {"agent"} if label is None else {"agent", label}
    sums = sum_measures(since=span.since, by=labels, agent=agent, tool=tool)
    counted_at = Sweep.objects.filter(name=SWEEP).values_list("last_run_at", flat=True).first()
    return Report(
        window=window,
        since=span.since,
        until=span.until,
        counted_at=counted_at,
        by=grouped,
        agent=agent,
        tool=tool,
        all=_build_levels(sums, agent=agent, is_of_tool=tool is not None),
        groups=_build_groups(sums, label, is_of_tool=tool is not None),
        point_seconds=int(span.width.total_seconds()),
        series=_build_series(span, agent=agent, tool=tool),
    )


def _read_by(given: str | None) -> By | None:
    for one in _LABELS:
        if given == one:
            return one
    if given is not None:
        raise _refuse("by", given, _LABELS)
    return None


def _require_known(field: str, given: str, names: list[str]) -> None:
    """It is known here, or it was counted."""
    storable = "\0" not in given  # PostgreSQL takes no NUL, so no name has one
    if given in names or (storable and Rollup.objects.filter(**{field: given}).exists()):
        return
    raise _refuse(field, given, names)


def _refuse(field: str, given: str, known: Iterable[str]) -> InvalidInput:
    fix = f"Use {', '.join(sorted(known)[:20]) or 'none: there is none yet'}."
    return InvalidInput(field=field, value=ascii(given[:80]), fix=fix)


# -- Levels --------------------------------------------------------------------


def _build_groups(sums: list[Sum], label: Label | None, *, is_of_tool: bool) -> list[Levels]:
    if label is None:
        return []
    parts: dict[tuple[str, str], list[Sum]] = {}
    for one in sums:
        name = getattr(one, label)
        if name:
            # One version may be of one agent alone; of a tool, several may make use.
            owner = one.agent if label == "agent_version" else ""
            parts.setdefault((owner, name), []).append(one)
    largest = sorted(parts, key=lambda key: -sum(one.count for one in parts[key]))[:MOST_GROUPS]
    return [
        _build_levels(
            parts[owner, name],
            name=name,
            owner=owner,
            agent=name if label == "agent" else owner or None,
            is_of_tool=is_of_tool or label == "tool",
        )
        for owner, name in sorted(largest)
    ]


def _build_levels(
    sums: list[Sum],
    *,
    name: str = "",
    owner: str = "",
    agent: str | None,
    is_of_tool: bool,
) -> Levels:
    counts, totals = shapes.count(sums)
    return Levels(
        name=name,
        agent=owner,
        indicators=_build_indicators(sums, agent=agent, is_of_tool=is_of_tool),
        counts=counts,
        sums=totals,
        distributions=shapes.spread(sums),
    )


def _build_indicators(
    sums: list[Sum], *, agent: str | None, is_of_tool: bool
) -> list[IndicatorStanding]:
    shown = {one.name: Standing() for one in INDICATORS if one.is_of_operations or not is_of_tool}
    agents = tally(sums)
    for name, tallies in agents.items():
        objectives = objectives_of(name)
        for objective, standing in shown.items():
            standing.add(tallies[objective], target=objectives.target(objective))
    promised = {objectives_of(name) for name in (agents if agent is None else (agent,))}
    return [
        _present(one, shown[one.name], promised or {DEFAULTS})
        for one in INDICATORS
        if one.name in shown
    ]


def _present(indicator: Indicator, standing: Standing, promised: set[Any]) -> IndicatorStanding:
    targets = {one.target(indicator.name) for one in promised}
    bounds = {one.bound(indicator.name) for one in promised}
    # Where nothing was judged yet, what they all promise.
    target = standing.target if standing.promised else _only(targets)
    return IndicatorStanding(
        name=indicator.name,
        title=indicator.title,
        good=standing.tally.good,
        total=standing.tally.total,
        ratio=standing.ratio,
        target=target,
        bound=_only(bounds),
        budget_left=None if target is None else standing.budget_left,
        burn=None if target is None else standing.burn,
        is_kept=None if target is None else standing.burn is not None and standing.burn <= 1,
    )


def _only(values: set[float | None]) -> float | None:
    return next(iter(values)) if len(values) == 1 else None


# -- Series --------------------------------------------------------------------


def _build_series(span: Window, *, agent: str | None, tool: str | None) -> list[Point]:
    rows = _sum_by_point(span, agent=agent, tool=tool)
    shown = [one.name for one in INDICATORS if tool is None or one.is_of_operations]
    points = []
    for at in span.points:
        row = rows.get(at, {})
        total = {name: int(row.get(f"{name}_total") or 0) for name in shown}
        bad = {name: int(row.get(f"{name}_bad") or 0) for name in shown}
        good = {name: max(0, total[name] - bad[name]) for name in shown}
        points.append(Point(at=at, good=good, total=total))
    return points


def _sum_by_point(
    span: Window, *, agent: str | None, tool: str | None
) -> dict[datetime, Mapping[str, Any]]:
    """By point: how much there was to judge of each objective, and how much of it was bad."""
    point = Func(
        Value(span.width),
        F("starts_at"),
        Value(span.since),
        function="date_bin",
        output_field=DateTimeField(),
    )
    columns = {}
    for one in INDICATORS:
        columns[f"{one.name}_total"] = Total("count", filter=Q(measure__in=one.total))
        columns[f"{one.name}_bad"] = Total("count", filter=_is_bad(one))
    rows = (
        select_rollups(since=span.since, measures=MEASURES, agent=agent, tool=tool)
        .values(point=point)
        .annotate(**columns)
    )
    return {row["point"]: dict(row) for row in rows}


def _is_bad(indicator: Indicator) -> Q:
    default = DEFAULTS.bound(indicator.name)
    if default is None:
        return Q(measure__in=indicator.bad)
    own = {one.name: one.objectives.bound(indicator.name) for one in all_agents()}
    special = {name: bound for name, bound in own.items() if bound != default}
    beyond = Q(le__gt=default) & ~Q(agent__in=special)
    for name, bound in special.items():
        beyond |= Q(agent=name, le__gt=bound)
    return Q(measure__in=indicator.total) & beyond
