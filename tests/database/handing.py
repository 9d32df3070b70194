"""What the tests of contexts and handoffs share: llms that are functions of what they are shown."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connection
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from runs import Agent, Llm
from runs.access import operator
from runs.commands import start_run
from runs.handoff_asking import TOOL
from runs.models import AgentRun, Handoff, LlmRequest
from tools import Call, EffectType, tool

Answer = dict[str, Any] | str | list[tuple[str, dict[str, Any]]]


class Seen:
    """One request, as the llm saw it."""

    def __init__(self, messages: list[ModelMessage], info: AgentInfo) -> None:
        self.messages = messages
        self.tools = [one.name for one in info.function_tools]
        self.is_handoff = TOOL in self.tools
        user = [json.loads(part.content) for part in self._parts(UserPromptPart)]
        self.task, self.state = user[0]["task"], user[-1]["state"]
        self.told = [said["data"] for said in user[1:-1]]
        self.results = [
            (part.tool_name, json.loads(part.content)) for part in self._parts(ToolReturnPart)
        ]
        self.handoff = self.task.get("handoff")

    def _parts(self, kind: type) -> Iterator[Any]:
        parts = (part for message in self.messages for part in message.parts)
        return (part for part in parts if isinstance(part, kind))


class Mind:
    """An llm that decides by one function and hands off by another; notes what it was shown."""

    def __init__(
        self,
        decide: Callable[[Seen], Answer],
        hand_off: Callable[[Seen], Answer] | None = None,
    ) -> None:
        self.decide = decide
        self.hand_off = hand_off or (lambda seen: right(seen))
        self.seen: list[Seen] = []

    @property
    def decisions(self) -> list[Seen]:
        return [seen for seen in self.seen if not seen.is_handoff]

    @property
    def handoffs(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.is_handoff]

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen = Seen(messages, info)
        self.seen.append(seen)
        try:
            said = self.hand_off(seen) if seen.is_handoff else self.decide(seen)
        finally:
            # The client library's thread keeps what was opened in it.
            connection.close()
        if isinstance(said, str):
            return ModelResponse([TextPart(said)])
        calls = [(TOOL, said)] if isinstance(said, dict) else said
        return ModelResponse([ToolCallPart(name, given) for name, given in calls])


def right(seen: Seen, **more: Any) -> dict[str, Any]:
    """A handoff that names all that it must."""
    open_items = [{"id": one["id"], "status": one["status"]} for one in seen.state["not_settled"]]
    return {"open_items": open_items, "constraints": seen.task.get("constraints", [])} | more


def start_llm(
    mind: Mind, *, tools: tuple[str, ...] = (), constraints: tuple[str, ...] = (), **options: Any
) -> AgentRun:
    """A run of an agent whose llm is this mind; `options` are of the llm, the agent or the run."""
    of_run, of_agent = (
        {name: options.pop(name) for name in names if name in options}
        for names in (
            ("objective", "input", "labels"),
            ("budget", "on_version_change", "llm_limits"),
        )
    )
    agent = Agent(
        name=f"agent of {id(mind)}",
        decider=Llm(FunctionModel(mind.answer, model_name="mind"), **options),
        tools=tools,
        constraints=constraints,
        **of_agent,
    )
    return start_run(actor=operator(), agent=agent.name, **of_run).run


# What four of the steps below take: full with the fifth, of which a quarter stays.
SMALL: dict[str, Any] = {"window_tokens": 300, "tools": ("look", "pay")}


def look_and_pay() -> None:
    """Register two tools: `look(n)` and `pay(amount)`."""

    @tool(effect_type=EffectType.READ)
    def look(call: Call, n: int) -> dict[str, Any]:
        return {"n": n, "text": "x" * 80}

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE)
    def pay(call: Call, amount: int = 1) -> str:
        return "paid"


def look_on(until: int) -> Any:
    """Look at another thing in every step, and finish at last."""

    def decide(seen: Seen) -> Answer:
        step = seen.state["step"]
        return [("look", {"n": step})] if step < until else "seen it all"

    return decide


def handoffs(run: AgentRun) -> list[Handoff]:
    return list(Handoff.objects.filter(run=run).order_by("number"))


def requests(run: AgentRun, purpose: str = "handoff") -> list[tuple[str, str]]:
    """(outcome, problem) of what was asked, oldest first."""
    asked = LlmRequest.objects.filter(run=run, purpose=purpose).order_by("id")
    return list(asked.values_list("outcome", "problem"))


def steps_seen(seen: Seen) -> list[int]:
    return [said["result"]["n"] for _, said in seen.results]
