"""Graphs whose llm is a script."""

import secrets
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph

with warnings.catch_warnings():
    # Importing it warns of a name of its own that moved.
    warnings.simplefilter("ignore")
    from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

__all__ = ["Llm", "ToolNode", "create_react_agent", "react"]

Answer = Sequence[dict[str, str]]


class Llm(BaseChatModel):
    """Answers by how often it has answered before in the thread; every call has a new id."""

    script: Callable[[int], Answer]
    one_id: bool = False

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        wanted = self.script(sum(isinstance(one, AIMessage) for one in messages))
        calls = [
            ToolCall(
                name="refund_customer",
                args=one,
                id="call_1" if self.one_id else f"call_{secrets.token_hex(6)}",
            )
            for one in wanted
        ]
        said = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


def react(llm: BaseChatModel, tools: list[Any], *, checkpointer: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=checkpointer)
