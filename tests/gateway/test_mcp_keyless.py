"""A call without a key is named by what it intends: made once, and told so when it comes again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runs.access import CALL_EVERY_TOOL
from runs.models import GatewayCall
from tests.database.kit import change
from tests.gateway import mcp_client
from tests.gateway.conftest import Call, Gateway
from tests.gateway.provider import StoreProvider
from tests.gateway.test_mcp_tools import settle


def test_the_same_call_again_is_answered_with_what_is_recorded(
    call: Call, gateway: Gateway, provider: StoreProvider
) -> None:
    first = call("refund_customer", order_id="1", amount="5.0").structured_content
    again = call("refund_customer", order_id="1", amount="5.0", url=gateway.two).structured_content
    spelled = call(
        "refund_customer", order_id="1", amount="5.00", url=gateway.two
    ).structured_content
    for said in (again, spelled):
        assert said["operation_id"] == first["operation_id"]
        assert (said["status"], said["replayed"]) == ("COMMITTED", True)
        assert said["result"] == first["result"]
        assert "new idempotency_key" in said["next"]
        assert "recorded_arguments" not in said
    assert provider.effects == {("refund", "1"): 1}


def test_many_at_once_through_two_processes_are_one_effect(
    gateway: Gateway, new_token: Any, provider: StoreProvider
) -> None:
    token = new_token()

    def call_one(number: int) -> Any:
        url = (gateway.one, gateway.two)[number % 2]
        return mcp_client.call(
            url, token, "refund_customer", order_id="1", amount="5"
        ).structured_content

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(call_one, range(16)))
    assert {one["status"] for one in said} == {"COMMITTED"}
    assert len({one["operation_id"] for one in said}) == 1
    assert sum("replayed" not in one for one in said) == 1
    assert provider.effects == {("refund", "1"): 1}


def test_a_new_key_does_it_again(call: Call, provider: StoreProvider) -> None:
    call("refund_customer", order_id="1", amount="5")
    said = call(
        "refund_customer", order_id="1", amount="5", idempotency_key="again"
    ).structured_content
    assert "replayed" not in said
    assert provider.effects == {("refund", "1"): 2}


def test_the_same_intent_with_other_arguments_is_told_what_was_done_instead(
    call: Call, provider: StoreProvider
) -> None:
    first = call("refund_customer", order_id="1", amount="5").structured_content
    answer = call("refund_customer", order_id="1", amount="7")
    said = answer.structured_content
    assert not answer.is_error
    assert said["operation_id"] == first["operation_id"]
    assert said["recorded_arguments"]["amount"] == "5"
    assert "same order_id" in said["next"]
    assert provider.effects == {("refund", "1"): 1}


def test_a_tool_that_refuses_repeats_refuses_one_with_other_arguments(
    call: Call, provider: StoreProvider
) -> None:
    first = call("void", order_id="1", reason="broken")
    answer = call("void", order_id="1", reason="late")
    assert (first.is_error, answer.is_error) == (False, True)
    assert answer.structured_content["recorded_arguments"]["reason"] == "broken"
    # The very same is a repetition, and no second wish.
    assert not call("void", order_id="1", reason="broken").is_error
    assert provider.effects == {("void", "1"): 1}


def test_a_tool_without_an_intent_is_named_by_all_its_arguments(
    call: Call, provider: StoreProvider
) -> None:
    for text in ("one", "two", "one"):
        call("post_letter", to="ann", text=text)
    assert provider.effects == {("letter", "ann"): 2}


def test_what_came_to_nothing_may_be_asked_for_anew(call: Call, provider: StoreProvider) -> None:
    refused = [
        call("refund_customer", order_id="bad-1", amount="5").structured_content for _ in range(2)
    ]
    assert {one["status"] for one in refused} == {"REJECTED"}
    assert len({one["operation_id"] for one in refused}) == 2
    provider.is_broken = False
    made = [
        call("refund_customer", order_id="bad-1", amount="5").structured_content for _ in range(2)
    ]
    assert {one["status"] for one in made} == {"COMMITTED"}
    assert len({one["operation_id"] for one in made}) == 1
    assert provider.effects == {("refund", "bad-1"): 1}


def test_what_a_person_refused_is_not_asked_again_with_the_same_arguments(call: Call) -> None:
    held = call("refund_customer", order_id="1", amount="900").structured_content
    settle(held, "deny")
    answer = call("refund_customer", order_id="1", amount="900.0")
    said = answer.structured_content
    assert answer.is_error
    assert (said["operation_id"], said["never_sent"]) == (held["operation_id"], "denied")
    assert "A person refused" in said["next"]
    less = call("refund_customer", order_id="1", amount="800").structured_content
    assert (less["status"], less["operation_id"] != said["operation_id"]) == (
        "AWAITING_APPROVAL",
        True,
    )


def test_reads_and_repeatable_tools_are_called_each_time(
    call: Call, provider: StoreProvider
) -> None:
    for _ in range(2):
        call("look_up_order", order_id="1")
        call("ring", order_id="1")
    assert provider.effects == {("look_up", "1"): 2, ("ring", "1"): 2}


def test_each_token_and_each_thread_has_intents_of_its_own(
    call: Call, new_token: Any, provider: StoreProvider
) -> None:
    call("refund_customer", order_id="1", amount="5")
    call("refund_customer", order_id="1", amount="5", token=new_token(CALL_EVERY_TOOL))
    for thread in ("a", "b", "a"):
        call("refund_customer", order_id="1", amount="5", meta={"thread": thread})
    assert provider.effects == {("refund", "1"): 4}


def test_a_global_intent_is_carried_out_once_for_all_tokens(
    call: Call, new_token: Any, provider: StoreProvider
) -> None:
    first = call("archive", order_id="1", reason="old").structured_content
    mine = call("archive", order_id="1", reason="older").structured_content
    theirs = call("archive", order_id="1", reason="old", token=new_token()).structured_content
    for said in (mine, theirs):
        assert (said["status"], said["repeats"]) == ("COMMITTED", first["operation_id"])
        assert said["result"] == first["result"]
    assert provider.effects == {("archive", "1"): 1}


def test_in_a_thread_the_runtime_answers_another_call_with_the_same_intent(
    call: Call, provider: StoreProvider
) -> None:
    first = call(
        "refund_customer", order_id="1", amount="5", meta={"thread": "a"}
    ).structured_content
    said = call(
        "refund_customer", order_id="1", amount="7", meta={"thread": "a"}
    ).structured_content
    assert said["operation_id"] != first["operation_id"]
    assert (said["status"], said["repeats"]) == ("COMMITTED", first["operation_id"])
    assert said["result"] == first["result"]
    assert said["replayed"] is True
    refused = call("void", order_id="1", reason="a", meta={"thread": "a"})
    assert not refused.is_error
    refused = call("void", order_id="1", reason="b", meta={"thread": "a"})
    assert refused.is_error
    assert provider.effects == {("refund", "1"): 1, ("void", "1"): 1}


def test_a_call_whose_record_is_gone_is_refused(call: Call, provider: StoreProvider) -> None:
    call("refund_customer", order_id="1", amount="5")
    call("refund_customer", order_id="bad-1", amount="5")
    change("UPDATE runs_gatewaycall SET run_id = NULL")
    provider.is_broken = False
    for order in ("1", "bad-1"):
        answer = call("refund_customer", order_id=order, amount="5")
        assert answer.structured_content["problem"]["type"] == "urn:agentops:problem:key-forgotten"
    assert provider.effects == {("refund", "1"): 1}


def test_what_is_purged_is_said_to_be_and_not_done_again(
    call: Call, provider: StoreProvider
) -> None:
    said = call("refund_customer", order_id="1", amount="5").structured_content
    row = GatewayCall.objects.filter(operation_id=said["operation_id"])
    row.update(run_id=None, operation_id="op_gone", arguments=None)
    answer = call("refund_customer", order_id="1", amount="5")
    problem = answer.structured_content["problem"]
    assert answer.is_error
    assert (problem["status"], problem["field"]) == (410, "idempotency_key")
    assert "Find out at the provider" in problem["fix"]
    assert provider.effects == {("refund", "1"): 1}


def test_what_was_dropped_with_its_run_may_be_asked_for_anew(
    call: Call, provider: StoreProvider
) -> None:
    said = call("refund_customer", order_id="1", amount="5").structured_content
    # As if its run had ended before it took the call up: there is no such operation.
    GatewayCall.objects.filter(operation_id=said["operation_id"]).update(operation_id="op_never")
    anew = call("refund_customer", order_id="1", amount="5").structured_content
    assert (anew["status"], anew["operation_id"] != said["operation_id"]) == ("COMMITTED", True)


def test_a_step_of_no_thread_is_refused_by_its_name(call: Call, provider: StoreProvider) -> None:
    answers = [
        call("post_letter", to="ann", meta={"step": step, "action": "post"}) for step in (1, 2)
    ]
    assert {one.structured_content["problem"]["field"] for one in answers} == {"action"}
    assert provider.effects == {}
