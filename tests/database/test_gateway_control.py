"""A run of an agent elsewhere is paused, cancelled, retried and corrected as every run is."""

from datetime import timedelta
from typing import Any

import pytest

from runs import Agent, External, ToolCall
from runs.access import operator
from runs.commands import (
    cancel_run,
    compensate_run,
    fork_run,
    pause_run,
    resume_run,
    retry_run,
)
from runs.errors import KeyInUse, WrongState
from runs.gateway.accepting import accept_finish
from runs.gateway.calling import Called, look_at_call
from runs.models import GatewayCall
from runs.presenting import present_call
from tests.database.calling import (
    ELSEWHERE,
    NEVER,
    carry_out,
    carry_out_when_due,
    operation,
    run_of,
    send,
)
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    another_connection,
    change,
    drive,
    let_pass,
    scripted_tool,
)
from tools import Call, EffectType, Rejected, tool

pytestmark = ON_DATABASE


def look(sent: Any) -> Called:
    found = look_at_call(actor=ELSEWHERE, operation_id=str(sent.call.operation_id))
    assert isinstance(found, Called)
    return found


def test_a_paused_run_accepts_calls_and_makes_them_once_it_goes_on() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    first = send("k1", thread="t")
    carry_out(first)
    pause_run(actor=operator(), run_id=run_of(first).pk)
    second = send("k2", thread="t", amount=2)
    carry_out(second)
    assert (len(script.calls), look(second).operation) == (1, None)
    resume_run(actor=operator(), run_id=run_of(first).pk)
    carry_out(second)
    assert operation(second).status == "COMMITTED"


def test_a_run_that_was_paused_for_long_has_its_time_anew() -> None:
    Agent(name="short", decider=External(any_tool=True, idle=timedelta(hours=1)))
    scripted_tool("one", approval_policy=NEVER)
    sent = send(thread="t", agent="short")
    carry_out(sent)
    pause_run(actor=operator(), run_id=run_of(sent).pk)
    let_pass(hours=3)
    change("UPDATE runs_gatewaycall SET received_at = received_at - interval '3 hours'")
    resume_run(actor=operator(), run_id=run_of(sent).pk)
    assert carry_out(sent).state == "READY"


def test_what_a_cancelled_run_had_not_taken_up_is_never_done_and_says_so() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    first = send("k1", thread="t")
    carry_out(first)
    pause_run(actor=operator(), run_id=run_of(first).pk)
    waiting = send("k2", thread="t", amount=2)
    cancel_run(actor=operator(), run_id=run_of(first).pk)
    assert carry_out(waiting).state == "CANCELLED"
    found = look(waiting)
    assert (found.operation, found.is_settled) == (None, True)
    shown = present_call(found.call)
    assert (shown.status, shown.never_sent) == ("CANCELLED", "cancelled")
    assert send("k2", thread="t", amount=2).replayed
    # Nor is what was asked for kept.
    assert GatewayCall.objects.get(pk=waiting.call.pk).arguments is None
    assert len(script.calls) == 1


def test_a_call_that_slipped_in_while_its_run_ended_is_dropped_by_whoever_looks() -> None:
    script = scripted_tool("one", approval_policy=NEVER)
    first = send("k1", thread="t")
    late = send("k2", thread="t", amount=2)
    cancel_run(actor=operator(), run_id=run_of(first).pk)
    carry_out(first)
    change("UPDATE runs_gatewaycall SET taken_at = NULL, arguments = '{}' WHERE key = 'k2'")
    assert look(late).is_settled
    assert GatewayCall.objects.filter(taken_at=None).count() == 0
    assert script.calls == []


