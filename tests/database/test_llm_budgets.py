"""What llms use is paid by their runs, also where nobody knows how much it was."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRateLimitError,
)

from runs import Budget, LlmLimits
from runs.llm import resting
from runs.models import AgentRun, FlowLimit, LlmRequest
from tests.database.handing import (
    SMALL,
    Mind,
    handoffs,
    look_and_pay,
    look_on,
    start_llm,
)
from tests.database.kit import ON_DATABASE, drive, drive_when_due
from tests.llms.scripted import ScriptedLlm, say, using
from tools import Rate

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


@pytest.fixture(autouse=True)
def _nobody_rests() -> Iterator[None]:
    look_and_pay()
    resting.forget()
    yield
    resting.forget()


def spent(run: AgentRun) -> tuple[int, Decimal]:
    return run.spent_tokens, run.spent_cost_usd


BROKEN_OFF = {
    "too slow": TimeoutError(),
    "failed in the middle": ModelHTTPError(500, "m"),
    "a gateway's": ModelHTTPError(504, "m"),
    "lost": ModelConnectionError("m", "reset", phase="read"),
    "in a stream": ModelRateLimitError("m", "later", in_stream=True),
    "a mistake of its client": KeyError("choices"),
}
TURNED_AWAY = {
    "limited": ModelRateLimitError("m", "later"),
    "overloaded": ModelHTTPError(529, "m"),
    "no such key": ModelAuthenticationError("m", "who?"),
    "not found": ModelHTTPError(404, "m"),
    "not reached": ModelConnectionError("m", "refused", phase="connect"),
}


@pytest.mark.parametrize("error", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_a_request_that_broke_off_counts_as_what_was_reserved(
    start: Start, error: Exception
) -> None:
    """It may be on the bill all the same."""
    budget = Budget(tokens=1_000, step_tokens=400, cost_usd="1", step_cost_usd="0.4")
    run = start(decider=ScriptedLlm(*[error] * 2).llm, budget=budget)
    drive(run)
    assert spent(run) == (400, Decimal("0.4"))
    for _ in range(2):
        drive_when_due(run)
    assert spent(run) == (800, Decimal("0.8"))
    assert "budget" in run.pause_reason


@pytest.mark.parametrize("error", TURNED_AWAY.values(), ids=TURNED_AWAY.keys())
def test_a_request_that_was_turned_away_costs_nothing(start: Start, error: Exception) -> None:
    budget = Budget(tokens=1_000, step_tokens=400, cost_usd="1", step_cost_usd="0.4")
    run = start(decider=ScriptedLlm(error).llm, budget=budget)
    drive(run)
    assert spent(run) == (0, Decimal(0))
    (asked,) = LlmRequest.objects.filter(run=run)
    assert (asked.input_tokens, asked.output_tokens, asked.cost_usd) == (0, 0, 0)


def test_what_an_unusable_answer_used_is_known(start: Start) -> None:
    nothing = using(say(""), input_tokens=10, output_tokens=1, cost=Decimal("0.1"))
    budget = Budget(step_tokens=400, step_cost_usd="0.4")
    run = start(decider=ScriptedLlm(nothing).llm, budget=budget)
    drive(run)
    assert spent(run) == (11, Decimal("0.1"))


def test_a_handoff_without_a_known_price_costs_what_was_reserved() -> None:
    mind = Mind(look_on(7))
    run = start_llm(mind, budget=Budget(cost_usd="100", step_cost_usd="1"), **SMALL)
    drive(run)
    assert (run.state, len(handoffs(run))) == ("COMPLETED", 1)
    assert run.spent_cost_usd == len(mind.seen) == LlmRequest.objects.filter(run=run).count()


def test_with_a_reservation_no_handoff_passes_a_limit() -> None:
    # Five decisions, and the handoff. Nothing is left for what would be decided from it.
    mind = Mind(look_on(7))
    run = start_llm(mind, budget=Budget(cost_usd="6", step_cost_usd="1"), **SMALL)
    drive(run)
    assert (run.spent_cost_usd, len(mind.seen)) == (6, 6)
    assert "budget" in run.pause_reason
    assert len(handoffs(run)) == 1


def test_a_handoff_is_not_asked_for_without_what_it_may_cost() -> None:
    mind = Mind(look_on(7))
    run = start_llm(mind, budget=Budget(cost_usd="5", step_cost_usd="1"), **SMALL)
    drive(run)
    assert (run.spent_cost_usd, mind.handoffs, handoffs(run)) == (5, [], [])
    assert "budget" in run.pause_reason


def test_a_handoff_counts_for_the_limits_of_its_llm() -> None:
    mind = Mind(look_on(7))
    limits = LlmLimits("mind", rate=Rate(100, per=timedelta(hours=1)), concurrency=1)
    run = start_llm(mind, llm_limits=limits, **SMALL)
    drive(run)
    assert (run.state, len(handoffs(run))) == ("COMPLETED", 1)
    used = FlowLimit.objects.get()
    assert sum(used.recent.values()) == len(mind.seen)
    assert used.slots == {}
