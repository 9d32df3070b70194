"""What a provider's answer, or its silence, proves. Nobody is killed here."""

from typing import Any

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun, ToolOperation, Transition
from runs.state import OperationEvent, OperationStatus, RunEvent, RunState
from tests.crash.conftest import StartRun, Work
from tests.crash.driving import LEFT_TO_A_PERSON
from tests.crash.laws import assert_recovered

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]

# All of them commit; none of them says so. The last one speaks after the deadline.
LOST: dict[str, dict[str, Any]] = {
    "closed": {"kind": "lose_answer"},
    "unreadable": {"kind": "unreadable"},
    "too late": {"kind": "slow", "seconds": 2.0},
    "error": {"kind": "error_500", "after_commit": True},
    "error, kept for the key": {"kind": "error_500", "after_commit": True, "sticky": True},
}


@pytest.mark.parametrize("lost", LOST)
def test_a_refund_whose_answer_is_lost_is_looked_up_and_not_sent_again(
    lost: str, provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Cases P1 and P6."""
    provider.fault(**LOST[lost])
    run = start_agent("crash_sighted")
    assert work(run).wait() == 0
    assert_recovered(run.id, provider, claims_at_least=2)
    assert len(provider.effects()) == 1
    assert len(provider.requests(method="POST")) == 1
    events = Transition.objects.filter(run=run, operation__tool="refund").order_by("id")
    assert list(events.values_list("event", flat=True)) == [
        OperationEvent.INTEND,
        OperationEvent.SEND,
        OperationEvent.LOSE_OUTCOME,
        OperationEvent.COMMIT,
    ]
    assert events.filter(event=OperationEvent.COMMIT, reason__contains="look-up").exists()


@pytest.mark.parametrize("lost", LOST)
def test_a_refund_whose_answer_is_lost_and_that_nobody_can_look_up_is_repeated_with_its_key(
    lost: str, provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case P1 without a look-up; a 500 that is replayed for the key leads to a person (P6)."""
    provider.fault(**LOST[lost])
    run = start_agent("crash_blind")
    status = work(run).wait()
    assert len(provider.effects()) == 1
    sent = provider.requests(method="POST")
    assert len(sent) >= 2
    assert len({seen.key for seen in sent}) == 1
    if lost == "error, kept for the key":
        assert status == LEFT_TO_A_PERSON
        _assert_waits_for_a_person(run)
    else:
        assert status == 0
        assert_recovered(run.id, provider, claims_at_least=2)


def test_a_500_that_the_provider_replays_for_a_key_without_an_effect_proves_nothing(
    provider: ProviderProcess, start_agent: StartRun, work: Work
) -> None:
    """Case P6: every repeat is answered 500, every look-up finds nothing, nobody claims either."""
    provider.fault("error_500", sticky=True)
    run = start_agent("crash_sighted")
    assert work(run).wait() == LEFT_TO_A_PERSON
    _assert_waits_for_a_person(run)
    assert not provider.effects()
    assert len({seen.key for seen in provider.requests(method="POST")}) == 1
    assert provider.requests(path="/refunds", method="GET")


def _assert_waits_for_a_person(run: AgentRun) -> None:
    run.refresh_from_db()
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    assert ToolOperation.objects.get(run=run, step_number=2).status == OperationStatus.UNKNOWN
    assert Transition.objects.filter(run=run, event=RunEvent.NEED_PERSON).exists()
