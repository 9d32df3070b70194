"""A request is one call per key, and one that is refused leaves no trace."""

from typing import Any

import pytest
from django.db import connection

from runs import Agent, External, Finish, Script
from runs.access import Actor
from runs.errors import (
    InvalidInput,
    KeyReused,
    NotPermitted,
    RunsError,
    UnknownAgent,
    UnknownOperation,
)
from runs.gateway.accepting import Asked
from runs.gateway.calling import Called, call_operation, look_at_call, raise_if_unanswerable
from runs.gateway.errors import CallInFlight, CallInvalid, KeyForgotten, NotExternal, PolicyRefuses
from runs.models import AgentRun, GatewayCall, ToolOperation
from runs.presenting import present_call, present_operation
from tests.database.calling import (
    ELSEWHERE,
    NEIGHBOUR,
    NEVER,
    carry_out,
    nothing_written,
    operation,
    run_of,
    send,
)
from tests.database.kit import LOST, ON_DATABASE, change, run_edges, scripted_tool
from tests.database.policy_rows import save_row
from tools import Rejected
from tools.errors import InvalidArguments, UnknownTool

pytestmark = ON_DATABASE


def look(sent: Any, actor: Actor = ELSEWHERE) -> Called:
    found = look_at_call(actor=actor, operation_id=str(sent.call.operation_id))
    assert isinstance(found, Called)
    return found


def test_a_call_is_a_run_of_its_own_that_ends_as_it_did() -> None:
    script = scripted_tool({"paid": 1}, approval_policy=NEVER)
    sent = send()
    assert not sent.replayed
    assert GatewayCall.objects.get().arguments == {"amount": 1}
    run = carry_out(sent)
    assert (run.state, run.result, run.agent) == ("COMPLETED", {"paid": 1}, "external")
    assert (run.created_by, run.spent_steps) == (ELSEWHERE.name, 2)
    done = operation(sent)
    assert (done.status, done.arguments, done.result) == ("COMMITTED", {"amount": 1}, {"paid": 1})
    # One name, for its caller, for us and for the provider.
    assert script.calls[0].idempotency_key == done.idempotency_key == sent.call.operation_id
    # What was asked for stands where it is hidden and purged.
    assert GatewayCall.objects.get().arguments is None


def test_the_same_request_under_one_key_is_one_call_whatever_it_came_to() -> None:
    scripted_tool(Rejected("the account is closed"), approval_policy=NEVER)
    first = send()
    assert send().replayed
    run = carry_out(first)
    assert (run.state, operation(first).status) == ("FAILED", "REJECTED")
    again = send()
    assert (again.replayed, again.call.pk) == (True, first.call.pk)
    found = look(again)
    assert found.is_settled
    assert found.operation is not None
    assert found.operation.error == "the account is closed"
    assert (AgentRun.objects.count(), GatewayCall.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [{"amount": 2}, {"thread": "t"}, {"thread": "t", "step": 1}, {"agent": "external"}],
    ids=str,
)
def test_a_key_is_not_used_for_another_request(other: dict[str, Any]) -> None:
    scripted_tool("paid", approval_policy=NEVER)
    carry_out(send())
    with pytest.raises(KeyReused):
        send(**other)
    assert (AgentRun.objects.count(), GatewayCall.objects.count()) == (1, 1)


def test_why_and_how_long_are_no_part_of_a_request() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    send(rationale="first", wait=3)
    assert send(rationale="said otherwise").replayed


def test_keys_of_two_tokens_never_meet() -> None:
    script = scripted_tool("one", "two", approval_policy=NEVER)
    first, second = send(), send(actor=NEIGHBOUR, amount=2)
    carry_out(first)
    carry_out(second)
    assert not second.replayed
    assert [call.arguments["amount"] for call in script.calls] == [1, 2]
    # Nor does either see the other's call without the right to read.
    nosy = Actor(name="agent elsewhere", scopes=frozenset({"operations:call:pay"}), token=4712)
    with pytest.raises(NotPermitted):
        look(first, nosy)
    assert look(second, nosy).is_settled


def test_a_key_outlives_its_run_and_is_then_refused() -> None:
    script = scripted_tool("paid", approval_policy=NEVER)
    sent = send()
    carry_out(sent)
    purge(run_of(sent))
    assert GatewayCall.objects.get().run_id is None
    with pytest.raises(KeyForgotten):
        send()
    # What it was for is still told apart.
    with pytest.raises(KeyReused):
        send(amount=2)
    with pytest.raises(UnknownOperation):
        look(sent)
    assert len(script.calls) == 1


def purge(run: AgentRun) -> None:
    """Remove a run as a retention does; evidence is kept by triggers, which look away."""
    tables = [
        "runs_transition",
        "runs_toolobservation",
        "runs_tooloperation",
        "runs_modeldecision",
        "runs_checkpoint",
        "runs_agentrun",
    ]
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    try:
        run.delete()
    finally:
        with connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def test_who_may_call_one_tool_may_not_call_another() -> None:
    scripted_tool(approval_policy=NEVER)
    scripted_tool(name="wipe", approval_policy=NEVER)
    limited = Actor(name="agent", scopes=frozenset({"operations:call:pay"}), token=1)
    with pytest.raises(NotPermitted):
        send("k", "wipe", actor=limited)
    assert nothing_written()
    assert not send(actor=limited).replayed


