"""Two Pydantic AI agents that keep their messages: the how-to page's, and the same one with a tool
that nobody guards."""

import asyncio
import sys
from typing import Any

from pydantic_ai import RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.frameworks.programs import task
from tests.frameworks.programs.pages import module_of


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    wanted = task.answer(sum(isinstance(one, ModelResponse) for one in messages))
    calls = [ToolCallPart(one.name, one.arguments, tool_call_id=one.id) for one in wanted]
    return ModelResponse(parts=[*calls] if calls else [TextPart(task.LAST_WORDS)])


async def refund_by_hand(ctx: RunContext[Any], order_id: str, amount: str) -> dict[str, Any]:
    """Refund a customer's order, in full or in part."""
    key = ctx.tool_call_id or ""
    return await asyncio.to_thread(task.refund_by_hand, order_id, amount, key=key)


async def work(job: str, *, by_hand: bool) -> str:
    page = module_of("use-from-pydantic-ai")
    tools = [Tool(refund_by_hand, name="refund_customer") if by_hand else page.refund_customer]
    with page.support.override(model=FunctionModel(answer), tools=tools):
        said: str = await page.work(job, task.OBJECTIVE)
    return said


async def main() -> None:
    _, job = sys.argv
    said = await asyncio.gather(work(f"{job}-by-hand", by_hand=True), work(job, by_hand=False))
    print(*said)


if __name__ == "__main__":
    asyncio.run(main())
