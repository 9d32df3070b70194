"""A worker is killed at every commit, and every call, of a batch of reads and writes.

An answer among them is lost, and a worker is killed at the first, second, third … event of every
kind, each time in a run of its own. What else may become of an answer is told of single calls
(`test_matrix.py`).
"""

import signal
from collections.abc import Mapping
from typing import Final

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, ToolOperation
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, meet, strike_everywhere
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

READS = REFUNDS = 2
# What makes a difference to what a killed worker leaves: what was committed, how many calls have
# left, and what the provider did or said. The read whose answer is lost is called again.
MOMENTS: Final = {
    Name.RUN_CLAIMED: first(2),
    Name.COMMIT_DONE: first(7),
    Name.CALL_STARTING: first(READS + REFUNDS + 1),
    Name.CALL_DONE: first(READS + REFUNDS + 1),
    Name.LOOK_UP_DONE: first(1),
}


def test_a_worker_killed_at_any_event_of_a_batch_leaves_one_effect_of_each_write(
    forks: None, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> None:
    def is_killed(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed() as provider:
            meet(provider, "lost")
            return crash_one_batch(provider, at=fault_at(moments), start=start_agent, log=new_log)

    strike_everywhere(is_killed, known=MOMENTS)


def crash_one_batch(provider: ProviderProcess, *, at: str, start: StartRun, log: NewLog) -> bool:
    """Whether the first worker of a new run was killed; the second one had to finish it."""
    run = start("crash_together")

    def work(fault: str) -> int:
        assignment = Assignment(
            run_id=run.id, provider_url=provider.url, log=str(log()), fault=fault
        )
        with fork_worker(assignment) as worker:
            status = worker.wait()
            assert status in (0, -signal.SIGKILL), worker.said
            return status

    killed = work(at) == -signal.SIGKILL
    left_open = AgentRun.objects.filter(id=run.id, finished_at__isnull=True).exists()
    assert work("") == 0
    provider.wait_until_landed()
    assert_recovered(run.id, provider, claims_at_least=2 if left_open and killed else 1)
    assert ToolOperation.objects.filter(run=run).count() == READS + REFUNDS
    assert len(provider.effects()) == REFUNDS
    return killed