def test_a_retry_does_not_do_what_was_told_to_be_dropped() -> None:
    script = scripted_tool(Rejected("closed"), "two", "three", approval_policy=NEVER)
    sent = send("k1", thread="t")
    accept_finish(actor=ELSEWHERE, run_id=run_of(sent).pk, error="no use")
    assert carry_out(sent).state == "FAILED"
    # Written as by somebody who came while the run ended.
    late = send("k2", thread="another")
    change("UPDATE runs_gatewaycall SET run_id = %s WHERE key = 'k2'", run_of(sent).pk)
    retry_run(actor=operator(), run_id=run_of(sent).pk)
    late.call.refresh_from_db()
    assert carry_out(sent).state == "READY"
    assert len(script.calls) == 1
    # Rejected is what its key says for ever.
    assert operation(sent).status == "REJECTED"


def test_a_failed_thread_that_is_retried_goes_on_with_the_next_call() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    Agent(name="short", decider=External(any_tool=True, idle=timedelta(hours=1)))
    first = send("k1", thread="t", agent="short")
    carry_out(first)
    let_pass(hours=3)
    change("UPDATE runs_gatewaycall SET received_at = received_at - interval '3 hours'")
    assert carry_out_when_due(first).state == "FAILED"
    with pytest.raises(WrongState):
        send("k2", thread="t", amount=2)
    retry_run(actor=operator(), run_id=run_of(first).pk)
    assert carry_out(first).state == "READY"
    second = send("k2", thread="t", amount=2)
    carry_out(second)
    assert operation(second).status == "COMMITTED"
    assert len(script.calls) == 2


def test_a_fork_inherits_what_was_done_and_is_called_by_its_id() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    first = send("k1", thread="t")
    carry_out(first)
    fork = fork_run(actor=operator(ELSEWHERE.name), run_id=run_of(first).pk, step=1).run
    # The same intent, in the lineage of the first: what that came to is the answer.
    again = send("k2", run=fork.pk)
    carry_out(again)
    assert operation(again).repeats_id == operation(first).pk
    assert operation(again).result == "one"
    other = send("k3", run=fork.pk, amount=2)
    carry_out(other)
    assert [call.arguments["amount"] for call in script.calls] == [1, 2]


def test_what_a_thread_did_is_corrected_newest_first() -> None:
    undone: list[int] = []

    @tool(name="unpay", effect_type=EffectType.IDEMPOTENT_WRITE, approval_policy=NEVER)
    def unpay(call: Call, amount: int) -> str:
        """Take it back."""
        undone.append(amount)
        return "undone"

    def take_back(call: Call) -> ToolCall:
        return ToolCall("unpay", amount=call.arguments["amount"])

    scripted_tool("one", "two", approval_policy=NEVER, compensation_handler=take_back)
    sent = [send(f"k{n}", thread="t", amount=n) for n in (1, 2)]
    carry_out(sent[0])
    run = run_of(sent[0])
    compensate_run(actor=operator(), run_id=run.pk)
    for _ in range(6):
        run.refresh_from_db()
        if run.finished_at is None:
            drive(run)
    assert (run.state, undone) == ("CANCELLED", [2, 1])


def test_a_call_that_is_unknown_holds_up_the_ones_behind_it_and_is_never_sent_again() -> None:
    script = scripted_tool(LOST, "two", approval_policy=NEVER, provider=None)
    first = send("k1", thread="t")
    assert carry_out(first).state == "TOOL_STATUS_UNKNOWN"
    second = send("k2", thread="t", amount=2)
    carry_out(second)
    assert look(second).operation is None
    assert send("k1", thread="t").replayed
    assert len(script.calls) == 1


def test_a_caller_who_finds_the_run_locked_is_told_to_come_again() -> None:

    scripted_tool("one", approval_policy=NEVER)
    first = send("k1", thread="t")
    with another_connection(autocommit=False) as other:
        other.execute("SELECT FROM runs_agentrun WHERE id = %s FOR UPDATE", [run_of(first).pk])
        change("SET lock_timeout = '50ms'")
        try:
            with pytest.raises(KeyInUse):
                send("k2", thread="t", amount=2)
        finally:
            change("RESET lock_timeout")
    assert GatewayCall.objects.count() == 1
