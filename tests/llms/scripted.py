"""Llms that answer by a script inside this process, for the logic around them.

Pydantic AI's own `FunctionModel`: what it is asked is what a provider's client would be.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from runs import Llm

Turn: TypeAlias = "ModelResponse | Exception | Callable[[list[ModelMessage]], ModelResponse]"


class ScriptedLlm:
    """Gives `turns` one after the other, and keeps what it was asked.

    `llm` is the decider; `asked` and `offered` have one entry for each request: the messages,
    and the tools by name.
    """

    def __init__(self, *turns: Turn, name: str = "scripted", **options: Any) -> None:
        self.turns = deque(turns)
        self.asked: list[list[ModelMessage]] = []
        self.offered: list[dict[str, Any]] = []
        self.told: list[AgentInfo] = []
        self.model = FunctionModel(self._answer, model_name=name)
        self.llm = Llm(self.model, **options)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append(messages)
        self.told.append(info)
        self.offered.append({one.name: one for one in [*info.function_tools, *info.output_tools]})
        turn = self.turns.popleft()
        if isinstance(turn, Exception):
            raise turn
        return turn(messages) if callable(turn) else turn


def calls(*given: tuple[str, Any], text: str = "", **fields: Any) -> ModelResponse:
    """Calls at once, each with its arguments (an object, or a text that should be one)."""
    parts = [ToolCallPart(name, arguments) for name, arguments in given]
    words = [TextPart(text)] if text else []
    return ModelResponse(parts=[*words, *parts], **fields)


def call(tool: str, /, **arguments: Any) -> ModelResponse:
    return calls((tool, arguments))


def say(text: str, **fields: Any) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], **fields)


def using(response: ModelResponse, **usage: Any) -> ModelResponse:
    """With what the request used, as a provider reports it."""
    response.usage = RequestUsage(**usage)
    return response


def words_of(messages: list[ModelMessage]) -> str:
    """Everything that a request shows, one part below the other."""
    shown = [str(getattr(part, "content", "")) for one in messages for part in one.parts]
    return "\n".join(shown)
