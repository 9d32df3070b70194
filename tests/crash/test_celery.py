"""The same crashes through real Celery workers, a broker and the sweep."""

import signal

import pytest

from examples.shop.provider_process import ProviderProcess
from tests.crash.conftest import StartRun
from tests.crash.laws import assert_recovered, wait_until_finished
from tests.processes import Celery

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]


@pytest.mark.parametrize("fault", ["commit_done:2", "call_starting:2", "call_done:2"])
def test_a_run_whose_celery_worker_is_killed_is_found_by_the_sweep_and_finished_by_another(
    fault: str, celery: Celery, provider: ProviderProcess, start_agent: StartRun
) -> None:
    celery.beat()
    doomed = celery.worker("doomed", CRASH_AT=f"{fault}:SIGKILL")
    run = start_agent("crash_sighted")
    assert doomed.wait() == -signal.SIGKILL
    celery.worker("replacement")
    wait_until_finished(run.id)
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.effects()) == 1
