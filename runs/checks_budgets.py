"""System checks over what agents may spend: a limit that cannot be counted is an error at start.

Guarantees: a budget, a number of repeats or a limit of an llm that the engine could not reckon
with is named with its agent, its value and what to write in its place.
"""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from django.core.checks import CheckMessage, Error, register

from runs.agents import Agent, all_agents
from runs.budgets import MOST_STEPS
from runs.context import MOST_COST_USD, MOST_TOKENS
from tools import Provider
from tools.checks_limits import check_provider, is_number

MOST_REPEATS: Final = 1_000
LONGEST_DURATION: Final = timedelta(days=3_660)


@register
def check_budgets(**_: Any) -> list[CheckMessage]:
    """All messages about the budgets of all agents."""
    return [message for agent in all_agents() for message in _check(agent)]


def _check(agent: Agent) -> Iterator[CheckMessage]:
    budget = agent.budget
    counts = (
        ("steps", budget.steps, MOST_STEPS, 1),
        ("tokens", budget.tokens, MOST_TOKENS, 1),
        ("step_tokens", budget.step_tokens, MOST_TOKENS, 0),
    )
    for name, given, most, least in counts:
        if given is not None and not is_number(given, least=least, most=most):
            fix = f"Give a whole number from {least} to {most}."
            yield _error(agent, f"Budget({name}={given!r}) is no number of {name}.", fix, 12)
    for name, given_cost in (
        ("cost_usd", budget.cost_usd),
        ("step_cost_usd", budget.step_cost_usd),
    ):
        if given_cost is not None and not _is_amount(given_cost):
            fix = f'Give US dollars as a text from "0" to "{MOST_COST_USD}".'
            yield _error(agent, f"Budget({name}={given_cost!r}) is no amount.", fix, 13)
    duration: Any = budget.duration
    if duration is not None and not (
        isinstance(duration, timedelta) and timedelta(0) < duration <= LONGEST_DURATION
    ):
        fix = f"Give a timedelta of up to {LONGEST_DURATION.days} days."
        yield _error(agent, f"Budget(duration={duration!r}) is no time to live.", fix, 14)
    if not is_number(agent.repeats_allowed, least=2, most=MOST_REPEATS):
        fix = f"Give a whole number from 2 to {MOST_REPEATS}."
        yield _error(agent, f"repeats_allowed={agent.repeats_allowed!r} finds no loop.", fix, 15)
    if (llm := agent.llm_limits) is not None:
        yield from check_provider(
            Provider(name=llm.name, rate=llm.rate, concurrency=llm.concurrency)
        )


def _is_amount(given: object) -> bool:
    try:
        return isinstance(given, str) and 0 <= Decimal(given) <= MOST_COST_USD
    except InvalidOperation:
        return False


def _error(agent: Agent, what: str, fix: str, number: int) -> CheckMessage:
    return Error(what, hint=fix, obj=f"agent {agent.name}", id=f"runs.E0{number}")
