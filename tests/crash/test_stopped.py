"""A worker stands still past its lease, another one finishes the run, and it goes on.

A stopped process is not a dead one: it wakes with everything that it was about to do.
"""

import signal
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import pytest

from examples.shop.provider_process import ProviderProcess
from runs.events import Name
from runs.models import ToolObservation, ToolOperation
from tests.crash.conftest import NewLog, Providers, StartRun
from tests.crash.driving import Assignment
from tests.crash.everywhere import fault_at, first, meet, strike_everywhere
from tests.crash.forked import Child, fork_worker
from tests.crash.laws import assert_recovered, snapshot
from tests.processes import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(150)]

# By the way in which answers come. Deciding touches nothing: whoever stands still in it goes on as
# from the commit before, to the one after.
MOMENTS: Final[dict[str, dict[Name, range]]] = {
    "delivered": {
        Name.RUN_CLAIMED: first(1),
        Name.COMMIT_STARTING: first(6),
        Name.COMMIT_DONE: first(6),
        Name.CALL_STARTING: first(2),
        Name.CALL_DONE: first(2),
    },
    # It is the same until the first answer is lost.
    "lost": {
        Name.RUN_CLAIMED: range(2, 4),
        Name.COMMIT_STARTING: range(3, 11),
        Name.CALL_STARTING: range(2, 4),
        Name.CALL_DONE: first(3),
        Name.LOOK_UP_STARTING: first(1),
        Name.LOOK_UP_DONE: first(1),
    },
}


@pytest.mark.parametrize("answer", MOMENTS)
def test_a_worker_that_wakes_after_its_lease_changes_nothing_and_sends_nothing(
    answer: str, forks: None, providers: Providers, start_agent: StartRun, new_log: NewLog
) -> None:
    def is_stopped(moments: Mapping[Name, int]) -> bool:
        with providers.borrowed() as provider:
            meet(provider, answer)
            run = start_agent("crash_sighted")
            fault = fault_at(moments, what=signal.SIGSTOP)
            with _work(run.id, provider, new_log, fault=fault) as sleeper:
                sleeper.wait_until_stopped_or_ended()
                if not sleeper.lives:
                    assert sleeper.wait() == 0, sleeper.said
                    return False
                _replace(sleeper, run.id, provider, new_log)
            return True

    strike_everywhere(is_stopped, known=MOMENTS[answer])


def test_a_worker_stopped_before_the_send_sends_nothing_when_it_wakes(
    forks: None, provider: ProviderProcess, start_agent: StartRun, new_log: NewLog
) -> None:
    """Case L2."""
    run = start_agent("crash_sighted")
    with _work(run.id, provider, new_log, fault="call_starting:2:SIGSTOP") as sleeper:
        sleeper.wait_until_stopped_or_ended()
        assert not provider.requests(path="/refunds")
        _replace(sleeper, run.id, provider, new_log)
    sent = [int(seen.fence_token or 0) for seen in provider.requests(method="POST")]
    assert sent == [2]
    _assert_evidence(run.id, had_an_answer=False)


@pytest.mark.parametrize("commits", ["before it is held", "once released"])
def test_a_worker_stopped_while_the_provider_answers_leaves_its_answer_as_evidence(
    commits: str, forks: None, provider: ProviderProcess, start_agent: StartRun, new_log: NewLog
) -> None:
    """Case L3."""
    provider.fault("hold", after_commit=commits == "before it is held")
    run = start_agent("crash_sighted")
    with _work(run.id, provider, new_log) as sleeper:
        provider.wait_until_held()
        sleeper.stop()
        if commits == "once released":
            # Another worker must meet the request that is still on its way.
            with _work(run.id, provider, new_log) as replacement:
                provider.wait_for_requests(1, method="GET")
                provider.release()
                assert replacement.wait() == 0, replacement.said
        else:
            provider.release()
        _replace(sleeper, run.id, provider, new_log)
    _assert_evidence(run.id, had_an_answer=True)


