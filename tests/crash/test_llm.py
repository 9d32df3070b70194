"""A worker is killed at every commit around what an llm is asked, and while it is asked.

The llm puts the first request off, answers the second one with what cannot be used, has its run
read until its window is full, hands off, has an order refunded by an amount that it would not
name again, and ends. A worker is killed at the first, second, third … event of every kind, each
time in a run of its own, until a run goes by untouched; another one finishes it.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final, Literal

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, Handoff, LlmRequest, ModelDecision
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, strike_everywhere
from tests.crash.forked import Child, fork_worker
from tests.crash.laws import assert_journaled, assert_recovered
from tests.crash.minds import READS, REFUNDS_AT, Asked, Mind, Minds
from tests.llms.server import LlmServer
from tests.processes import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

Kind = Name | Literal["asked"]
Strike = Callable[[Mapping[Kind, int]], bool]
# After a commit such a run is where it is while the llm is asked next, and after an answer where it
# is before the commit.
MOMENTS: Final[dict[Kind, range]] = {
    Name.COMMIT_STARTING: first(11),
    # It puts off, is of no use, reads twice, hands off, refunds, and ends.
    "asked": first(7),
}


@pytest.fixture(scope="module")
def minds() -> Iterator[Minds]:
    with LlmServer() as server:
        yield Minds(server)


@pytest.fixture
def strike(
    forks: None, minds: Minds, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> Strike:
    """Whether the first worker of a new run was killed there; the second one had to finish it."""

    def is_killed(moments: Mapping[Kind, int]) -> bool:
        fault = fault_at({Name(kind): nth for kind, nth in moments.items() if kind != "asked"})
        objective, mind = minds.new(hold_nth=moments.get("asked", 0))
        with providers.borrowed() as provider:
            run = start_agent("crash_llm", objective=objective)

            def work(fault: str = "") -> Child:
                assignment = Assignment(
                    run_id=run.id,
                    provider_url=provider.url,
                    log=str(new_log()),
                    fault=fault,
                    env=minds.env,
                )
                return fork_worker(assignment)

            with work(fault) as worker:
                if mind.hold_nth:
                    _kill_while_it_asks(worker, mind)
                status = worker.wait()
                assert status in (0, -signal.SIGKILL), worker.said
            left = AgentRun.objects.get(id=run.id)
            with work() as other:
                assert other.wait() == 0, other.said
            was_lost = status != 0 and left.finished_at is None
            assert_recovered(run.id, provider, claims_at_least=left.fence_token + was_lost)
            assert len(provider.effects()) == 1
            assert_decided_once(run, mind, provider)
            assert_spent(run, at_least=left)
            return status != 0

    return is_killed


def test_killed_at_any_commit_or_request_what_an_llm_decided_counts_once(strike: Strike) -> None:
    strike_everywhere(strike, known=MOMENTS)


def test_killed_before_its_call_leaves_an_llm_is_not_asked_again_what_to_call(
    strike: Strike,
) -> None:
    assert strike({Name.CALL_STARTING: 2 * READS + 1})


def _kill_while_it_asks(worker: Child, mind: Mind) -> None:
    wait_until(
        lambda: mind.is_held.is_set() or not worker.lives, what="a worker asks, or ends", seconds=60
    )
    if mind.is_held.is_set():
        worker.kill()


def assert_decided_once(run: AgentRun, mind: Mind, provider: ProviderProcess) -> None:
    """What is recorded is what the llm answered last: asked again before that, and never after."""
    assert_journaled(AgentRun.objects.get(id=run.id))
    requests = list(LlmRequest.objects.filter(run=run).order_by("id"))
    answered = {one.answered: one for one in mind.asked if one.answered}
    assert_seen_by_the_server(requests, mind, answered)
    decisions = list(ModelDecision.objects.filter(run=run).order_by("step__number"))
    for step, decision in enumerate(decisions, start=1):
        of_step = [one for one in requests if one.step_id == decision.step_id]
        (used,) = _of(of_step, purpose="decide", outcome="used")
        assert used.response_id == mind.about(step)[-1].answered
        assert decision.llm_version == used.llm_version != ""
        # Whoever asked had to be told, though it may not be who had the answer.
        bad = _of(of_step, purpose="decide", outcome="unusable")
        assert answered[used.response_id].bad_answers == len(bad) == int(step == 1)
    amount = decisions[REFUNDS_AT - 1].body["calls"][0]["arguments"]["amount"]
    assert amount == mind.about(REFUNDS_AT)[-1].amount
    assert amount == f"{provider.effects()[-1].cents / 100:.2f}"
    assert_handed_off_once(run, requests, mind)


def assert_handed_off_once(run: AgentRun, requests: list[LlmRequest], mind: Mind) -> None:
    """It is asked for until it is recorded, and then decided from, whoever asks."""
    (handoff,) = Handoff.objects.filter(run=run)
    (written,) = _of(requests, purpose="handoff")
    assert (written.outcome, handoff.written_by) == ("used", written.llm)
    about = [one for one in mind.asked if one.step == REFUNDS_AT]
    writing, deciding = mind.about(REFUNDS_AT, handoff=True), mind.about(REFUNDS_AT)
    assert about == [*writing, *deciding]
    assert written.response_id == writing[-1].answered
    assert {one.handoff for one in deciding} == {handoff.number}


def assert_seen_by_the_server(
    requests: list[LlmRequest], mind: Mind, answered: dict[str, Asked]
) -> None:
    """Each row is one request that was made; of those without an answer the number must do."""
    put_off = _of(requests, outcome="failed")
    assert len(put_off) <= len(mind.asked) - len(answered)
    named = [one.response_id for one in requests if one not in put_off]
    assert len(set(named)) == len(named)
    assert set(named) <= answered.keys()


def assert_spent(run: AgentRun, *, at_least: AgentRun) -> None:
    """What was recorded of requests is what counts as spent, whoever recorded it."""
    ended = AgentRun.objects.get(id=run.id)
    requests = LlmRequest.objects.filter(run=run)
    tokens = sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in requests)
    assert ended.spent_tokens == tokens >= at_least.spent_tokens
    cost = sum((one.cost_usd or Decimal(0) for one in requests), Decimal(0))
    assert ended.spent_cost_usd == cost >= at_least.spent_cost_usd
    assert tokens > 0
    assert cost > 0


def _of(requests: list[LlmRequest], **columns: str) -> list[LlmRequest]:
    return [
        one
        for one in requests
        if all(getattr(one, name) == value for name, value in columns.items())
    ]
