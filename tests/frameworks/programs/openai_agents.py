"""Two agents of the OpenAI Agents SDK with its SQLite session: the how-to page's, and the same one
with a tool that nobody guards."""

import asyncio
import sys
from typing import Any

from agents import function_tool, set_tracing_disabled
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext

from tests.frameworks.programs import task
from tests.frameworks.programs.pages import module_of


def llm() -> ScriptedModel:
    step = ModelStep.respond(answer)
    return ScriptedModel([step] * (len(task.ANSWERS) + 1))


def answer(call: ModelCall) -> list[Any]:
    calls = sum(one.get("type") == "function_call" for one in call.input)
    wanted = task.answer(task.turns_of(calls))
    made = [function_call(one.name, one.arguments, call_id=one.id) for one in wanted]
    return made or [assistant_message(task.LAST_WORDS)]


@function_tool(name_override="refund_customer")
async def refund_by_hand(ctx: ToolContext[Any], order_id: str, amount: str) -> dict[str, Any]:
    """Refund a customer's order, in full or in part."""
    return await asyncio.to_thread(task.refund_by_hand, order_id, amount, key=ctx.tool_call_id)


async def work(job: str, *, by_hand: bool) -> str:
    page = module_of("use-from-openai-agents")
    tools = [refund_by_hand if by_hand else page.refund_customer]
    page.__dict__["support"] = page.support.clone(model=llm(), tools=tools)
    said: str = await page.work(job, task.OBJECTIVE)
    return said


async def main() -> None:
    set_tracing_disabled(True)
    _, job = sys.argv
    said = await asyncio.gather(work(f"{job}-by-hand", by_hand=True), work(job, by_hand=False))
    print(*said)


if __name__ == "__main__":
    asyncio.run(main())
