"""Budgets: what a run may spend, what it has spent, and who is asked for more.

Guarantees: what may be spent is reserved in a commit before it is spent, so a worker that
dies, a decider that fails and a run that is resumed have spent it all the same; what a child
run may spend is reserved by its parent when it starts, and settled when it ends. A run that
would go beyond is paused and says what was spent; nothing fails for want of a budget.

Does not meter llms: whoever asks one says what it used (`Context.usage`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from runs.agents import Budget


@dataclass(frozen=True)
class Spent:
    """Steps opened, llm tokens and US dollars, with what is reserved."""

    steps: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    def plus(self, other: "Spent") -> "Spent":
        return Spent(
            self.steps + other.steps, self.tokens + other.tokens, self.cost_usd + other.cost_usd
        )

    def minus(self, other: "Spent") -> "Spent":
        """Never less than nothing."""
        return Spent(
            max(0, self.steps - other.steps),
            max(0, self.tokens - other.tokens),
            max(Decimal(0), self.cost_usd - other.cost_usd),
        )


@dataclass(frozen=True)
class Limits:
    """What one run may spend. None is no limit; `until` is when its time is over."""

    steps: int | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    until: datetime | None = None


# The most that a raise may add, so that no sum leaves its column.
MOST_STEPS = 1_000_000
ONE_STEP = Spent(steps=1)


def limits_of(*, own: Mapping[str, Any] | None, budget: Budget, created_at: datetime) -> Limits:
    """The limits that hold: the run's own, or else those of its agent."""
    given = own or {}
    limits = Limits(
        steps=budget.steps,
        tokens=budget.tokens,
        cost_usd=None if budget.cost_usd is None else Decimal(budget.cost_usd),
        until=None if budget.duration is None else created_at + budget.duration,
    )
    if "steps" in given:
        limits = replace(limits, steps=given["steps"])
    if "tokens" in given:
        limits = replace(limits, tokens=given["tokens"])
    if "cost_usd" in given:
        cost = given["cost_usd"]
        limits = replace(limits, cost_usd=None if cost is None else Decimal(cost))
    if "until" in given:
        until = given["until"]
        limits = replace(limits, until=None if until is None else datetime.fromisoformat(until))
    return limits


def reservation(budget: Budget) -> Spent:
    """What one decision may use at most, beside its step."""
    return Spent(tokens=budget.step_tokens, cost_usd=Decimal(budget.step_cost_usd))


def find_breach(limits: Limits, spent: Spent, *, needed: Spent, now: datetime) -> str:
    """Why `needed` may not be spent on top of `spent`, with all that was; empty if it may."""
    after = spent.plus(needed)
    used_up = []
    if limits.steps is not None and after.steps > limits.steps:
        used_up.append(f"{spent.steps} of {limits.steps} steps")
    # Something must be left where nothing is reserved: what one decision costs is not known.
    if limits.tokens is not None and _is_used_up(spent.tokens, after.tokens, limits.tokens):
        used_up.append(f"{spent.tokens} of {limits.tokens} tokens")
    if limits.cost_usd is not None and _is_used_up(spent.cost_usd, after.cost_usd, limits.cost_usd):
        used_up.append(f"{spent.cost_usd.normalize():f} of {limits.cost_usd:f} USD")
    if limits.until is not None and now >= limits.until:
        used_up.append(f"its time, which ended {limits.until:%Y-%m-%d %H:%M:%S} UTC")
    if not used_up:
        return ""
    return f"budget: {', '.join(used_up)} used; spent so far: {describe_spent(spent)}"


def describe_spent(spent: Spent) -> str:
    """What was spent, in words."""
    cost = f"{spent.cost_usd.normalize():f}"
    return f"{spent.steps} steps, {spent.tokens} tokens, {cost} USD"


def share(limits: Limits, spent: Spent, *, among: int) -> Limits:
    """What each of `among` children may spend of what is left."""
    return Limits(
        steps=None if limits.steps is None else max(0, limits.steps - spent.steps) // among,
        tokens=None if limits.tokens is None else max(0, limits.tokens - spent.tokens) // among,
        cost_usd=None
        if limits.cost_usd is None
        else (max(Decimal(0), limits.cost_usd - spent.cost_usd) / among).quantize(_CENT_OF_CENT),
        until=limits.until,
    )


_CENT_OF_CENT = Decimal("0.000001")


def grant(left: Limits, budget: Budget, *, now: datetime) -> dict[str, Any]:
    """A child's own limits: its agent's, and no more than its parent has left for it.

    `granted` is what the parent reserves; it does not change when the child's budget is raised.
    """
    own = limits_of(own=None, budget=budget, created_at=now)
    steps = _least(own.steps, left.steps)
    tokens = _least(own.tokens, left.tokens)
    cost = _least(own.cost_usd, left.cost_usd)
    until = _least(own.until, left.until)
    return {
        "steps": steps,
        "tokens": tokens,
        "cost_usd": None if cost is None else str(cost),
        "until": None if until is None else until.isoformat(),
        "granted": {
            "steps": 0 if left.steps is None else steps,
            "tokens": 0 if left.tokens is None else tokens,
            "cost_usd": "0" if left.cost_usd is None else str(cost),
        },
    }


def granted(own: Mapping[str, Any] | None) -> Spent:
    """What the parent of a run with these limits has reserved for it."""
    said = (own or {}).get("granted")
    if said is None:
        return Spent()
    return Spent(said["steps"], said["tokens"], Decimal(said["cost_usd"]))


def raise_limits(
    limits: Limits,
    own: Mapping[str, Any] | None,
    *,
    now: datetime,
    steps: int = 0,
    tokens: int = 0,
    cost_usd: Decimal = Decimal(0),
    duration: timedelta = timedelta(0),
) -> dict[str, Any]:
    """A run's own limits with so much more of each; what has no limit stays without.

    Time is counted from now where it is over already.
    """
    raised = dict(own or {})
    if steps and limits.steps is not None:
        raised["steps"] = limits.steps + steps
    if tokens and limits.tokens is not None:
        raised["tokens"] = limits.tokens + tokens
    if cost_usd and limits.cost_usd is not None:
        raised["cost_usd"] = str(limits.cost_usd + cost_usd)
    if duration and limits.until is not None:
        raised["until"] = (max(limits.until, now) + duration).isoformat()
    return raised


def _is_used_up(spent: Any, after: Any, limit: Any) -> bool:
    return bool(after > limit or (spent >= limit and after == spent))


def _least(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value is not None]
    return min(known) if known else None
