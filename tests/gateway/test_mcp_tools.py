"""The official MCP client calls tools, and is told what came of it in a form to act on."""

from typing import Any

import pytest
from mcp import MCPError

from agentops.mcp.listing import name_of_look
from agentops.mcp.server import _instructions
from agentops.models import AuditEntry
from runs.access import operator
from runs.engine import advance
from runs.models import Approval, GatewayCall, ToolOperation
from runs.resolution import resolve_operation
from tests.database.approving import person, say
from tests.gateway.conftest import Call, Gateway
from tests.gateway.mcp_client import ERAS, tools
from tests.gateway.provider import StoreProvider
from tools import EffectType, tool
from tools.registry import isolated_registry


@pytest.mark.parametrize("era", ERAS)
def test_a_call_is_one_effect_and_its_answer_has_the_result(
    call: Call, provider: StoreProvider, era: str
) -> None:
    answer = call("refund_customer", order_id="1", amount="5", era=era)
    said = answer.structured_content
    assert not answer.is_error
    assert said["status"] == "COMMITTED"
    assert said["result"] == {"effect": 1, "external_ref": "refund:1:1"}
    assert said["external_ref"] == "refund:1:1"
    assert "replayed" not in said
    assert ToolOperation.objects.get().id == said["operation_id"]
    assert '"COMMITTED"' in answer.content[0].text
    assert provider.effects == {("refund", "1"): 1}


@pytest.mark.parametrize("era", ERAS)
def test_a_token_is_shown_what_it_may_call(gateway: Gateway, new_token: Any, era: str) -> None:
    few = new_token("operations:call:refund_customer", "operations:call:look_up_order")
    assert set(tools(gateway.one, few, era=era)) == {
        "refund_customer",
        "look_up_order",
        "get_operation",
    }
    assert set(tools(gateway.one, new_token("read"), era=era)) == {"get_operation"}
    shown = tools(gateway.one, new_token(), era=era)
    assert "read_result" not in shown
    assert {"void", "post_letter", "ring", "relay", "read_report"} < set(shown)


def test_a_tool_is_described_as_it_is_declared(gateway: Gateway, new_token: Any) -> None:
    shown = tools(gateway.one, new_token())
    refund = shown["refund_customer"]
    assert refund.title == "Refund customer"
    assert refund.description == "Refund an order.\n\nThe customer hears of it."
    assert refund.input_schema["required"] == ["order_id", "amount"]
    assert set(refund.input_schema["properties"]) == {
        "order_id",
        "amount",
        "card",
        "idempotency_key",
    }
    hints = {
        name: (
            tool.annotations.read_only_hint,
            tool.annotations.destructive_hint,
            tool.annotations.idempotent_hint,
        )
        for name, tool in shown.items()
        if tool.annotations is not None
    }
    assert hints["look_up_order"] == (True, False, True)
    assert hints["refund_customer"] == (False, True, True)
    assert hints["ring"] == (False, True, False)
    # Its own argument of that name is not taken from it, and reads need no key.
    assert shown["relay"].input_schema["properties"]["idempotency_key"] == {"type": "string"}
    assert "idempotency_key" not in shown["look_up_order"].input_schema["properties"]


def test_what_the_provider_refuses_is_an_error_with_its_reason(call: Call) -> None:
    answer = call("refund_customer", order_id="bad-1", amount="5")
    assert answer.is_error
    assert answer.structured_content["status"] == "REJECTED"
    assert "the order is closed" in answer.structured_content["error"]
    assert "nothing happened" in answer.structured_content["next"]


def test_bad_arguments_are_said_to_the_llm_and_leave_nothing(call: Call) -> None:
    answer = call("refund_customer", order_id="1", amount="many")
    assert answer.is_error
    assert answer.structured_content["status"] == "REFUSED"
    problem = answer.structured_content["problem"]
    assert (problem["field"], problem["status"]) == ("amount", 400)
    assert problem["fix"]
    answer = call("refund_customer", order_id="1", amount="5", colour="red")
    assert answer.structured_content["problem"]["field"] == "colour"
    assert not GatewayCall.objects.exists()