@pytest.mark.parametrize(
    ("asked", "error", "names"),
    [
        ({"tool": "pai"}, UnknownTool, "pai"),
        ({"arguments": {"amount": "much"}}, InvalidArguments, "amount"),
        ({"arguments": {"amount": 1, "sum": 2}}, InvalidArguments, "sum"),
        ({"arguments": [1]}, InvalidInput, "arguments"),
        ({"arguments": {"amount": float("nan")}}, InvalidInput, "arguments"),
        ({"arguments": {"amount": 1, "note": "\x00"}}, InvalidInput, "arguments"),
        ({"key": ""}, InvalidInput, "Idempotency-Key"),
        ({"key": "k" * 256}, InvalidInput, "Idempotency-Key"),
        ({"key": "k\x00"}, InvalidInput, "Idempotency-Key"),
        ({"key": "\ud800"}, InvalidInput, "Idempotency-Key"),
        ({"thread": ""}, InvalidInput, "thread"),
        ({"thread": "t" * 201}, InvalidInput, "thread"),
        ({"action": "a" * 300}, InvalidInput, "action"),
        ({"step": -1}, InvalidInput, "step"),
        ({"step": 2**31}, InvalidInput, "step"),
        ({"step": True}, InvalidInput, "step"),
        ({"step": 1}, InvalidInput, "thread or run"),
        ({"action": "refund"}, InvalidInput, "thread or run"),
        ({"rationale": "r" * 100_000}, InvalidInput, "rationale"),
        ({"agent": "nobody"}, UnknownAgent, "nobody"),
        ({"agent": "inner"}, NotExternal, "inner"),
        ({"agent": "narrow"}, UnknownTool, "pay"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_request_that_is_refused_says_why_and_leaves_no_trace(
    asked: dict[str, Any], error: type[Exception], names: str
) -> None:
    script = scripted_tool(approval_policy=NEVER)
    Agent(name="inner", decider=Script(Finish(1)))
    Agent(name="narrow", decider=External(), tools=())
    given = {"tool": "pay", "arguments": {"amount": 1}, "key": "k"} | asked
    with pytest.raises(error) as refused:
        call_operation(actor=ELSEWHERE, asked=Asked(**given))
    said = str(refused.value)
    assert names in said
    assert len(said) < 2000
    assert nothing_written()
    assert script.calls == []


def test_policy_refuses_and_nothing_is_sent() -> None:
    script = scripted_tool(approval_policy=NEVER)
    save_row(name="no pay", tool="pay", outcome="refuse", when="amount > 100")
    sent = send(amount=700)
    assert carry_out(sent).state == "FAILED"
    with pytest.raises(PolicyRefuses, match="no pay"):
        raise_if_unanswerable(look(send(amount=700)))
    assert script.calls == []


def test_a_call_that_fits_its_tool_no_more_is_refused_when_it_is_taken_up() -> None:
    script = scripted_tool(approval_policy=NEVER)
    sent = send()
    GatewayCall.objects.update(arguments={"amount": "no number"})
    carry_out(sent)
    with pytest.raises(CallInvalid, match="amount"):
        raise_if_unanswerable(look(sent))
    assert script.calls == []


def test_a_repeat_is_in_flight_while_the_first_is_answered_and_accepted_after_that() -> None:
    scripted_tool(LOST, approval_policy=NEVER)
    send(wait=60)
    with pytest.raises(CallInFlight):
        raise_if_unanswerable(look_again())
    change("UPDATE runs_gatewaycall SET answer_by = now() - interval '1 s'")
    late = look_again()
    raise_if_unanswerable(late)
    assert (late.operation, late.is_settled) == (None, False)
    carry_out(late.call)
    unknown = look_again()
    raise_if_unanswerable(unknown)
    assert unknown.operation is not None
    assert (unknown.operation.status, unknown.is_settled) == ("UNKNOWN", False)


def look_again() -> Called:
    return call_operation(
        actor=ELSEWHERE, asked=Asked(tool="pay", arguments={"amount": 1}, key="k1"), wait_seconds=0
    )


def test_what_is_sensitive_is_shown_to_nobody() -> None:
    scripted_tool("paid", approval_policy=NEVER, sensitive=("amount",))
    sent = send(amount=1717)
    assert "1717" not in present_call(sent.call).model_dump_json()
    carry_out(sent)
    assert "1717" not in present_operation(operation(sent)).model_dump_json()
    assert "1717" not in str(GatewayCall.objects.values().get())


def test_a_run_that_decides_for_itself_is_not_called_into(start: Any) -> None:
    scripted_tool(approval_policy=NEVER)
    inner = start(decider=Script(Finish(1)))
    with pytest.raises(NotExternal):
        send(run=inner.pk)
    assert not GatewayCall.objects.exists()


def test_every_edge_of_a_call_stands_in_the_journal() -> None:
    scripted_tool("paid", approval_policy=NEVER)
    run = carry_out(send())
    assert run_edges(run) == [
        "CREATE",
        "OPEN_STEP",
        "RECORD_DECISION",
        "PREPARE",
        "SEND",
        "COMMIT",
        "CLOSE_STEP",
        "OPEN_STEP",
        "RECORD_DECISION",
        "COMPLETE",
    ]
    assert ToolOperation.objects.count() == 1


def test_conditions_of_the_gateway_carry_what_to_do() -> None:
    """Every error of this family names a field, a value and a fix, as problem+json shows them."""
    for error in (KeyForgotten(), CallInFlight(operation_id="op_1")):
        assert isinstance(error, RunsError)
        assert error.field
        assert error.value
        assert error.fix
