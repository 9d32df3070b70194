"""A worker is killed at every commit, and every call, of a batch of reads and writes.

An answer among them is lost, and a worker is killed at the first, second, third … event of every
kind, each time in a run of its own. What else may become of an answer is told of single calls
(`test_matrix.py`).
"""

import signal

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, ToolOperation
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import LOOK_UPS, meet, strike_everywhere
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

READS = REFUNDS = 2
# How often at least a run that makes its calls at once, and finishes, meets each kind of event.
# Killed before a commit, it is where it was after the one before, or after a call.
LEAST = {
    Name.RUN_CLAIMED: 1,
    Name.COMMIT_DONE: 4,
    Name.CALL_STARTING: READS + REFUNDS,
    Name.CALL_DONE: READS + REFUNDS,
}


def test_a_worker_killed_at_any_event_of_a_batch_leaves_one_effect_of_each_write(
    forks: None, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> None:
    def is_killed_at(kind: Name, number: int) -> bool:
        with providers.borrowed() as provider:
            meet(provider, "lost")
            return crash_one_batch(
                provider, at=f"{kind}:{number}:SIGKILL", start=start_agent, log=new_log
            )

    expected = LEAST | LOOK_UPS
    killed = strike_everywhere(is_killed_at, kinds=list(expected))
    assert all(killed[kind] >= times for kind, times in expected.items()), killed


def crash_one_batch(provider: ProviderProcess, *, at: str, start: StartRun, log: NewLog) -> bool:
    """Whether the first worker of a new run was killed; the second one had to finish it."""
    effects = len(provider.effects())
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
    assert len(provider.effects()) == effects + REFUNDS
    return killed