def test_a_tool_that_is_not_there_or_not_allowed_is_refused(call: Call, new_token: Any) -> None:
    with pytest.raises(MCPError, match="refunt"):
        call("refunt", order_id="1")
    answer = call(
        "refund_customer", order_id="1", amount="5", token=new_token("operations:call:void")
    )
    assert answer.is_error
    assert answer.structured_content["problem"]["status"] == 403
    # Nor is it told which tools there are besides.
    answer = call("refunt", order_id="1", token=new_token("operations:call:void"))
    assert answer.structured_content["problem"]["status"] == 403
    assert not GatewayCall.objects.exists()


def test_calls_are_in_the_audit_and_so_is_what_was_refused(call: Call) -> None:
    call("refund_customer", order_id="1", amount="5")
    call("refund_customer", order_id="1", amount="5")
    call("refund_customer", order_id="1", amount="many")
    call("get_operation", operation_id="none")
    noted = AuditEntry.objects.order_by("id").values_list("door", "status", "reason")
    assert list(noted) == [("mcp", None, ""), ("mcp", 400, "invalid-arguments")]
    assert all("refund" in entry.action for entry in AuditEntry.objects.all())


def test_a_call_that_needs_a_signature_is_found_again_once_it_is_signed(
    call: Call, provider: StoreProvider
) -> None:
    held = call("refund_customer", order_id="1", amount="900")
    said = held.structured_content
    assert not held.is_error
    assert said["status"] == "AWAITING_APPROVAL"
    assert "get_operation" in said["next"]
    again = call("refund_customer", order_id="1", amount="900").structured_content
    assert (again["operation_id"], again["status"]) == (said["operation_id"], said["status"])
    assert not provider.effects
    settle(said, "approve")
    seen = call("get_operation", operation_id=said["operation_id"], wait_seconds=20)
    assert seen.structured_content["status"] == "COMMITTED"
    assert seen.structured_content["result"]["effect"] == 1
    assert provider.effects == {("refund", "1"): 1}


def test_an_unknown_call_says_that_it_is_not_to_be_repeated(
    call: Call, provider: StoreProvider
) -> None:
    lost = call("post_letter", to="lost-1")
    said = lost.structured_content
    assert not lost.is_error
    assert said["status"] == "UNKNOWN"
    assert "Do not call it again" in said["next"]
    assert call("post_letter", to="lost-1").structured_content["status"] == "UNKNOWN"
    assert provider.effects == {("letter", "lost-1"): 1}
    resolve_operation(
        actor=operator(),
        operation_id=said["operation_id"],
        outcome="committed",
        evidence="it is on the post office's list",
        external_ref="letter-1",
    )
    seen = call("get_operation", operation_id=said["operation_id"]).structured_content
    assert (seen["status"], seen["external_ref"]) == ("COMMITTED", "letter-1")


def test_a_look_shows_a_failed_call_and_is_no_failure_itself(call: Call) -> None:
    made = call("refund_customer", order_id="bad-1", amount="5").structured_content
    seen = call("get_operation", operation_id=made["operation_id"])
    assert not seen.is_error
    assert seen.structured_content["status"] == "REJECTED"


def test_a_look_at_somebody_elses_call_needs_the_scope_to_read(call: Call, new_token: Any) -> None:
    made = call("refund_customer", order_id="1", amount="5").structured_content
    stranger, reader = new_token(), new_token("read")
    seen = call("get_operation", operation_id=made["operation_id"], token=stranger)
    assert seen.structured_content["problem"]["status"] == 403
    seen = call("get_operation", operation_id=made["operation_id"], token=reader)
    assert seen.structured_content["status"] == "COMMITTED"
    seen = call("get_operation", operation_id="none", token=reader)
    assert seen.structured_content["problem"]["status"] == 404


