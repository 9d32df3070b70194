"""What a call of an agent of the OpenAI SDK is named by: the same when it goes on."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    function_tool,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic import BaseModel

from agentops.client import Client
from agentops.client.openai_agents import Turns, guarded
from tests.frameworks.conftest import Shop

pytestmark = pytest.mark.django_db
Refunds = Callable[[], list[str]]
PART = {"order_id": "18", "amount": "5.00"}
UNTRACED = RunConfig(tracing_disabled=True)


def refund_customer(order_id: str, amount: str) -> dict[str, Any]:
    """Refund a customer's order."""
    raise AssertionError("the gateway carries it out")


class Task(BaseModel):
    order_id: str
    amount: str


class Llm(Model):
    """Answers by how often it has answered before in what it is sent."""

    def __init__(self, script: Callable[[int], Sequence[dict[str, str]]]) -> None:
        self._script = script

    async def get_response(
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> ModelResponse:
        items = [] if isinstance(input, str) else input
        answered, calls = 0, False
        for item in items:
            was, calls = calls, item.get("type") == "function_call"
            answered += (calls and not was) or item.get("role") == "assistant"
        wanted = self._script(answered)
        output: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{secrets.token_hex(6)}",
                name="refund_customer",
                arguments=json.dumps(one),
            )
            for one in wanted
        ]
        if not wanted:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = [
                ResponseOutputMessage(
                    id=f"msg_{secrets.token_hex(6)}",
                    type="message",
                    role="assistant",
                    status="completed",
                    content=[text],
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def agent_of(
    client: Client,
    script: Callable[[int], Sequence[dict[str, str]]],
    *,
    asks: bool = False,
) -> Agent[Any]:
    made = function_tool(refund_customer, needs_approval=asks)
    return Agent(name="support", model=Llm(script), tools=[guarded(client)(made)])


def run(agent: Agent[Any], given: Any, *, hooks: Turns | None, session: Any = None) -> Any:
    return asyncio.run(Runner.run(agent, given, session=session, hooks=hooks, run_config=UNTRACED))


def returned(result: Any) -> list[Any]:
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def test_each_call_of_a_session_is_one_of_its_own(
    client: Client, refunds: Refunds, thread_id: str, tmp_path: Path
) -> None:
    session = SQLiteSession(thread_id, tmp_path / "session.sqlite3")
    agent = agent_of(client, lambda turn: ([PART, PART], [PART], [])[turn % 3])
    run(agent, "refund it in parts", hooks=Turns(thread_id), session=session)
    assert refunds() == ["5.00"] * 3
    run(agent, "once more, the same", hooks=Turns(thread_id), session=session)
    assert refunds() == ["5.00"] * 6
    session.close()


def test_a_session_whose_newest_turn_was_lost_is_told_what_was_done(
    client: Client, refunds: Refunds, thread_id: str, tmp_path: Path
) -> None:
    session = SQLiteSession(thread_id, tmp_path / "session.sqlite3")
    agent = agent_of(client, lambda turn: ([PART, PART], [PART, PART], [])[turn])
    done = run(agent, "refund it in parts", hooks=Turns(thread_id), session=session)
    kept = asyncio.run(session.get_items())
    asyncio.run(session.clear_session())
    # The prompt, the first answer, and what came of it; the second turn was not kept.
    asyncio.run(session.add_items(kept[:5]))
    again = run(agent, "refund it in parts", hooks=Turns(thread_id), session=session)
    assert returned(again) == returned(done)[2:]
    assert refunds() == ["5.00"] * 4
    session.close()


def test_a_run_that_begins_anew_is_told_what_it_did(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART] * 3, [])[turn])
    first, again = (run(agent, "refund it", hooks=Turns(thread_id)) for _ in range(2))
    assert returned(first) == returned(again)
    assert refunds() == ["5.00"] * 3


def test_a_run_goes_on_from_its_state_as_often_as_it_has_to(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART], [PART], [])[turn], asks=True)
    result = run(agent, "refund it", hooks=Turns(thread_id))
    for done in (1, 2):
        kept = result.to_state().to_string()
        for _ in range(2):
            state = asyncio.run(RunState.from_string(agent, kept))
            for asked in state.get_interruptions():
                state.approve(asked)
            result = run(agent, state, hooks=Turns(thread_id, state=state))
        assert refunds() == ["5.00"] * done
    assert result.final_output == "done"


def test_a_turn_that_is_named_is_counted_from_there(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART], [])[turn])
    for turn in ("message-1", "message-2", "message-2"):
        run(agent, "the same words", hooks=Turns(thread_id, turn=turn))
    assert refunds() == ["5.00", "5.00"]


def test_an_agent_that_is_a_tool_has_no_name_for_its_calls(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    inner = agent_of(client, lambda turn: [PART])
    tool = inner.as_tool(
        tool_name="refund_customer",
        tool_description="Refund it.",
        parameters=Task,
        hooks=Turns(thread_id),
        failure_error_function=None,
    )
    asked = Llm(lambda turn: [{"order_id": "18", "amount": "5.00"}])
    outer: Agent[Any] = Agent(name="outer", model=asked, tools=[tool])
    with pytest.raises(Exception, match="is a tool"):
        run(outer, "refund it", hooks=Turns(f"{thread_id}-outer"))
    assert refunds() == []


def test_a_thread_that_begins_again_with_other_words_is_refused(
    client: Client, refunds: Refunds, thread_id: str
) -> None:
    agent = agent_of(client, lambda turn: ([PART], [])[turn])
    turns = Turns(thread_id)
    run(agent, "refund it", hooks=turns)
    with pytest.raises(Exception, match="another prompt"):
        run(agent, "and refund that", hooks=Turns(thread_id))
    with pytest.raises(Exception, match="second run"):
        run(agent, "refund it", hooks=turns)
    assert refunds() == ["5.00"]


def test_a_run_without_turns_cannot_call(client: Client, refunds: Refunds, shop: Shop) -> None:
    with pytest.raises(Exception, match=r"hooks=Turns"):
        run(agent_of(client, lambda turn: [PART]), "refund it", hooks=None)
    assert refunds() == []
