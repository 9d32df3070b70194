"""The same crashes through real Celery workers, a broker and the sweep."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun
from tests.crash.conftest import StartRun
from tests.crash.laws import assert_recovered
from tests.processes import (
    Program,
    celery_beat,
    celery_worker,
    environment,
    of_this_test,
    telling_on_failure,
    wait_until,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]


@pytest.fixture
def beat(transactional_db: None, tmp_path: Path) -> Iterator[Program]:
    with celery_beat(env=environment(of_this_test()), log_dir=tmp_path) as running:
        yield running


@pytest.mark.parametrize("fault", ["commit_done:2", "call_starting:2", "call_done:2"])
def test_a_run_whose_celery_worker_is_killed_is_found_by_the_sweep_and_finished_by_another(
    fault: str,
    beat: Program,
    provider: ProviderProcess,
    start_agent: StartRun,
    tmp_path: Path,
) -> None:
    env = environment(of_this_test(), more={"SHOP_PAYMENTS_URL": provider.url})
    doomed_env = env | {"CRASH_AT": f"{fault}:SIGKILL"}
    with celery_worker("doomed", env=doomed_env, log_dir=tmp_path) as doomed:
        run = start_agent("crash_sighted")
        assert doomed.wait() == -signal.SIGKILL, doomed.said
        with (
            celery_worker("replacement", env=env, log_dir=tmp_path) as replacement,
            telling_on_failure(doomed, replacement, beat),
        ):
            wait_until(
                AgentRun.objects.filter(id=run.id, finished_at__isnull=False).exists,
                what="the run has ended",
                seconds=40,
            )
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.effects()) == 1
