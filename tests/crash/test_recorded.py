"""What is recorded is never decided, sent or executed again."""

import signal

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun, ModelDecision, ToolObservation, ToolOperation
from runs.state import OperationStatus
from tests.crash.conftest import StartRun, Work
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]


def test_a_recorded_commit_is_not_executed_again_when_its_lease_expires(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case L10: the worker dies right after it wrote the outcome down."""
    run = start_agent("crash_sighted")
    assert work(run, fault="commit_done:5:SIGKILL").wait() == -signal.SIGKILL
    written = ToolOperation.objects.get(run=run, tool="refund")
    assert written.status == OperationStatus.COMMITTED
    assert not _is_finished(run)
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.requests(method="POST")) == 1
    # Not even a question: the row says it all.
    assert not provider.requests(path="/refunds", method="GET")
    again = ToolOperation.objects.get(run=run, tool="refund")
    assert (again.fence_token, again.attempts) == (written.fence_token, 1)


@pytest.mark.parametrize("fault", ["commit_done:2", "call_starting:1", "call_done:1"])
def test_a_retried_step_keeps_the_decision_that_was_recorded(
    fault: str, provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case M3: whoever is asked again would answer with another amount."""
    run = start_agent("crash_fickle")
    assert work(run, fault=f"{fault}:SIGKILL").wait() == -signal.SIGKILL
    decided = ModelDecision.objects.get(run=run, step__number=1).body["calls"][0]["arguments"]
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    decision = ModelDecision.objects.get(run=run, step__number=1)
    assert decision.body["calls"][0]["arguments"] == decided
    (effect,) = provider.effects()
    assert f"{effect.cents / 100:.2f}" == decided["amount"]


def test_a_decision_that_was_not_recorded_is_asked_for_again_and_has_sent_nothing(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    run = start_agent("crash_fickle")
    assert work(run, fault="decider_done:1:SIGKILL").wait() == -signal.SIGKILL
    assert not ModelDecision.objects.filter(run=run).exists()
    assert not provider.requests()
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    decided = ModelDecision.objects.get(run=run, step__number=1).body["calls"][0]["arguments"]
    (effect,) = provider.effects()
    assert f"{effect.cents / 100:.2f}" == decided["amount"]


@pytest.mark.parametrize("fault", ["call_starting:2", "call_done:2", "commit_done:3"])
def test_a_retried_step_does_not_run_again_what_succeeded_in_it(
    fault: str, provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case M4: two refunds in one step, and the worker dies over the second one."""
    run = start_agent("crash_pair")
    assert work(run, fault=f"{fault}:SIGKILL").wait() == -signal.SIGKILL
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    first, second = ToolOperation.objects.filter(run=run).order_by("ordinal")
    assert first.attempts == 1
    assert [seen.key for seen in provider.requests(method="POST")].count(first.id) == 1
    assert sorted(effect.order_id for effect in provider.effects()) == ["17", "18"]
    assert {effect.operation_id for effect in provider.effects()} == {first.id, second.id}
    # The second one was looked up before it was repeated.
    assert ToolObservation.objects.filter(operation=second, source="look_up").exists()
    assert not ToolObservation.objects.filter(operation=first, source="look_up").exists()


def _is_finished(run: AgentRun) -> bool:
    return AgentRun.objects.filter(id=run.id, finished_at__isnull=False).exists()
