"""What a call of a Pydantic AI agent is named by: the same when it goes on, another otherwise."""

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agentops.client import AsyncClient, Client, NoPlace, StillPending
from agentops.client.pydantic_ai import delegated, guarded
from tests.frameworks.conftest import Shop

pytestmark = pytest.mark.django_db
Refunds = Callable[[], list[str]]
PART = {"order_id": "18", "amount": "5.00"}


def refund_customer(order_id: str, amount: str) -> dict[str, Any]:
    """Refund a customer's order."""
    raise AssertionError("the gateway carries it out")


def agent_of(
    client: Client | AsyncClient,
    script: Callable[[int], Sequence[dict[str, str]]],
    **options: Any,
) -> Agent[None, str]:
    """Answers by how often it has answered before in the messages."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        wanted = script(sum(isinstance(one, ModelResponse) for one in messages))
        if not wanted:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[
                ToolCallPart("refund_customer", one, tool_call_id=f"call_{secrets.token_hex(6)}")
                for one in wanted
            ]
        )

    return Agent(
        FunctionModel(answer), tools=[guarded(client, **options)(refund_customer)], retries=0
    )


def run(agent: Agent[None, str], prompt: str | None, **options: Any) -> Any:
    return asyncio.run(agent.run(prompt, **options))


def returned(messages: Sequence[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def test_each_call_of_a_conversation_is_one_of_its_own(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART, PART], [PART], [])[turn % 3])
    first = run(agent, "refund it in parts", conversation_id=thread_id)
    assert refunds() == ["5.00"] * 3
    run(agent, "once more, the same", message_history=first.all_messages())
    assert refunds() == ["5.00"] * 6


def test_an_agent_that_goes_on_from_its_messages_is_told_what_it_did(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART], [PART], [])[turn])
    done = run(agent, "refund it", conversation_id=thread_id).all_messages()
    asked = ModelMessagesTypeAdapter.dump_json(done[:2])  # the prompt, and the llm's first answer
    again = run(agent, None, message_history=ModelMessagesTypeAdapter.validate_json(asked))
    assert refunds() == ["5.00", "5.00"]
    assert returned(again.all_messages()) == returned(done)


def test_an_agent_that_begins_anew_is_told_what_it_did(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART, PART], [])[turn])
    first = run(agent, "refund it", conversation_id=thread_id)
    again = run(agent, "refund it", conversation_id=thread_id)
    assert refunds() == ["5.00", "5.00"]
    assert returned(again.all_messages()) == returned(first.all_messages())


def test_a_decision_that_was_lost_and_made_anew_is_not_carried_out_beside_the_first(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    run(agent_of(client, lambda turn: ([PART], [])[turn]), "x", conversation_id=thread_id)
    other = agent_of(client, lambda turn: ([PART | {"amount": "9.00"}], [])[turn])
    (said,) = returned(run(other, "x", conversation_id=thread_id).all_messages())
    assert refunds() == ["5.00"]
    assert json.loads(said["arguments"]) == PART
    assert said["result"]["amount"] == "5.00"


def test_a_history_that_is_cut_is_counted_by_turns(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    newest: list[str] = []
    agent = agent_of(client, lambda turn: ([PART], [])[turn], turn=lambda ctx: newest[-1])
    for turn in ("message-1", "message-2", "message-2"):
        newest.append(turn)
        run(agent, "the same words", conversation_id=thread_id)
    assert refunds() == ["5.00", "5.00"]


def test_a_call_that_waits_for_a_signature_is_told_or_raised(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    def script(turn: int) -> Sequence[dict[str, str]]:
        return ([{"order_id": "20", "amount": "600.00"}], [])[turn]

    told = run(agent_of(client, script), "x", conversation_id=thread_id)
    (said,) = returned(told.all_messages())
    assert said["status"] == "AWAITING_APPROVAL"
    assert said["operation_id"].startswith("op_")
    with pytest.raises(StillPending, match="signature"):
        run(agent_of(client, script, held="raise"), "x", conversation_id=thread_id)
    assert refunds() == []


def test_a_conversation_that_was_given_no_name_is_refused(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([], [PART], [])[turn])
    first = run(agent, "hello")
    with pytest.raises(NoPlace, match="no name"):
        run(agent_of(client, lambda turn: [PART]), "refund it")
    assert refunds() == []
    # One that was kept with the messages is as good as one that was given.
    for _ in range(2):
        run(agent, "refund it", message_history=first.all_messages())
    assert refunds() == ["5.00"]


def test_a_conversation_that_begins_again_with_another_prompt_is_refused(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART], [])[turn])
    run(agent, "refund it", conversation_id=thread_id)
    with pytest.raises(NoPlace, match="another prompt"):
        run(agent, "and refund that", conversation_id=thread_id)
    assert refunds() == ["5.00"]


def test_an_agent_within_an_agent_is_named_by_the_call_that_runs_it(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    """Two delegations of the same words are two, and are the same two when the job begins anew."""
    child = agent_of(client, lambda turn: ([PART], [])[turn])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked = [ToolCallPart("delegate", {"task": "refund a part"}) for _ in range(2)]
        is_first = not any(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse(parts=asked if is_first else [TextPart("done")])

    parent = Agent(FunctionModel(answer))

    @parent.tool
    async def delegate(ctx: RunContext[None], task: str) -> str:
        with delegated(ctx):
            return (await child.run(task)).output

    @parent.tool
    async def delegate_twice(ctx: RunContext[None], task: str) -> str:
        with delegated(ctx):
            await child.run(task)
            return (await child.run(task)).output

    for _ in range(2):
        run(parent, "refund it", conversation_id=thread_id)
    assert refunds() == ["5.00", "5.00"]
    asked = ModelResponse(parts=[ToolCallPart("delegate_twice", {"task": "refund a part"})])
    with parent.override(model=FunctionModel(lambda *_: asked)), pytest.raises(NoPlace):
        run(parent, "refund it", conversation_id=f"{thread_id}-2")
    assert refunds() == ["5.00"] * 3


async def _run(shop: Shop, thread_id: str) -> list[Any]:
    async with AsyncClient(shop.url, shop.token) as client:
        agent = agent_of(client, lambda turn: ([PART, PART], [])[turn])
        return returned((await agent.run("x", conversation_id=thread_id)).all_messages())


def test_an_async_client_does_the_same(shop: Shop, refunds: Refunds, thread_id: str) -> None:
    assert asyncio.run(_run(shop, thread_id)) == asyncio.run(_run(shop, thread_id))
    assert refunds() == ["5.00", "5.00"]
