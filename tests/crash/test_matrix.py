"""A worker is killed at every commit and every call of a run, and another one finishes it.

Each test takes one way in which the provider's answers come (or do not come), and kills a
worker at the first, second, third … event of every kind, each time in a run of its own,
until a run goes by untouched.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, meet, strike_everywhere
from tests.crash.forked import fork_worker
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(150)]


@dataclass(frozen=True)
class Way:
    """How answers come, to which agent, and the moments at which its worker is killed."""

    answer: str
    moments: Mapping[Name, range]
    agent: str = "crash_sighted"


DELIVERED: Final = Way(
    "delivered",
    {
        Name.RUN_CLAIMED: first(1),
        Name.DECIDER_STARTING: first(3),
        Name.DECIDER_DONE: first(3),
        Name.COMMIT_STARTING: first(6),
        Name.COMMIT_DONE: first(6),
        Name.CALL_STARTING: first(2),
        Name.CALL_DONE: first(2),
    },
)
# What a killed worker leaves is what was committed, and what the provider did. So it is killed
# after whatever makes a difference to that: before the next such event nothing does.
LOST: Final = Way(
    "lost",
    {
        Name.RUN_CLAIMED: first(3),
        Name.COMMIT_DONE: first(10),
        Name.CALL_DONE: first(3),
        Name.LOOK_UP_DONE: first(1),
    },
)
# Before the refund leaves, these two are no other than the one above.
LATE: Final = Way(
    "late",
    {
        Name.RUN_CLAIMED: range(3, 4),
        Name.COMMIT_DONE: range(7, 11),
        Name.CALL_DONE: range(3, 4),
        Name.LOOK_UP_DONE: first(1),
    },
)
BLIND: Final = Way(
    "lost",
    {
        Name.RUN_CLAIMED: range(3, 4),
        Name.COMMIT_DONE: range(7, 11),
        Name.CALL_DONE: range(3, 5),
    },
    agent="crash_blind",
)


@pytest.mark.parametrize(
    "way", [DELIVERED, LOST, LATE, BLIND], ids=["delivered", "lost", "late", "lost, no look-up"]
)
def test_a_worker_killed_at_any_event_leaves_one_effect_and_a_run_that_completes(
    way: Way,
    forks: None,
    providers: Providers,
    start_agent: StartRun,
    new_log: NewLog,
) -> None:
    def is_killed(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed() as provider:
            meet(provider, way.answer)
            return crash_one_run(
                provider, agent=way.agent, at=fault_at(moments), start=start_agent, log=new_log
            )

    strike_everywhere(is_killed, known=way.moments)


def crash_one_run(
    provider: ProviderProcess, *, agent: str, at: str, start: StartRun, log: NewLog
) -> bool:
    """Whether the first worker of a new run was killed; the second one had to finish it."""
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
    assert len(provider.effects()) == 1
    return killed
