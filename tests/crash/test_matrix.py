"""A worker is killed at every commit and every call of a run, and another one finishes it.

Each test takes one way in which the provider's answers come (or do not come), and kills a
worker at the first, second, third … event of every kind, each time in a run of its own,
until a run goes by untouched.
"""

import signal

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import ANSWERS, LEAST, LOOK_UPS, meet, strike_everywhere
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(150)]


# One that cannot be looked up differs only in what follows an answer that did not come.
@pytest.mark.parametrize(
    ("answer", "agent"),
    [*((answer, "crash_sighted") for answer in ANSWERS), ("lost", "crash_blind")],
)
def test_a_worker_killed_at_any_event_leaves_one_effect_and_a_run_that_completes(
    answer: str,
    agent: str,
    forks: None,
    providers: Providers,
    start_agent: StartRun,
    new_log: NewLog,
) -> None:
    def is_killed_at(kind: Name, number: int) -> bool:
        with providers.borrowed() as provider:
            meet(provider, answer)
            return crash_one_run(
                provider, agent=agent, at=f"{kind}:{number}:SIGKILL", start=start_agent, log=new_log
            )

    expected = dict(LEAST)
    if agent == "crash_sighted" and answer != "delivered":
        expected |= LOOK_UPS
    killed = strike_everywhere(is_killed_at, kinds=[*LEAST, *LOOK_UPS])
    assert all(killed[kind] >= times for kind, times in expected.items()), killed


def crash_one_run(
    provider: ProviderProcess, *, agent: str, at: str, start: StartRun, log: NewLog
) -> bool:
    """Whether the first worker of a new run was killed; the second one had to finish it."""
    effects = len(provider.effects())
    run = start(agent)

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
    assert len(provider.effects()) == effects + 1
    return killed
