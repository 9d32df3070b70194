"""Indicators: how much of what was measured is good, and what that leaves of the error budget.

Terms. The *error budget* is the part that may be bad: one in a hundred where 0.99 is to be good.
*Burn* is how fast it is spent: at 1.0 it lasts just as long as the window.

Guarantees: each agent is held against its own targets and bounds; what several agents have spent
together is held against what they may spend together. Where nothing may be bad, the first that
is has spent the budget.

Does not read rows; `reading.py` does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from runs.agents import get_agent
from runs.errors import UnknownAgent
from runs.slo.measures import Measure
from runs.slo.objectives import DEFAULTS, Objective, Objectives
from runs.slo.reading import Sum


@dataclass(frozen=True)
class Indicator:
    """How often there was anything to judge, and what of it was bad.

    Where its objective has a bound, what is bad are the values of `total` beyond it.
    """

    name: Objective
    title: str
    total: tuple[Measure, ...]
    bad: tuple[Measure, ...] = ()
    # One of operations can be told by tool.
    is_of_operations: bool = False

    @property
    def measures(self) -> tuple[Measure, ...]:
        return (*self.total, *self.bad)


_M, _O = Measure, Objective
INDICATORS: Final = (
    Indicator(
        _O.COMPLETION,
        "Runs completed",
        total=(_M.RUNS_COMPLETED, _M.RUNS_FAILED),
        bad=(_M.RUNS_FAILED,),
    ),
    Indicator(_O.LATENCY, "Runs done in time", total=(_M.RUN_WORKING_SECONDS,)),
    Indicator(_O.COST, "Runs within their cost", total=(_M.RUN_COST_USD,)),
    Indicator(
        _O.UNATTENDED,
        "Runs without a person",
        total=(_M.RUNS_COMPLETED, _M.RUNS_FAILED, _M.RUNS_CANCELLED),
        bad=(_M.RUNS_TOUCHED,),
    ),
    Indicator(
        _O.DUPLICATES,
        "Sends without a second effect",
        total=(_M.OPERATIONS_SENT,),
        bad=(_M.DUPLICATES,),
        is_of_operations=True,
    ),
    Indicator(
        _O.UNKNOWN,
        "Unknown outcomes settled in time",
        total=(_M.UNKNOWN_IN_TIME, _M.UNKNOWN_OVER_OBJECTIVE),
        bad=(_M.UNKNOWN_OVER_OBJECTIVE,),
        is_of_operations=True,
    ),
    Indicator(
        _O.APPROVALS,
        "Approvals signed unchanged",
        total=(_M.APPROVALS_UNCHANGED, _M.APPROVALS_CHANGED, _M.APPROVALS_DENIED),
        bad=(_M.APPROVALS_CHANGED, _M.APPROVALS_DENIED),
        is_of_operations=True,
    ),
)
MEASURES: Final = frozenset(measure for one in INDICATORS for measure in one.measures)


@dataclass
class Tally:
    """What was counted for one indicator of one agent."""

    total: int = 0
    bad: int = 0

    @property
    def good(self) -> int:
        """A second effect may be found in another window than its send."""
        return max(0, self.total - self.bad)


@dataclass
class Standing:
    """How several agents together stand against one objective."""

    tally: Tally = field(default_factory=Tally)
    # Of those with a target alone.
    promised: int = 0
    spent: int = 0
    allowed: Fraction = Fraction()

    def add(self, tally: Tally, *, target: float | None) -> None:
        self.tally.total += tally.total
        self.tally.bad += tally.bad
        if target is not None:
            self.promised += tally.total
            self.spent += tally.bad
            # As it is written: 1 - 0.9 as a float is less than a tenth.
            self.allowed += tally.total * (1 - Fraction(str(target)))

    @property
    def ratio(self) -> float | None:
        """The good part; None where there was nothing to judge."""
        return self.tally.good / self.tally.total if self.tally.total else None

    @property
    def target(self) -> float | None:
        """What they promise together: the mean of their targets, by how much each did."""
        return float(1 - self.allowed / self.promised) if self.promised else None

    @property
    def burn(self) -> float | None:
        """How fast the budget is spent. None: there is none, and something was bad."""
        if not self.spent:
            return 0.0
        return float(self.spent / self.allowed) if self.allowed else None

    @property
    def budget_left(self) -> float:
        """The part of the budget that the window leaves; below 0 where more was spent."""
        return 0.0 if self.burn is None else 1 - self.burn


def tally(sums: Iterable[Sum]) -> dict[str, dict[Objective, Tally]]:
    """By agent and objective. `sums` are grouped by agent, and perhaps more."""
    found: dict[str, dict[Objective, Tally]] = {}
    for one in sums:
        if one.measure not in MEASURES:
            continue
        objectives = objectives_of(one.agent)
        tallies = found.setdefault(one.agent, {each.name: Tally() for each in INDICATORS})
        for indicator in INDICATORS:
            into = tallies[indicator.name]
            bound = objectives.bound(indicator.name)
            if one.measure in indicator.total:
                into.total += one.count
            if one.measure in indicator.bad or (
                bound is not None and one.measure in indicator.total and one.le > bound
            ):
                into.bad += one.count
    return found


def objectives_of(agent: str) -> Objectives:
    """What is promised of this agent; the defaults for one that is not known here."""
    try:
        return get_agent(agent).objectives
    except UnknownAgent:
        return DEFAULTS
