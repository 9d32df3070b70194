"""Two LangGraph agents with the framework's Postgres checkpointer: the how-to page's, and the
same one with a tool that nobody guards."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.postgres import PostgresSaver

from tests.frameworks.programs import task
from tests.frameworks.programs.pages import module_of


class Llm(BaseChatModel):
    """Answers as the task's script says."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Llm":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turns = sum(isinstance(one, AIMessage) for one in messages)
        wanted = task.answer(turns)
        calls = [ToolCall(name=one.name, args=one.arguments, id=one.id) for one in wanted]
        said = AIMessage("" if calls else task.LAST_WORDS, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool("refund_customer")
def refund_by_hand(
    order_id: str, amount: str, call_id: Annotated[str, InjectedToolCallId]
) -> dict[str, Any]:
    """Refund a customer's order, in full or in part."""
    return task.refund_by_hand(order_id, amount, key=call_id)


def work(job: str, *, by_hand: bool) -> str:
    page = module_of("use-from-langgraph")
    if by_hand:
        page.__dict__["refund_customer"] = refund_by_hand
    said: str = page.work(Llm(), job, task.OBJECTIVE)
    return said


if __name__ == "__main__":
    # The tables are made once, not by two threads at a time.
    with PostgresSaver.from_conn_string(os.environ["STATE_DATABASE_URL"]) as saver:
        saver.setup()
    _, job = sys.argv
    with ThreadPoolExecutor() as threads:
        bare = threads.submit(work, f"{job}-by-hand", by_hand=True)
        guarded = threads.submit(work, job, by_hand=False)
        print(bare.result(), guarded.result())
