"""Runs whose provider has limits: who waits was not sent, not tried, and comes again."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import Budget, Context, Decision, Finish, LlmLimits, ToolCall, flow
from runs.models import AgentRun, FlowLimit
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    call_once,
    drive,
    drive_when_due,
    found,
    operation_of,
    scripted_tool,
)
from tools import Provider, Rate

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]

ONE_AT_A_TIME = Provider(name="bank", account="a", idempotency_support="key", concurrency=1)
TWO_PER_MINUTE = Provider(
    name="bank",
    account="a",
    idempotency_support="key",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
    rate=Rate(2, per=timedelta(minutes=1)),
)


@pytest.fixture(autouse=True)
def _nothing_is_held() -> Iterator[None]:
    yield
    flow._mine.__init__()  # type: ignore[misc]


def _used() -> int:
    return sum(FlowLimit.objects.get().recent.values())


def _holders() -> set[str]:
    return set(FlowLimit.objects.get().slots)


def test_a_call_that_must_wait_was_not_sent_and_not_tried_and_its_run_comes_again(
    start: Start,
) -> None:
    script = scripted_tool(7, provider=ONE_AT_A_TIME)
    assert ONE_AT_A_TIME.limits is not None
    name, limits = ONE_AT_A_TIME.limit_name, ONE_AT_A_TIME.limits
    assert flow.take(name=name, limits=limits, holder="another", seconds=60) is None
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    waiting = operation_of(run)
    assert (script.calls, waiting.attempts, waiting.first_sent_at) == ([], 0, None)
    assert run.lease_expires_at is None
    assert run.wake_at is not None
    flow.give_back(["another"])
    drive_when_due(run)
    assert (run.state, run.result) == ("COMPLETED", 7)
    assert operation_of(run).attempts == 1


def test_a_call_that_is_back_leaves_its_slot_to_the_next(start: Start) -> None:
    scripted_tool(7, LOST, 8, provider=ONE_AT_A_TIME)
    for result in (7, None, 8):
        run = start(decider=call_once(), tools=("pay",))
        drive(run)
        assert run.result == result
        assert _holders() == set()


def test_calls_of_one_decision_leave_as_the_limit_lets_them(start: Start) -> None:
    script = scripted_tool(1, 2, 3, provider=TWO_PER_MINUTE)
    calls = [ToolCall("pay", amount=amount) for amount in (1, 2, 3)]
    run = start(decider=call_once(*calls), tools=("pay",))
    drive(run)
    assert len(script.calls) == 2
    drive_when_due(run)
    assert len(script.calls) == 2
    FlowLimit.objects.update(recent={})
    drive_when_due(run)
    assert len(script.calls) == 3
    assert run.state == "COMPLETED"


def test_look_ups_and_repeats_count_for_the_rate(start: Start) -> None:
    look_up = Script(found(7))
    scripted_tool(LOST, provider=TWO_PER_MINUTE, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert _used() == 1
    drive_when_due(run)
    assert len(look_up.calls) == 1
    assert _used() == 2


def test_a_look_up_that_must_wait_is_none_and_comes_again(start: Start) -> None:
    look_up = Script(found(7))
    scripted_tool(LOST, provider=TWO_PER_MINUTE, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert TWO_PER_MINUTE.limits is not None
    name, limits = TWO_PER_MINUTE.limit_name, TWO_PER_MINUTE.limits
    assert flow.take(name=name, limits=limits, holder="another", seconds=60) is None
    drive_when_due(run)
    assert look_up.calls == []
    assert run.wake_at is not None
    FlowLimit.objects.update(recent={})
    drive_when_due(run)
    assert run.result == 7


def test_a_run_of_unlimited_providers_asks_nothing_about_limits(start: Start) -> None:
    scripted_tool(7)
    run = start(decider=call_once(), tools=("pay",))
    with CaptureQueriesContext(connection) as asked:
        drive(run)
    assert run.result == 7
    assert not [query for query in asked.captured_queries if "flowlimit" in query["sql"]]


# -- Llms ----------------------------------------------------------------------


def test_an_llm_that_may_not_be_asked_now_was_not_asked_and_nothing_was_spent(
    start: Start,
) -> None:
    asked: list[int] = []

    def decide(context: Context) -> Decision:
        asked.append(context.step_number)
        assert set(FlowLimit.objects.get().slots) == {f"{context.run_id}:1"}
        return Finish("done")

    limits = LlmLimits("big", concurrency=1)
    run = start(decider=decide, llm_limits=limits, budget=Budget(tokens=100, step_tokens=60))
    assert flow.take(name=limits.name, limits=limits.limits, holder="another", seconds=60) is None
    drive(run)
    assert (run.state, asked, run.spent_tokens) == ("DECIDING", [], 0)
    assert run.wake_at is not None
    flow.give_back(["another"])
    drive_when_due(run)
    assert (run.result, asked, _holders()) == ("done", [1], set())