def test_a_worker_stopped_after_the_call_leaves_its_answer_as_evidence(
    forks: None, provider: ProviderProcess, start_agent: StartRun, new_log: NewLog
) -> None:
    """Case L3, the answer already in hand."""
    run = start_agent("crash_sighted")
    with _work(run.id, provider, new_log, fault="call_done:2:SIGSTOP") as sleeper:
        sleeper.wait_until_stopped_or_ended()
        assert len(provider.effects()) == 1
        _replace(sleeper, run.id, provider, new_log)
    assert len(provider.requests(method="POST")) == 1
    _assert_evidence(run.id, had_an_answer=True)


def test_a_worker_that_wakes_while_another_one_is_sending_does_not_join_in(
    forks: None, provider: ProviderProcess, start_agent: StartRun, new_log: NewLog
) -> None:
    """It stood still right after its claim, so what it reads next is the other one's work."""
    provider.fault("reset_before")
    provider.fault("hold")
    run = start_agent("crash_patient")
    with _work(run.id, provider, new_log, fault="run_claimed:2:SIGSTOP") as sleeper:
        sleeper.wait_until_stopped_or_ended()
        with _work(run.id, provider, new_log) as replacement:
            provider.wait_until_held()
            before = snapshot(run.id, provider)
            sleeper.go_on()
            wait_until(lambda: "lease_lost=True" in sleeper.said, what="the sleeper let go")
            changed = before.changed(snapshot(run.id, provider))
            provider.release()
            assert [replacement.wait(), sleeper.wait()] == [0, 0], sleeper.said
    # The replacement's own heartbeat, and nothing else.
    assert {column for _, _, column in changed} <= {
        "lease_expires_at",
        "sweep_at",
        "in_flight_until",
    }
    assert_recovered(run.id, provider, claims_at_least=3)
    assert len(provider.requests(method="POST")) == 2


def test_a_request_that_leaves_a_woken_worker_too_late_is_no_second_effect(
    forks: None, provider: ProviderProcess, start_agent: StartRun, new_log: NewLog
) -> None:
    """What no check can prevent: the worker stops between the check and the socket.

    The fencing token protects our tables; here the idempotency key protects theirs.
    """
    run = start_agent("crash_sleepy")
    with _work(run.id, provider, new_log) as sleeper:
        sleeper.wait_until_stopped_or_ended()
        assert not provider.requests()
        with _work(run.id, provider, new_log) as replacement:
            assert replacement.wait() == 0, replacement.said
        before = snapshot(run.id, provider)
        sleeper.go_on()
        assert sleeper.wait() == 0, sleeper.said
        provider.wait_for_requests(2)
        changed = before.changed(snapshot(run.id, provider))
    assert set(changed) == {("provider", "", "requests")}
    (effect,) = provider.effects()
    sent = provider.requests(method="POST")
    assert [(seen.key, seen.fence_token) for seen in sent] == [
        (effect.operation_id, "2"),
        (effect.operation_id, "1"),
    ]
    _assert_evidence(run.id, had_an_answer=True)


def _work(run_id: UUID, provider: ProviderProcess, log: NewLog, *, fault: str = "") -> Child:
    return fork_worker(
        Assignment(run_id=run_id, provider_url=provider.url, log=str(log()), fault=fault)
    )


def _replace(sleeper: Child, run_id: UUID, provider: ProviderProcess, log: NewLog) -> None:
    """Let another worker finish the run; then the sleeper wakes, and all stays as it was."""
    assert sleeper.stands_still
    with _work(run_id, provider, log) as replacement:
        assert replacement.wait() == 0, replacement.said
    assert_recovered(run_id, provider, claims_at_least=1)
    before = snapshot(run_id, provider)
    sleeper.go_on()
    assert sleeper.wait() == 0, sleeper.said
    assert before.changed(snapshot(run_id, provider)) == {}


def _assert_evidence(run_id: UUID, *, had_an_answer: bool) -> None:
    """What the first worker learned is kept, under its own token, and named as late."""
    late = ToolObservation.objects.filter(run=run_id, source="stale_worker", fence_token=1)
    if not had_an_answer:
        assert set(late.values_list("verdict", flat=True)) == {"not_sent"}
        return
    answer = late.get(verdict="committed")
    operation = ToolOperation.objects.get(id=answer.operation_id)
    assert answer.result == operation.result
    assert answer.external_ref == operation.external_ref
