"""Budgets as arithmetic: what may be spent, what is left, and what is said when nothing is."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from runs.agents import Budget
from runs.budgets import (
    ONE_STEP,
    Limits,
    Spent,
    find_breach,
    grant,
    granted,
    limits_of,
    raise_limits,
    reservation,
    share,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_limits_are_the_agents_unless_the_run_has_its_own() -> None:
    budget = Budget(steps=5, tokens=100, cost_usd="1.50", duration=HOUR)
    limits = limits_of(own=None, budget=budget, created_at=NOW)
    assert limits == Limits(5, 100, Decimal("1.50"), NOW + HOUR)
    own = {"steps": 7, "cost_usd": None}
    assert limits_of(own=own, budget=budget, created_at=NOW) == Limits(7, 100, None, NOW + HOUR)


@pytest.mark.parametrize(
    ("limits", "spent", "needed", "said"),
    [
        (Limits(), Spent(10**6, 10**9, Decimal(99)), ONE_STEP, ""),
        (Limits(steps=3), Spent(steps=2), ONE_STEP, ""),
        (Limits(steps=3), Spent(steps=3), ONE_STEP, "3 of 3 steps"),
        (Limits(tokens=10), Spent(tokens=9), Spent(), ""),
        (Limits(tokens=10), Spent(tokens=10), Spent(), "10 of 10 tokens"),
        (Limits(tokens=10), Spent(tokens=6), Spent(tokens=4), ""),
        (Limits(tokens=10), Spent(tokens=7), Spent(tokens=4), "7 of 10 tokens"),
        (
            Limits(cost_usd=Decimal("0.5")),
            Spent(cost_usd=Decimal("0.5")),
            Spent(),
            "0.5 of 0.5 USD",
        ),
        (Limits(until=NOW + HOUR), Spent(), Spent(), ""),
        (Limits(until=NOW), Spent(), Spent(), "ended 2026-03-01 12:00:00 UTC"),
    ],
    ids=[
        "no limits",
        "the last step",
        "a step too many",
        "some tokens left",
        "no tokens left",
        "what is reserved fits",
        "what is reserved does not fit",
        "no money left",
        "in time",
        "out of time",
    ],
)
def test_a_breach_says_what_is_used_up(
    limits: Limits, spent: Spent, needed: Spent, said: str
) -> None:
    breach = find_breach(limits, spent, needed=needed, now=NOW)
    assert bool(breach) == bool(said)
    assert said in breach


def test_a_breach_says_all_that_was_spent() -> None:
    breach = find_breach(
        Limits(steps=2), Spent(2, 1200, Decimal("0.3400")), needed=ONE_STEP, now=NOW
    )
    assert breach == ("budget: 2 of 2 steps used; spent so far: 2 steps, 1200 tokens, 0.34 USD")


def test_a_child_gets_no_more_than_its_parent_has_left() -> None:
    left = share(Limits(steps=10, tokens=100), Spent(steps=4, tokens=40), among=2)
    assert left == Limits(steps=3, tokens=30)
    own = grant(left, Budget(steps=50, tokens=20, cost_usd="9"), now=NOW)
    assert (own["steps"], own["tokens"], own["cost_usd"]) == (3, 20, "9")


def test_a_parent_reserves_only_what_it_has_a_limit_for() -> None:
    own = grant(Limits(steps=3), Budget(tokens=20), now=NOW)
    assert granted(own) == Spent(steps=3)
    assert granted(None) == Spent()


def test_raising_a_childs_budget_leaves_what_its_parent_reserved() -> None:
    own = grant(Limits(steps=3), Budget(), now=NOW)
    raised = raise_limits(Limits(steps=3), own, now=NOW, steps=4)
    assert (raised["steps"], granted(raised)) == (7, Spent(steps=3))


def test_time_is_added_from_now_once_it_is_over() -> None:
    late = NOW + 5 * HOUR
    raised = raise_limits(Limits(until=NOW), None, now=late, duration=HOUR)
    assert raised["until"] == (late + HOUR).isoformat()
    early = raise_limits(Limits(until=NOW + HOUR), None, now=NOW, duration=HOUR)
    assert early["until"] == (NOW + 2 * HOUR).isoformat()


def test_what_has_no_limit_stays_without_one() -> None:
    assert raise_limits(Limits(), None, now=NOW, steps=4, cost_usd=Decimal(1)) == {}


def test_a_decision_reserves_what_it_may_use_at_most() -> None:
    budget = Budget(step_tokens=500, step_cost_usd="0.02")
    assert reservation(budget) == Spent(tokens=500, cost_usd=Decimal("0.02"))


def test_nothing_is_ever_less_than_nothing_spent() -> None:
    assert Spent(1, 2, Decimal(3)).minus(Spent(2, 1, Decimal(4))) == Spent(0, 1, Decimal(0))
