"""Operations: one identity, intent before the call, and only proof is an outcome."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.models import AgentRun, ToolOperation
from runs.planning import operation_id
from runs.state import OperationStatus, RunState
from runs.undecided import MAX_FAILURES
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    ask,
    call_once,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    operation_edges,
    operation_of,
    scripted_tool,
    verdicts,
)
from tools import Approve, Call, EffectType, NotSent

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


# -- Identity -----------------------------------------------------------------------------------


def test_an_id_depends_on_the_run_the_step_and_the_logical_action_alone(start: Start) -> None:
    runs = [start(decider=lambda context: Finish(1)).id for _ in range(2)]
    names = {
        operation_id(run_id=run, step_number=step, logical_action=action)
        for run in runs
        for step in (1, 11)
        for action in ("pay#0", "pay#1", "pay2#0")
    }
    assert len(names) == 2 * 2 * 3
    again = operation_id(run_id=runs[0], step_number=1, logical_action="pay#0")
    assert again in names


def test_a_retry_and_a_take_over_keep_the_id_and_the_key(start: Start) -> None:
    script = scripted_tool(NotSent("no route"), LOST, LOST, 7, max_attempts=9)
    run = start(decider=call_once(), tools=("pay",))
    for number in range(3):
        drive_when_due(run, owner=f"worker {number}")
    with dies_at(events.Name.CALL_STARTING):
        drive_when_due(run, owner="worker 4")
    expire_lease(run)
    drive(run, owner="worker 5")
    assert run.state == RunState.COMPLETED
    assert len(script.calls) == 4
    names = {(call.operation_id, call.idempotency_key) for call in script.calls}
    operation = operation_of(run)
    assert names == {(operation.id, operation.idempotency_key)}
    assert [call.attempt for call in script.calls] == [1, 2, 3, 5]
    tokens = [call.fence_token for call in script.calls]
    assert tokens == sorted(set(tokens))
    assert operation.fence_token == tokens[-1]


def test_equal_calls_of_one_decision_and_of_two_steps_are_different_operations(
    start: Start,
) -> None:
    scripted_tool(*range(4), effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        if context.step_number <= 2:
            return CallTools(ToolCall("pay", amount=1), ToolCall("pay", amount=1))
        return Finish(None)

    run = start(decider=decide, tools=("pay",))
    drive(run)
    rows = ToolOperation.objects.filter(run=run)
    assert rows.count() == len({row.id for row in rows}) == 4
    assert len({row.arguments_digest for row in rows}) == 1


# -- Calls that cannot be made ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (ToolCall("nothing"), "no tool is named"),
        (ToolCall("hidden"), "no tool is named"),
        (ToolCall("pay", amount="much"), "amount"),
        (ToolCall("pay", amount=1, colour="red"), "colour"),
    ],
)
def test_a_call_that_cannot_be_made_is_never_sent_and_the_decider_sees_why(
    start: Start, call: ToolCall, words: str
) -> None:
    pay, hidden = scripted_tool(7), scripted_tool(7, name="hidden")
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        return CallTools(call) if context.last is None else Finish("gave up")

    run = start(decider=decide, tools=("pay",))
    drive(run)
    last = seen[1].last
    assert last is not None
    assert (last.tool, last.status, last.committed) == (call.tool, "CANCELLED", False)
    assert words in last.error
    assert (run.state, run.result) == (RunState.COMPLETED, "gave up")
    assert (pay.calls, hidden.calls) == ([], [])
    assert operation_edges(run) == ["REFUSE"]
    assert operation_of(run).policy_outcome == "refuse"


def test_the_number_of_calls_that_cannot_be_made_is_bounded(start: Start) -> None:
    scripted_tool(7)
    run = start(decider=lambda context: CallTools(ToolCall("pay", amount="x")), tools=("pay",))
    drive(run)
    assert run.state == RunState.FAILED
    assert operation_edges(run) == ["REFUSE"] * MAX_FAILURES


def test_a_refused_call_still_hides_what_is_sensitive(start: Start) -> None:
    scripted_tool(7, sensitive=("amount",))
    run = start(decider=call_once(ToolCall("pay", amount="4111-secret")), tools=("pay",))
    drive(run)
    operation = operation_of(run)
    assert operation.status == OperationStatus.CANCELLED
    assert operation.sensitive == ["amount"]
    assert "4111-" not in operation.error


def test_a_refused_call_does_not_drop_its_siblings(start: Start) -> None:
    script = scripted_tool(7)
    run = start(decider=call_once(ToolCall("nothing"), ToolCall("pay")), tools=("pay",))
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 1)
    assert [operation_of(run, ordinal=n).status for n in (0, 1)] == ["CANCELLED", "COMMITTED"]


# -- Intent before the call ---------------------------------------------------------------------


def test_when_a_tool_is_called_its_intent_and_send_window_are_durable(start: Start) -> None:
    def look(call: Call) -> Any:
        row = ToolOperation.objects.get(id=call.operation_id)
        return [row.status, row.run.state, row.attempts, row.fence_token == call.fence_token]

    scripted_tool(look)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.result == ["RUNNING", "TOOL_RUNNING", 1, True]


def test_a_call_may_take_less_than_the_lease_that_is_left(start: Start) -> None:
    def look(call: Call) -> list[float]:
        left = ask(
            "SELECT EXTRACT(EPOCH FROM lease_expires_at - clock_timestamp())::float8"
            " FROM runs_agentrun WHERE id = %s",
            call.run_id,
        )
        return [left, call.remaining]

    scripted_tool(look, seconds=200.0)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.result is not None
    left, remaining = run.result
    assert 190 < remaining <= 200
    assert left > remaining


@pytest.mark.parametrize(
    ("point", "nth"), [(events.Name.COMMIT_DONE, 2), (events.Name.CALL_STARTING, 1)]
)
def test_a_worker_that_was_stopped_before_its_call_does_not_call(
    start: Start, monkeypatch: pytest.MonkeyPatch, point: events.Name, nth: int
) -> None:
    script = scripted_tool(7)
    run = start(decider=call_once(), tools=("pay",))
    real = time.monotonic
    seen = 0

    def stop(event: events.Event) -> None:
        nonlocal seen
        seen += event.name is point
        if event.name is point and seen == nth:
            monkeypatch.setattr(time, "monotonic", lambda: real() + 1000)

    unsubscribe = events.subscribe(stop)
    try:
        drive(run)
    finally:
        unsubscribe()
    assert script.calls == []
    assert verdicts(run) == [("worker", "not_sent")]
    assert run.state == RunState.TOOL_PREPARED


# -- The policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("amount", "held"), [(500, False), (501, True)])
def test_over_the_threshold_a_call_waits_for_a_signature(
    start: Start, amount: int, held: bool
) -> None:
    script = scripted_tool(7, approval_policy=Approve(when="amount > 500"))
    run = start(decider=call_once(ToolCall("pay", amount=amount)), tools=("pay",))
    drive(run)
    assert (run.state == RunState.WAITING_FOR_APPROVAL) == held
    assert len(script.calls) == (0 if held else 1)


def test_what_waits_for_a_signature_holds_no_lease_and_nobody_is_due(start: Start) -> None:
    scripted_tool(7, approval_policy=Approve(when="amount > 500"))
    run = start(decider=call_once(ToolCall("pay", amount=501)), tools=("pay",))
    drive(run)
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert (run.wake_at, run.sweep_at) == (None, None)
    operation = operation_of(run)
    assert operation.status == OperationStatus.AWAITING_APPROVAL
    assert (operation.policy_outcome, operation.policy_rule) == (
        "require_approval",
        "amount > 500",
    )
    assert operation.policy_version
    assert operation_edges(run) == ["HOLD"]
    for _ in range(2):
        assert not drive_when_due(run).claimed


def test_an_irreversible_act_without_a_rule_waits_for_a_signature(start: Start) -> None:
    script = scripted_tool(7, effect=EffectType.IRREVERSIBLE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert (run.state, script.calls) == (RunState.WAITING_FOR_APPROVAL, [])


def test_a_held_call_waits_behind_those_before_it(start: Start) -> None:
    pay = scripted_tool(7)
    big = scripted_tool(8, name="big", approval_policy=Approve())
    run = start(decider=call_once(ToolCall("pay"), ToolCall("big")), tools=("pay", "big"))
    drive(run)
    assert (run.state, len(pay.calls), big.calls) == (RunState.WAITING_FOR_APPROVAL, 1, [])
    assert [operation_of(run, ordinal=n).status for n in (0, 1)] == [
        "COMMITTED",
        "AWAITING_APPROVAL",
    ]
