"""Crashes through real Celery workers, a broker and the sweep."""

import signal

import pytest

from examples.shop.provider_process import ProviderProcess
from tests.crash.conftest import StartRun
from tests.crash.laws import assert_recovered, wait_until_finished
from tests.processes import Celery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

# As the refund is about to leave; once it is made and its answer is lost; and before it is looked
# up. Each takes over from the one before.
FAULTS = ("call_starting:2", "call_done:1", "commit_done:1")


def test_a_run_whose_celery_worker_is_killed_is_found_by_the_sweep_and_finished_by_another(
    celery: Celery, provider: ProviderProcess, start_agent: StartRun
) -> None:
    provider.fault("lose_answer")
    celery.beat()
    run = start_agent("crash_sighted")
    for fault in FAULTS:
        doomed = celery.worker(fault.replace(":", "-"), CRASH_AT=f"{fault}:SIGKILL")
        assert doomed.wait(seconds=40) == -signal.SIGKILL
    celery.worker("replacement")
    wait_until_finished(run.id)
    assert_recovered(run.id, provider, claims_at_least=1 + len(FAULTS))
    assert len(provider.effects()) == 1
