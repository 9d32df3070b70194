"""A worker is killed while the provider has its request."""

from typing import Literal

import pytest

from runs.models import ToolObservation
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(90)]


@pytest.mark.parametrize("answered", ["before the take-over", "after the take-over"])
@pytest.mark.parametrize("commits", ["before it is held", "once released"])
@pytest.mark.parametrize("agent", ["crash_sighted", "crash_blind"])
def test_a_worker_killed_while_the_provider_has_its_refund_leaves_one_effect(
    agent: str,
    commits: str,
    answered: str,
    forks: None,
    providers: Providers,
    start_agent: StartRun,
    new_log: NewLog,
) -> None:
    with providers.borrowed() as provider:
        question: Literal["GET", "POST"] = "GET" if agent == "crash_sighted" else "POST"
        provider.fault("hold", after_commit=commits == "before it is held")
        run = start_agent(agent)

        def assign() -> Assignment:
            return Assignment(run_id=run.id, provider_url=provider.url, log=str(new_log()))

        with fork_worker(assign()) as doomed:
            provider.wait_until_held()
            doomed.kill()
        asked = len(provider.requests(path="/refunds", method=question))
        if answered == "before the take-over":
            provider.release()
        with fork_worker(assign()) as replacement:
            if answered == "after the take-over":
                # Its look-up, or its repeat, meets the request that is still there.
                provider.wait_for_requests(asked + 1, method=question)
                provider.release()
            assert replacement.wait() == 0, replacement.said
        assert_recovered(run.id, provider, claims_at_least=2)
        assert len(provider.effects()) == 1


def test_a_read_that_was_held_when_its_worker_was_killed_is_read_again(
    forks: None, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> None:
    with providers.borrowed() as provider:
        provider.fault("hold", path="/orders", method="GET")
        run = start_agent("crash_sighted")

        def assign() -> Assignment:
            return Assignment(run_id=run.id, provider_url=provider.url, log=str(new_log()))

        with fork_worker(assign()) as doomed:
            provider.wait_until_held()
            doomed.kill()
        with fork_worker(assign()) as replacement:
            assert replacement.wait() == 0, replacement.said
        provider.release()
        assert_recovered(run.id, provider, claims_at_least=2)
        # The killed worker left no word, so the read is asked once more and not looked up.
        assert not ToolObservation.objects.filter(run=run, source="look_up").exists()
