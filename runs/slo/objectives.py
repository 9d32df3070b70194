"""Objectives: what is promised of an agent's runs, and how good it is to be.

Guarantees: a target is a part of all, and a bound is one that is counted by (`DISTRIBUTIONS`);
anything else is refused where it is written. An agent without a word has the defaults.

Does not say how well they are kept: `indicators.py` does. They decide nothing, so another
objective makes no other version of an agent.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runs.slo.measures import DISTRIBUTIONS, Measure


class Objective(StrEnum):
    COMPLETION = "completion"
    LATENCY = "latency"
    COST = "cost"
    UNATTENDED = "unattended"
    DUPLICATES = "duplicates"
    UNKNOWN = "unknown"
    APPROVALS = "approvals"


class InvalidObjective(ValueError):
    """A target or a bound that nothing can be held against."""

    def __init__(self, *, field: str, value: object, fix: str) -> None:
        self.field, self.value, self.fix = field, value, fix
        super().__init__(f"Objectives: {field}={value!r} is not possible. {fix}")


@dataclass(frozen=True, kw_only=True)
class Objectives:
    """Targets as parts of all, 0.99 for 99 of 100; None promises nothing and is only shown.

    `completion`: of the runs that completed or failed, those that completed. `latency`: of these,
    those that worked at most `latency_seconds`, people's time apart. `cost`: those that cost at
    most `cost_usd`, their child runs included. `unattended`: of all that ended, those in which no
    person had a say. `duplicates`: of the sends, those without a second effect. `unknown`: of the
    unknown outcomes, those that were settled within the tool's `reconcile_within`. `approvals`: of
    the requests that people decided, those that were signed unchanged; near 1 policies may be
    asking for more than anybody needs.
    """

    completion: float | None = 0.99
    latency: float | None = 0.95
    latency_seconds: float = 900
    cost: float | None = 0.95
    cost_usd: float = 1
    unattended: float | None = None
    duplicates: float | None = 1.0
    unknown: float | None = 0.99
    approvals: float | None = None

    def __post_init__(self) -> None:
        for objective in Objective:
            target = self.target(objective)
            if target is not None and not (_is_number(target) and 0 < target <= 1):
                fix = "Give a part of all above 0 and up to 1, such as 0.99, or None."
                raise InvalidObjective(field=objective.value, value=target, fix=fix)
        for field, measure in _BOUNDED.items():
            bounds, bound = DISTRIBUTIONS[measure][:-1], getattr(self, field)
            if not _is_number(bound) or bound not in bounds:
                fix = f"Use one that is counted by: {', '.join(f'{one:g}' for one in bounds)}."
                raise InvalidObjective(field=field, value=bound, fix=fix)

    def target(self, objective: Objective) -> float | None:
        """The part of all that is to be good."""
        target: float | None = getattr(self, objective.value)
        return target

    def bound(self, objective: Objective) -> float | None:
        """The largest good value; None where there is no such thing."""
        match objective:
            case Objective.LATENCY:
                return self.latency_seconds
            case Objective.COST:
                return self.cost_usd
            case _:
                return None


_BOUNDED: Final = {
    "latency_seconds": Measure.RUN_WORKING_SECONDS,
    "cost_usd": Measure.RUN_COST_USD,
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


DEFAULTS: Final = Objectives()
