"""Having an llm write a handoff.

Guarantees: what comes back was checked against the database; each request is noted like any
other, and one that brought nothing usable says why; the llm is asked again once, with what was
wrong.

Does not store anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from runs.agents import Agent
from runs.artifact import Artifact, schema_for_llm
from runs.context import Context
from runs.deciders import Llm
from runs.errors import UnusableAnswer
from runs.handoff_checks import find_problems
from runs.llm.asking import Answer, Question, request_in_turn
from runs.llm.messages import build_handoff_messages
from runs.llm.prompts import handoff_prompt_of
from runs.models import LlmRequest
from runs.standing import Item, Standing
from tools.canonical import check_json
from tools.errors import InvalidPayload

TOOL: Final = "hand_off"
# Once, and once again with what was wrong with it.
MOST_TRIES: Final = 2
_MOST_PROBLEMS: Final = 20
Problem = LlmRequest.Problem


@dataclass(frozen=True)
class Written:
    """A handoff that agrees with how the run stands; by whom, and how often it was sent back."""

    artifact: Artifact
    standing: Standing
    by: str
    repairs: int


def ask_for_handoff(
    llm: Llm, agent: Agent, context: Context, *, load: Callable[[Artifact | None], Standing]
) -> Written | None:
    """What the llm wrote; None where the database agrees with none of its tries.

    `load` reads how the run stands, with the proofs that an artifact names. Raises LlmUnavailable.
    """
    items = load(None).items
    refused: dict[str, Any] = {}
    for repairs in range(MOST_TRIES):
        question = _to_question(llm, agent, context, items=items, refused=refused)
        try:
            answer = request_in_turn(llm, question, context=context)
            artifact = _read(answer)
        except UnusableAnswer as error:
            if error.kind == Problem.TOO_LONG:
                return None
            refused = {"problems": [error.detail]}
            continue
        standing = load(artifact)
        if not (problems := find_problems(artifact, standing)):
            return Written(artifact, standing, by=answer.noted.llm, repairs=repairs)
        answer.refuse(Problem.BAD_HANDOFF, "; ".join(problems))
        items = standing.items
        refused = {"problems": problems[:_MOST_PROBLEMS], "it": artifact.model_dump(mode="json")}
    return None


def _to_question(
    llm: Llm, agent: Agent, context: Context, *, items: tuple[Item, ...], refused: dict[str, Any]
) -> Question:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    prompt = handoff_prompt_of(llm, agent)
    state: dict[str, Any] = {"not_settled": [item.to_json() for item in items]}
    if refused:
        state["your_handoff_was_refused"] = refused
    shown = build_handoff_messages(
        llm, agent, context, instructions=prompt.text, state=state, tool=TOOL
    )
    tool = ToolDefinition(
        name=TOOL,
        description="Write the handoff that replaces the old events.",
        parameters_json_schema=schema_for_llm(),
    )
    return Question(
        messages=shown.messages,
        parameters=ModelRequestParameters(function_tools=[tool], allow_text_output=False),
        prompt_version=prompt.version,
        purpose=LlmRequest.Purpose.HANDOFF,
        shown=shown.shown,
    )


def _read(answer: Answer) -> Artifact:
    """What the llm wrote. Raises UnusableAnswer."""
    calls = answer.response.tool_calls
    if len(calls) != 1 or calls[0].tool_name != TOOL:
        raise answer.refuse(Problem.BAD_HANDOFF, f"answer with exactly one call of {TOOL}")
    try:
        artifact = Artifact.model_validate(calls[0].args_as_dict())
        # Before the database is asked about what it names.
        check_json(artifact.model_dump(mode="json"), field="handoff")
    except InvalidPayload as error:
        raise answer.refuse(Problem.BAD_HANDOFF, str(error)) from error
    except ValidationError as error:
        said = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise answer.refuse(Problem.BAD_HANDOFF, "; ".join(said)) from error
    except (ValueError, TypeError, AssertionError) as error:
        raise answer.refuse(Problem.BAD_HANDOFF, "its arguments are no JSON object") from error
    return artifact
