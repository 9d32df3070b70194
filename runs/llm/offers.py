"""What an llm may answer, as the tool definitions that providers understand.

Guarantees: an agent's tools are offered in its own order, with the text and the schema that
their registration gave them; whatever else an answer may be (the end, a question, a wait) is
offered under a name of `RESERVED`, and only where the agent allows it.

Does not keep an llm from calling what it was not offered: `reading.py` and `planning.py` do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, RootModel

from runs.agents import Agent
from runs.deciders import Llm, May
from runs.decisions import LONGEST_NAME, LONGEST_QUESTION, LONGEST_WAIT
from tools.errors import UnknownTool
from tools.registry import get_tool

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition


class DecisionTool(StrEnum):
    """A decision that calls none of the agent's tools, under the name by which an llm takes it."""

    FINISH = "finish"
    GIVE_UP = "give_up"
    ASK = "ask_person"
    SLEEP = "sleep"
    WAIT_FOR = "wait_for_signal"
    COMPENSATE = "take_back"
    DELEGATE = "delegate_to"


RESERVED: Final = frozenset(one.value for one in DecisionTool)
# What each call says of itself where the agent wants reasons.
RATIONALE: Final = "call_rationale"
CONFIDENCE: Final = "call_confidence"
# Under which the one value of an output stands that is no object.
RESULT: Final = "result"

_ALLOWED: Final[dict[May, DecisionTool]] = {
    "ask": DecisionTool.ASK,
    "sleep": DecisionTool.SLEEP,
    "wait_for": DecisionTool.WAIT_FOR,
    "compensate": DecisionTool.COMPENSATE,
}
# In seconds: a shorter wait is taken for one of this length.
SHORTEST_WAIT: Final = 10
_WAIT_SECONDS: Final = int(LONGEST_WAIT.total_seconds())
_REASONS: Final[dict[str, Any]] = {
    RATIONALE: {
        "type": "string",
        "description": "Why this call, in one or two sentences, for the people who approve it.",
    },
    CONFIDENCE: {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "How sure you are that this call is right, from 0 to 1.",
    },
}


@dataclass(frozen=True)
class Offers:
    """What one agent's llm may answer. Without an `output` a text alone is the result."""

    tools: tuple[str, ...]
    decisions: frozenset[DecisionTool]
    output: type[BaseModel] | None
    ask_groups: tuple[str, ...]
    wants_reasons: bool
    delegates: tuple[str, ...] = ()

    def to_parameters(self) -> "ModelRequestParameters":
        from pydantic_ai.models import ModelRequestParameters

        ends = [] if self.output is None else [_define_finish(self.output)]
        return ModelRequestParameters(
            function_tools=[*self._define_tools(), *self._define_decisions()],
            output_tools=ends,
            output_mode="tool" if ends else "text",
            allow_text_output=not ends,
        )

    def _define_tools(self) -> "Iterator[ToolDefinition]":
        from pydantic_ai.tools import ToolDefinition

        for name in self.tools:
            try:
                spec = get_tool(name)
            except UnknownTool:
                # A system check says so; another deployment may have it.
                continue
            schema = spec.arguments_schema()
            if self.wants_reasons:
                schema = _with_reasons(schema)
            yield ToolDefinition(
                name=name, description=spec.description, parameters_json_schema=schema
            )

    def _define_decisions(self) -> "Iterator[ToolDefinition]":
        from pydantic_ai.tools import ToolDefinition

        for name, (description, properties, required) in _DECISIONS.items():
            if name in self.decisions:
                if name is DecisionTool.DELEGATE:
                    properties = properties | {"agent": _one_of(self.delegates)}
                schema = _object(properties, required)
                yield ToolDefinition(
                    name=name, description=description, parameters_json_schema=schema
                )


def make_offers(llm: Llm, agent: Agent) -> Offers:
    decisions = {DecisionTool.GIVE_UP, *(_ALLOWED[may] for may in llm.options.may)}
    if agent.output is not None:
        decisions.add(DecisionTool.FINISH)
    if llm.options.delegates:
        decisions.add(DecisionTool.DELEGATE)
    return Offers(
        tools=tuple(dict.fromkeys(agent.allowed_tools)),
        decisions=frozenset(decisions),
        output=agent.output,
        ask_groups=llm.options.ask_groups,
        wants_reasons=llm.options.reasons,
        delegates=llm.options.delegates,
    )


def is_wrapped(output: type[BaseModel]) -> bool:
    """Whether the output is no object, which the arguments of a call must be."""
    return issubclass(output, RootModel)


def _define_finish(output: type[BaseModel]) -> "ToolDefinition":
    from pydantic_ai.tools import ToolDefinition

    schema = output.model_json_schema()
    if is_wrapped(output):
        shared = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        schema = _object({RESULT: schema}, [RESULT]) | shared
    return ToolDefinition(
        name=DecisionTool.FINISH,
        description="End the run: the objective is reached, and this is its result.",
        parameters_json_schema=schema,
        kind="output",
    )


def _with_reasons(schema: dict[str, Any]) -> dict[str, Any]:
    """First of all, so that the arguments follow from the reasons and not the other way round."""
    return schema | {
        "properties": _REASONS | schema.get("properties", {}),
        "required": [*_REASONS, *schema.get("required", [])],
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _text(description: str, longest: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": description}


def _one_of(agents: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(agents), "description": "Who takes it over."}


def _seconds(description: str) -> dict[str, Any]:
    return {
        "type": "number",
        "minimum": SHORTEST_WAIT,
        "maximum": _WAIT_SECONDS,
        "description": description,
    }


# By name: what it is for, its properties, and which of them must be given.
_DECISIONS: Final[dict[DecisionTool, tuple[str, dict[str, Any], list[str]]]] = {
    DecisionTool.GIVE_UP: (
        "End the run as failed: the objective cannot be reached with what you may do.",
        {"reason": _text("Why, for the people who started the run.", 2_000)},
        ["reason"],
    ),
    DecisionTool.ASK: (
        "Put one question to a person, and go on with the answer.",
        {
            "question": _text("The whole question: they see nothing else.", LONGEST_QUESTION),
            "answer": {
                "type": "string",
                "enum": ["text", "number", "yes_or_no", "choice"],
                "description": "What form the answer has.",
            },
            "choices": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "maxItems": 50,
                "description": "For the form choice: what may be answered.",
            },
            "timeout_seconds": _seconds("Go on without an answer after this long."),
        },
        ["question", "answer"],
    ),
    DecisionTool.SLEEP: (
        "Do nothing for a time, then decide again.",
        {"seconds": _seconds("How long.")},
        ["seconds"],
    ),
    DecisionTool.WAIT_FOR: (
        "Do nothing until a signal of this name comes, then decide again.",
        {
            "signal": _text("The name of the signal.", LONGEST_NAME),
            "timeout_seconds": _seconds("Go on without it after this long."),
        },
        ["signal"],
    ),
    DecisionTool.COMPENSATE: (
        "Have everything that this run did taken back, newest first, and end it as failed.",
        {"reason": _text("Why, for the people who started the run.", 2_000)},
        ["reason"],
    ),
    DecisionTool.DELEGATE: (
        "Have another agent reach a goal, and go on with what it came to.",
        {
            "agent": {},
            "objective": _text("The goal: what is to be true in the end.", 4_000),
            "input": {"type": "object", "description": "What it needs to know beside the goal."},
            "hand_over": {
                "type": "boolean",
                "description": "Whether it is shown what was done here and what is known.",
            },
        },
        ["agent", "objective"],
    ),
}