def test_a_key_is_read_from_meta_or_from_the_argument(call: Call, provider: StoreProvider) -> None:
    first = call("ring", order_id="1", meta={"idempotencyKey": "k1"}).structured_content
    again = call("ring", order_id="1", idempotency_key="k1").structured_content
    assert again["operation_id"] == first["operation_id"]
    assert again["replayed"] is True
    other = call("ring", order_id="1", idempotency_key="k2").structured_content
    assert other["operation_id"] != first["operation_id"]
    assert provider.effects == {("ring", "1"): 2}
    reused = call("ring", order_id="2", idempotency_key="k1")
    assert reused.is_error
    assert reused.structured_content["problem"]["type"] == "urn:agentops:problem:key-reused"
    assert reused.structured_content["problem"]["field"] == "idempotency_key"
    both = call("ring", order_id="1", idempotency_key="k1", meta={"idempotencyKey": "k2"})
    assert both.structured_content["problem"]["field"] == "idempotency_key"
    assert provider.effects == {("ring", "1"): 2}


def test_an_argument_of_the_tools_own_is_no_key(call: Call, provider: StoreProvider) -> None:
    for own in ("a", "b"):
        call("relay", order_id="1", idempotency_key=own)
    assert provider.effects == {("relay", "1"): 2}
    for _ in range(2):
        call("relay", order_id="2", idempotency_key="a", meta={"idempotencyKey": "k"})
    assert provider.effects["relay", "2"] == 1


def test_calls_of_a_thread_are_one_run_and_an_action_is_one_call(
    call: Call, provider: StoreProvider
) -> None:
    where = {"thread": "talk 1", "step": 3, "action": "bell"}
    first = call("ring", order_id="1", meta={**where, "idempotencyKey": "k1"}).structured_content
    again = call("ring", order_id="1", meta={**where, "idempotencyKey": "k2"}).structured_content
    unkeyed = call("ring", order_id="1", meta=where).structured_content
    assert first["operation_id"] == again["operation_id"] == unkeyed["operation_id"]
    assert provider.effects == {("ring", "1"): 1}
    other = call("ring", order_id="1", meta={"thread": "talk 1"}).structured_content
    assert (other["run"], other["operation_id"] != first["operation_id"]) == (first["run"], True)
    wrong = call("ring", order_id="1", meta={"thread": 7}).structured_content
    assert wrong["problem"]["field"] == "_meta.thread"


def test_a_long_result_is_cut_in_the_text_alone(call: Call) -> None:
    answer = call("read_report", size=50_000)
    assert len(answer.structured_content["result"]) == 50_000
    text = answer.content[0].text
    assert len(text) < 21_000
    assert answer.structured_content["operation_id"] in text
    assert "[cut: 50" in text


def test_what_is_sensitive_is_hidden(call: Call) -> None:
    secret = "4111-1111-1111-1111"
    call("refund_customer", order_id="1", amount="5", card=secret)
    told = call("refund_customer", order_id="1", amount="6", card=secret)
    assert told.structured_content["recorded_arguments"]["card"] == "[redacted]"
    assert secret not in told.model_dump_json()


def test_our_look_has_another_name_where_an_app_has_taken_it() -> None:
    assert "look later with get_operation." in _instructions()
    with isolated_registry():

        @tool(effect_type=EffectType.READ)
        def get_operation(patient: str) -> str:
            """What a surgeon did."""
            return patient

        assert name_of_look() == "agentops_get_operation"
        assert "look later with agentops_get_operation." in _instructions()


def settle(said: dict[str, Any], verdict: str) -> None:
    """A person's word on a held call, and what a worker does about it."""
    say(Approval.objects.get(id=said["approval"]), person(), verdict)
    advance(run_id=said["run"], owner="worker 1")
