"""A lease holds as long as its work lives, and no longer."""

from typing import Final

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun, ModelDecision, StepAttempt, ToolObservation
from tests.crash.conftest import StartRun, Work
from tests.crash.laws import assert_recovered
from tests.processes import Celery, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

# Longer than any wait of a test: nobody who waits for its end comes to anything.
LONG_LEASE_SECONDS: Final = 120


def test_a_call_that_outlasts_the_lease_is_renewed_and_sent_once(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case L1: three workers reach for the run all the time."""
    provider.fault("slow", seconds=4.0)
    run = start_agent("crash_patient")
    workers = [work(run) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert_recovered(run.id, provider, claims_at_least=1)
    assert len(provider.requests(method="POST")) == 1
    assert _tokens(run) == {1}


def test_a_decider_that_outlasts_the_lease_is_renewed_and_asked_once(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case L1, where nothing but the heartbeat keeps the lease."""
    run = start_agent("crash_thinker")
    workers = [work(run) for _ in range(3)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert_recovered(run.id, provider, claims_at_least=1)
    assert ModelDecision.objects.filter(run=run, step__number=1).count() == 1
    assert _tokens(run) == {1}


def test_a_tool_that_ignores_its_deadline_is_not_sent_again_while_it_may_live(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case L9: its thread goes on; the look-ups find nothing; its late answer settles it."""
    provider.fault("hold")
    run = start_agent("crash_stubborn")
    workers = [work(run) for _ in range(2)]
    provider.wait_until_held()
    # Each of them is a moment at which a repeat would have been the next thing to do.
    provider.wait_for_requests(4, method="GET", seconds=30)
    assert len(provider.requests(method="POST")) == 1
    provider.release()
    assert [worker.wait() for worker in workers] == [0, 0]
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.requests(method="POST")) == 1
    late = ToolObservation.objects.get(run=run, source="stale_worker")
    assert late.verdict == "committed"
    assert late.external_ref == provider.effects()[0].refund_id


def test_a_worker_that_is_asked_to_end_gives_its_lease_back_at_once(
    celery: Celery, provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """SIGTERM in the middle of a step: the step is finished, and another worker goes on."""
    provider.fault("hold", path="/orders", method="GET")
    leaving = celery.worker("leaving", AGENTOPS_LEASE_SECONDS=str(LONG_LEASE_SECONDS))
    run = start_agent("crash_sighted")
    provider.wait_until_held(seconds=20)
    leaving.terminate()
    wait_until(lambda: "shutdown" in leaving.said.lower(), what="the worker knows that it ends")
    provider.release()
    assert leaving.wait(seconds=30) == 0, leaving.said
    run.refresh_from_db()
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert (run.state, run.step_number) == ("READY", 1)
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.requests(path="/orders/17")) == 1


def _tokens(run: AgentRun) -> set[int]:
    return set(StepAttempt.objects.filter(step__run=run).values_list("fence_token", flat=True))
