"""A worker is killed at every commit and every call of a saga, and another one finishes it.

The run books two things, fails, and takes both back. Whatever happens to its workers and to the
answers, the provider's books end as they began, with one booking of each kind.
"""

import signal
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import AgentRun, ToolOperation, Transition
from runs.state import OperationStatus, RunState
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import ANSWERS, fault_at, first, strike_everywhere
from tests.crash.faultapp.agents import ORDER
from tests.crash.forked import fork_worker
from tests.crash.laws import PERSON_EVENTS, assert_journaled, assert_tokens_only_grew

pytestmark = [pytest.mark.crash, pytest.mark.timeout(200)]

# What makes a difference to what a killed worker leaves: what was committed, and what the provider
# did or said.
MOMENTS: Final = {
    Name.RUN_CLAIMED: first(4),
    Name.COMMIT_DONE: first(17),
    Name.CALL_DONE: first(4),
    Name.LOOK_UP_DONE: first(2),
}
# Longer than elsewhere: a call that this machine begins too late is a try that is used up, and a
# compensation whose tries are used up waits for a person.
LEASE_SECONDS: Final = 2.0
IN_ORDER: Final = ["take_items", "charge", "give_back", "put_back"]


def test_a_worker_killed_at_any_event_of_a_saga_leaves_the_books_as_they_were(
    forks: None, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> None:
    def is_killed(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed() as provider:
            _meet(provider, ANSWERS["lost"])
            fault = fault_at(moments)
            return _crash_one_saga(provider, at=fault, start=start_agent, log=new_log)

    strike_everywhere(is_killed, known=MOMENTS)


def _meet(provider: ProviderProcess, fault: dict[str, Any] | None) -> None:
    """The first charge, and the first to be taken back, meet the fault."""
    if fault is not None:
        # Of two that fit, the one told first strikes: the narrower path goes first.
        provider.fault(path="/bookings/card/back", method="POST", **fault)
        provider.fault(path="/bookings/stock/back", method="POST", **fault)


def _crash_one_saga(provider: ProviderProcess, *, at: str, start: StartRun, log: NewLog) -> bool:
    """Whether the first worker of a new run was killed; the second one had to finish it."""
    run = start("crash_saga")

    def work(fault: str) -> int:
        assignment = Assignment(
            run_id=run.id,
            provider_url=provider.url,
            log=str(log()),
            lease_seconds=LEASE_SECONDS,
            fault=fault,
        )
        with fork_worker(assignment) as worker:
            status = worker.wait()
            assert status in (0, -signal.SIGKILL), worker.said
            return status

    killed = work(at) == -signal.SIGKILL
    assert work("") == 0
    provider.wait_until_landed()
    _assert_compensated(run.id, provider)
    return killed


def _assert_compensated(run_id: UUID, provider: ProviderProcess) -> None:
    """It failed by itself, and each of its four operations has one effect, newest taken back
    first."""
    run = AgentRun.objects.get(id=run_id)
    assert run.state == RunState.FAILED, f"{run.state}: {run.error} {run.pause_reason}"
    assert not Transition.objects.filter(run=run, event__in=PERSON_EVENTS).exists()
    operations = list(ToolOperation.objects.filter(run=run).order_by("step_number"))
    assert [one.tool for one in operations] == IN_ORDER
    assert {one.status for one in operations} == {OperationStatus.COMMITTED}
    taken, charged, given_back, put_back = operations
    assert given_back.compensates_id == charged.id
    assert put_back.compensates_id == taken.id
    booked = provider.bookings(order_id=ORDER)
    ours = [one for one in booked if one.operation_id in {each.id for each in operations}]
    assert [one.units for one in ours] == [2, 42_00, -42_00, -2]
    assert [one.booking_id for one in ours] == [one.external_ref for one in operations]
    assert_journaled(run)
    assert_tokens_only_grew(run_id, provider)
