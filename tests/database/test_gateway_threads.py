"""Calls of one run: in their order, once per step and action, until its agent says that it ends."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from runs import Agent, Budget, External, events
from runs.access import Actor
from runs.errors import InvalidInput, NotPermitted, UnknownRun, WrongState
from runs.gateway.accepting import Asked, accept_finish
from runs.gateway.calling import Called, call_operation, look_at_call
from runs.gateway.errors import ActionReused
from runs.models import AgentRun, GatewayCall, ToolOperation
from tests.database.calling import (
    ELSEWHERE,
    NEIGHBOUR,
    NEVER,
    carry_out,
    carry_out_when_due,
    operation,
    run_of,
    send,
)
from tests.database.kit import ON_DATABASE, change, dies_at, expire_lease, let_pass, scripted_tool
from tools import EffectType, Rejected

pytestmark = ON_DATABASE


def test_the_first_call_of_a_thread_starts_its_run_and_the_next_ones_join_it() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    first = send("k1", thread="job 7")
    assert carry_out(first).state == "READY"
    second = send("k2", thread="job 7", amount=2)
    assert second.call.run_id == first.call.run_id
    run = carry_out(second)
    assert [operation(one).step_number for one in (first, second)] == [1, 2]
    assert [call.arguments["amount"] for call in script.calls] == [1, 2]
    # It waits for the next call, and somebody is due to see that none comes.
    assert (run.state, run.lease_owner, run.labels) == ("READY", "", {"thread": "job 7"})
    assert run.wake_at is not None


def test_threads_of_two_tokens_are_two_runs() -> None:
    scripted_tool("one", "two", approval_policy=NEVER)
    first, second = send(thread="job 7"), send(thread="job 7", actor=NEIGHBOUR)
    assert first.call.run_id != second.call.run_id


def test_calls_that_wait_together_are_carried_out_in_the_order_in_which_they_came() -> None:
    script = scripted_tool(1, 2, 3, approval_policy=NEVER)
    sent = [send(f"k{n}", thread="t", amount=n) for n in (3, 1, 2)]
    carry_out(sent[0])
    assert [call.arguments["amount"] for call in script.calls] == [3, 1, 2]
    done = [operation(one) for one in sent]
    assert [(one.step_number, one.ordinal) for one in done] == [(1, 0), (1, 1), (1, 2)]


def test_what_comes_while_a_call_is_made_is_due_at_once() -> None:
    def call_again(call: Any) -> str:
        sent.append(send("k2", thread="t", amount=2))
        return "one"

    sent: list[Any] = []
    scripted_tool(call_again, "two", approval_policy=NEVER)
    sent.append(send("k1", thread="t"))
    carry_out(sent[0])
    # Its holder had looked before it came. The row says that it is due now: no date was lost.
    carry_out(sent[0])
    assert [operation(one).status for one in sent] == ["COMMITTED", "COMMITTED"]


def test_a_step_and_action_name_a_call_whatever_key_comes_with_them() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    first = send("k1", thread="t", step=4, action="refund 17")
    carry_out(first)
    again = send("k2", thread="t", step=4, action="refund 17")
    assert (again.replayed, again.call.pk) == (True, first.call.pk)
    assert len(script.calls) == 1
    with pytest.raises(ActionReused, match=str(first.call.operation_id)):
        send("k3", thread="t", step=4, action="refund 17", amount=2)
    # The new key was not spent on that.
    assert not send("k3", thread="t", step=5, action="refund 17", amount=2).replayed


def test_the_tool_names_the_action_of_a_step_that_has_no_other_name() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    scripted_tool(name="look", effect=EffectType.READ)
    first = send("k1", thread="t", step=1)
    other = send("k2", "look", thread="t", step=1)
    assert first.call.operation_id != other.call.operation_id
    assert send("k3", thread="t", step=1).replayed


def test_an_action_is_remembered_when_its_run_has_ended() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    first = send("k1", thread="t", step=1)
    carry_out(first)
    accept_finish(actor=ELSEWHERE, run_id=run_of(first).pk)
    assert carry_out(first).state == "COMPLETED"
    again = send("k2", thread="t", step=1)
    assert (again.replayed, again.call.pk) == (True, first.call.pk)
    with pytest.raises(WrongState, match="call a tool"):
        send("k3", thread="t", step=2)


def test_a_run_ends_as_its_agent_says_after_what_it_was_asked_for_before() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t")
    run = accept_finish(actor=ELSEWHERE, run_id=run_of(sent).pk, result={"refunded": 1})
    assert run.state == "READY"
    run = carry_out(sent)
    assert (run.state, run.result) == ("COMPLETED", {"refunded": 1})
    assert len(script.calls) == 1


def test_an_end_that_is_said_again_is_the_same_end() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t")
    run_id = run_of(sent).pk
    for _ in range(2):
        accept_finish(actor=ELSEWHERE, run_id=run_id, result=1)
    carry_out(sent)
    assert accept_finish(actor=ELSEWHERE, run_id=run_id, result=1).state == "COMPLETED"
    assert GatewayCall.objects.filter(kind="finish").count() == 1
    with pytest.raises(WrongState, match="finish"):
        accept_finish(actor=ELSEWHERE, run_id=run_id, error="no")


def test_an_agent_that_gives_up_fails_its_run() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    sent = send(thread="t")
    accept_finish(actor=ELSEWHERE, run_id=run_of(sent).pk, error="the customer has gone")
    run = carry_out(sent)
    assert (run.state, run.error) == ("FAILED", "the customer has gone")


def test_a_rejected_call_of_a_thread_ends_nothing_but_itself() -> None:
    scripted_tool(Rejected("closed"), "paid", approval_policy=NEVER)
    first = send("k1", thread="t")
    assert carry_out(first).state == "READY"
    second = send("k2", thread="t", amount=2)
    carry_out(second)
    assert [operation(one).status for one in (first, second)] == ["REJECTED", "COMMITTED"]


def test_calls_that_cannot_be_made_do_not_end_a_thread_however_many_they_are() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    for number in range(8):
        sent = send(f"k{number}", thread="t", amount=number)
        GatewayCall.objects.filter(pk=sent.call.pk).update(arguments={"amount": "no"})
        assert carry_out(sent).state == "READY"
    assert carry_out(send("last", thread="t")).state == "READY"
    assert ToolOperation.objects.filter(status="COMMITTED").count() == 1


def test_nobody_is_heard_of_for_too_long_and_the_run_fails() -> None:
    Agent(name="short", decider=External(any_tool=True, idle=timedelta(hours=1)))
    scripted_tool("one", "two", approval_policy=NEVER)
    sent = send("k1", thread="t", agent="short")
    carry_out(sent)
    _pass(minutes=50)
    carry_out(send("k2", thread="t", amount=2))
    _pass(minutes=50)
    # Heard of since: not yet.
    assert carry_out_when_due(sent).state == "READY"
    _pass(minutes=15)
    run = carry_out_when_due(sent)
    assert run.state == "FAILED"
    assert "1:00:00" in run.error


def _pass(**time: float) -> None:
    let_pass(**time)
    change(
        "UPDATE runs_gatewaycall SET received_at = received_at - %s::interval",
        timedelta(**time),
    )


def test_a_call_that_comes_at_the_last_moment_is_made() -> None:
    Agent(name="short", decider=External(any_tool=True, idle=timedelta(hours=1)))
    scripted_tool("one", "two", approval_policy=NEVER)
    first = send("k1", thread="t", agent="short")
    carry_out(first)
    _pass(hours=2)
    second = send("k2", thread="t", amount=2)
    assert carry_out(second).state == "READY"
    assert operation(second).status == "COMMITTED"


def test_a_thread_stays_with_the_agent_that_it_was_started_for() -> None:
    Agent(name="clerk", decider=External(), tools=("pay",))
    scripted_tool("one", "two", approval_policy=NEVER)
    scripted_tool(name="wipe", approval_policy=NEVER)
    first = send("k1", thread="t", agent="clerk")
    assert run_of(first).agent == "clerk"
    assert send("k2", thread="t", amount=2).call.run_id == first.call.run_id
    with pytest.raises(InvalidInput, match="clerk"):
        send("k3", thread="t", agent="external")
    with pytest.raises(Exception, match="wipe"):
        send("k4", "wipe", thread="t")
    assert GatewayCall.objects.count() == 2


def test_a_run_of_somebody_else_needs_the_right_to_write_runs() -> None:
    scripted_tool("one", approval_policy=NEVER)
    sent = send(thread="t")
    stranger = Actor(name="stranger", scopes=frozenset({"operations:call:*"}), token=9)
    run_id = run_of(sent).pk
    with pytest.raises(NotPermitted):
        send("k2", run=run_id, actor=stranger)
    with pytest.raises(NotPermitted):
        accept_finish(actor=stranger, run_id=run_id)
    assert not send("k2", run=run_id, actor=NEIGHBOUR).replayed


def test_a_run_that_is_not_there_is_not_started() -> None:
    scripted_tool("one", approval_policy=NEVER)
    with pytest.raises(UnknownRun):
        send(run=uuid4())
    assert not AgentRun.objects.exists()


def test_a_call_that_joins_a_run_of_one_call_does_not_keep_it_open() -> None:
    scripted_tool("one", "two", approval_policy=NEVER)
    first = send()
    second = send("k2", run=run_of(first).pk, amount=2)
    run = carry_out(first)
    assert (run.state, run.result) == ("COMPLETED", "two")
    assert operation(second).status == "COMMITTED"


@pytest.mark.parametrize("commit", range(1, 4))
def test_a_worker_that_dies_between_two_commits_leaves_the_thread_to_the_next(commit: int) -> None:
    scripted_tool("one", "two", approval_policy=NEVER)
    sent = [send(f"k{n}", thread="t", amount=n) for n in (1, 2)]
    with dies_at(events.Name.COMMIT_DONE, nth=commit):
        carry_out(sent[0])
    run = run_of(sent[0])
    expire_lease(run)
    for _ in range(4):
        carry_out_when_due(sent[0], owner="worker 2")
    done = [operation(one) for one in sent]
    assert {one.status for one in done} <= {"COMMITTED", "UNKNOWN"}
    assert ToolOperation.objects.count() == 2
    assert GatewayCall.objects.filter(taken_at=None).count() == 0


def test_a_budget_ends_what_a_thread_may_ask_for_until_a_person_says_more() -> None:
    Agent(name="poor", decider=External(any_tool=True), budget=Budget(steps=1))
    script = scripted_tool("one", "two", approval_policy=NEVER)
    carry_out(send("k1", thread="t", agent="poor"))
    held = send("k2", thread="t", amount=2)
    run = carry_out(held)
    assert (run.state, run.paused_at is not None) == ("READY", True)
    assert len(script.calls) == 1
    found = look_at_call(actor=ELSEWHERE, operation_id=str(held.call.operation_id))
    assert isinstance(found, Called)
    assert (found.operation, found.is_settled) == (None, False)


def test_the_same_read_over_and_over_pauses_the_thread() -> None:
    Agent(name="loop", decider=External(any_tool=True), repeats_allowed=2)
    script = scripted_tool(*["same"] * 9, name="look", effect=EffectType.READ)
    for number in range(5):
        sent = send(f"k{number}", "look", thread="t", agent="loop")
        run = carry_out(sent)
    assert run.paused_at is not None
    assert len(script.calls) == 2


def test_the_answer_is_read_from_rows_by_whoever_repeats_the_request() -> None:
    scripted_tool({"id": 7}, approval_policy=NEVER)
    carry_out(send(thread="t"))
    asked = Asked(tool="pay", arguments={"amount": 1}, key="k1", thread="t")
    found = call_operation(actor=ELSEWHERE, asked=asked)
    assert found.operation is not None
    assert (found.replayed, found.operation.result) == (True, {"id": 7})
