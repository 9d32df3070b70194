"""Resuming: a paused run goes on, with a larger budget where it needs one.

Guarantees: a run that would be paused again at once for its budget is not resumed, and the
refusal says what was spent; what is added is kept with who added it.

Does not look at why the run was paused: whoever resumes it has read that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from runs.access import RUNS_WRITE, Actor
from runs.agents import Budget, get_agent
from runs.asking import add_edge, check_number, lock_run, note_request, read_again
from runs.budgets import (
    MOST_STEPS,
    ONE_STEP,
    Limits,
    Spent,
    find_breach,
    limits_of,
    raise_limits,
    reservation,
)
from runs.context import MOST_COST_USD, MOST_TOKENS
from runs.errors import InvalidInput, OverBudget, UnknownAgent, WrongState
from runs.models import AgentRun, ControlRequest
from runs.state import FINAL_STATES, RUN_EDGES, RunEvent, RunState
from runs.wake import hint_after_commit

TEN_YEARS: Final = 10 * 366 * 86_400
# The column that counts US dollars keeps so many decimals.
USD_DECIMALS: Final = 6


@dataclass(frozen=True, kw_only=True)
class Raise:
    """How much more a run may spend. `cost_usd` is a decimal text; `seconds` count from now
    where the run's time is over already."""

    steps: int = 0
    tokens: int = 0
    cost_usd: str = "0"
    seconds: int = 0


def resume_run(*, actor: Actor, run_id: UUID, add: Raise | None = None) -> AgentRun:
    """Let a paused run go on, with so much more to spend.

    Raises UnknownRun, InvalidInput, WrongState (not paused), OverBudget (it needs more than is
    added) or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    more = add or Raise()
    cost = _check(more)
    with transaction.atomic():
        run = lock_run(run_id)
        if run.paused_at is None or run.state in FINAL_STATES:
            raise WrongState(run_id=str(run_id), state=f"{run.state}, not paused", request="resume")
        budget = _raised_budget(run, more, cost)
        given = {f"add_{name}": value for name, value in vars(more).items() if Decimal(value)}
        note_request(run, ControlRequest.Kind.RESUME, actor=actor, **given)
        AgentRun.objects.filter(id=run_id).update(
            paused_at=None, pause_reason="", budget=budget, wake_at=Now(), sweep_at=Now()
        )
        state = RunState(run.state)
        if (state, RunEvent.RESUME) in RUN_EDGES:
            why = f"after a pause: {run.pause_reason}"
            add_edge(run, RunEvent.RESUME, state, actor=actor, reason=why)
        hint_after_commit(run_id)
    return read_again(run)


def budget_of(agent: str) -> Budget:
    """What the agent's runs may spend; no limit where it is not registered here."""
    try:
        return get_agent(agent).budget
    except UnknownAgent:
        return Budget()


def spent_by(run: AgentRun) -> Spent:
    """What the run has spent, with what is reserved."""
    return Spent(run.spent_steps, run.spent_tokens, run.spent_cost_usd)


def _raised_budget(run: AgentRun, more: Raise, cost: Decimal) -> dict[str, Any] | None:
    """The run's own limits as they will stand. Raises InvalidInput or OverBudget."""
    budget, now = budget_of(run.agent), _database_time()
    limits = limits_of(own=run.budget, budget=budget, created_at=run.created_at)
    _require_limits(limits, more, cost)
    raised = raise_limits(
        limits,
        run.budget,
        now=now,
        steps=more.steps,
        tokens=more.tokens,
        cost_usd=cost,
        duration=timedelta(seconds=more.seconds),
    )
    if run.state in (RunState.READY, RunState.DECIDING):
        after = limits_of(own=raised, budget=budget, created_at=run.created_at)
        # The step of a run that is deciding was spent when it was opened.
        needed = reservation(budget)
        if run.state == RunState.READY:
            needed = needed.plus(ONE_STEP)
        if breach := find_breach(after, spent_by(run), needed=needed, now=now):
            raise OverBudget(run_id=str(run.pk), breach=breach)
    return raised or None


def _require_limits(limits: Limits, more: Raise, cost: Decimal) -> None:
    """Nothing is added to what is not limited: that would look as if it counted."""
    for name, added, limit in (
        ("add_steps", more.steps, limits.steps),
        ("add_tokens", more.tokens, limits.tokens),
        ("add_cost_usd", cost, limits.cost_usd),
        ("add_seconds", more.seconds, limits.until),
    ):
        if added and limit is None:
            raise InvalidInput(
                field=name, value=str(added), fix="The run has no such limit; leave it out."
            )


def _check(more: Raise) -> Decimal:
    """The cost as a number. Raises InvalidInput for whatever cannot be added."""
    for name, value, most in (
        ("add_steps", more.steps, MOST_STEPS),
        ("add_tokens", more.tokens, MOST_TOKENS),
        ("add_seconds", more.seconds, TEN_YEARS),
    ):
        check_number(value, field=name, lowest=0, highest=most)
    try:
        cost = Decimal(more.cost_usd)
        fits = 0 <= cost <= MOST_COST_USD and cost == round(cost, USD_DECIMALS)
    except (InvalidOperation, TypeError, ValueError):
        fits = False
    if not fits or not isinstance(more.cost_usd, str):
        raise InvalidInput(
            field="add_cost_usd",
            value=ascii(more.cost_usd)[:80],
            fix=f'Give US dollars as a text from "0" to "{MOST_COST_USD}", with at most '
            f"{USD_DECIMALS} decimals.",
        )
    return cost


def _database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        row = cursor.fetchone()
    assert row is not None, "the database tells the time"
    now: datetime = row[0]
    return now
