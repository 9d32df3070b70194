"""How it went lately: tools that fail, incidents, and what was spent.

Guarantees: two sums over rollups and one page of an index, however much happened.

Does not know the last seconds: rollups are counted every half minute.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.utils.html import format_html

from agentops.desk.shapes import ROWS, Section, Viewer, meter
from runs.admin.readonly import Cell, Table
from runs.admin.show import badge, line, link, list_url, record_url, run_link, when
from runs.models import AgentRun, Incident, ToolOperation
from runs.slo.measures import Measure
from runs.slo.reading import Label, Sum, sum_measures

HOUR, DAY = timedelta(hours=1), timedelta(hours=24)
# From this part of its calls on, a tool is marked as failing.
FAILS_FROM: Final = 0.1
_OF_TOOLS: Final = (
    Measure.OPERATIONS_COMMITTED,
    Measure.OPERATIONS_REJECTED,
    Measure.UNKNOWN_SECONDS,
)
_BY_TOOL: Final[tuple[Label, ...]] = ("tool",)
_OF_AGENTS: Final = (Measure.LLM_REQUESTS, Measure.LLM_TOKENS, Measure.LLM_COST_USD)


@dataclass
class Calls:
    """What became of a tool's calls. `lost` are those whose answer was, whatever came out."""

    committed: int = 0
    rejected: int = 0
    lost: int = 0

    @property
    def count(self) -> int:
        return max(self.committed + self.rejected, self.lost)

    @property
    def failing(self) -> float:
        """Which part of them did not simply come off, from 0 to 1."""
        return min(1.0, (self.rejected + self.lost) / self.count) if self.count else 0.0


@dataclass
class Spent:
    """What the llm requests of an agent took."""

    requests: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)


def describe_lately(viewer: Viewer, *, now: datetime) -> list[Section]:
    """Each of them for those who may see the rows behind it."""
    may_tools = viewer.may("runs.view_tooloperation")
    may_runs = viewer.may("runs.view_agentrun")
    wanted = (*(_OF_TOOLS if may_tools else ()), *(_OF_AGENTS if may_runs else ()))
    day = sum_measures(since=now - DAY, by=("agent", "tool"), measures=wanted) if wanted else []
    sections = []
    if may_tools:
        sections.append(_tools(_calls_by_tool(day), now=now))
    if viewer.may("runs.view_incident"):
        sections.append(_incidents())
    if may_runs:
        sections.append(_spend(_spent_by_agent(day)))
    return sections


def _calls_by_tool(sums: Iterable[Sum]) -> dict[str, Calls]:
    found: dict[str, Calls] = defaultdict(Calls)
    for one in sums:
        match one.measure:
            case Measure.OPERATIONS_COMMITTED:
                found[one.tool].committed += one.count
            case Measure.OPERATIONS_REJECTED:
                found[one.tool].rejected += one.count
            case Measure.UNKNOWN_SECONDS:
                found[one.tool].lost += one.count
    return found


def _spent_by_agent(sums: Iterable[Sum]) -> dict[str, Spent]:
    found: dict[str, Spent] = defaultdict(Spent)
    for one in sums:
        match one.measure:
            case Measure.LLM_REQUESTS:
                found[one.agent].requests += one.count
            case Measure.LLM_TOKENS:
                found[one.agent].tokens += int(one.total)
            case Measure.LLM_COST_USD:
                found[one.agent].cost_usd += one.total
    return found


def _tools(day: Mapping[str, Calls], *, now: datetime) -> Section:
    failing = {tool: calls for tool, calls in day.items() if calls.rejected or calls.lost}
    count = sum(one.count for one in day.values())
    if not failing:
        well = "No call has failed in 24 hours"
        well += f", of {count:,}." if count else ": none was settled."
        return Section("tools", "Failing tools", well=well)
    hour = _calls_by_tool(sum_measures(since=now - HOUR, by=_BY_TOOL, measures=_OF_TOOLS))
    worst = sorted(failing, key=lambda tool: (-failing[tool].failing, tool))[:ROWS]
    table = Table(
        ["tool", "in 24 h", "in the last hour"],
        [_tool_row(tool, failing[tool], hour.get(tool, Calls())) for tool in worst],
    )
    note = "Of the calls that were settled; without an answer, an effect is unknown for a while."
    return Section("tools", "Failing tools", table, note=note)


def _tool_row(tool: str, day: Calls, hour: Calls) -> list[Cell]:
    name: Cell = "not a tool"
    if tool:
        name = link(list_url(ToolOperation, tool=tool), line(tool, 60))
    lately = f"{hour.failing:.0%} of {hour.count:,}" if hour.count else "no call"
    return [
        name,
        meter(
            day.failing,
            f"{day.failing:.0%} of {day.count:,}: {day.rejected:,} refused, "
            f"{day.lost:,} without an answer",
            tone="danger" if day.failing >= FAILS_FROM else "info",
        ),
        badge(lately, "danger") if hour.failing >= FAILS_FROM else lately,
    ]


def _incidents() -> Section:
    rows = Incident.objects.select_related("operation").order_by("-at", "-id")
    found = list(rows.only("kind", "at", "run_id", "operation__tool")[: ROWS + 1])
    if not found:
        well = "No effect came late, twice or unsigned, and none stayed unknown for too long."
        return Section("incidents", "Incidents", well=well)
    table = Table(
        ["incident", "tool", "run", "when"],
        [
            [
                link(record_url(Incident, one.pk), one.kind.replace("_", " ").capitalize()),
                line(one.operation.tool, 60),
                run_link(one.run_id),
                when(one.at),
            ]
            for one in found[:ROWS]
        ],
        more_url=list_url(Incident),
        more_text="All incidents",
    )
    return Section("incidents", "Newest incidents", table)


def _spend(spent: Mapping[str, Spent]) -> Section:
    if not spent:
        return Section("spend", "Spent in 24 hours", well="No llm was asked.")
    most = sorted(spent, key=lambda agent: (-spent[agent].cost_usd, -spent[agent].tokens, agent))
    total = sum((one.cost_usd for one in spent.values()), Decimal(0))
    tokens = sum(one.tokens for one in spent.values())
    table = Table(
        ["agent", "cost", "tokens", "requests"],
        [
            [
                link(list_url(AgentRun, agent=agent), line(agent, 60)),
                _usd(spent[agent].cost_usd),
                f"{spent[agent].tokens:,}",
                f"{spent[agent].requests:,}",
            ]
            for agent in most[:ROWS]
        ],
    )
    note = format_html("{} for {} tokens in all.", _usd(total), f"{tokens:,}")
    return Section("spend", "Spent in 24 hours", table, note=note)


def _usd(amount: Decimal) -> str:
    return f"${amount:,.2f}" if amount >= 1 or not amount else f"${amount:.4f}"
