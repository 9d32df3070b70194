"""From an answer of an llm to a decision.

Guarantees: an answer is one decision, or `UnusableAnswer` that says what is wrong with it, in
words for the llm and without its values; nothing of an answer is used that was cut off. The llm's
own ids of calls name nothing: they are only searched for two that are one.

Does not check that a called tool exists, or that its arguments fit: recorded calls that cannot be
made become observations.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, assert_never

from pydantic_core import from_json

from runs import decisions
from runs.decisions import (
    LONGEST_RATIONALE,
    MOST_CALLS,
    Ask,
    CallTools,
    Compensate,
    Decision,
    Delegate,
    Fail,
    Finish,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.errors import ResultDoesNotFit, UnusableAnswer
from runs.final_results import fit_result
from runs.llm.offers import (
    CONFIDENCE,
    RATIONALE,
    RESULT,
    SHORTEST_WAIT,
    DecisionTool,
    Offers,
    is_wrapped,
)
from runs.models import LlmRequest
from tools.canonical import PAYLOAD_BYTES, check_json
from tools.errors import InvalidPayload
from tools.redaction import bound_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ToolCallPart

Problem: Final = LlmRequest.Problem
_NO_LIMIT: Final = 2**62


def read_decision(response: "ModelResponse", offers: Offers, *, llm: str) -> Decision:
    """What the llm decided. Raises UnusableAnswer."""
    try:
        decision = _read(response, offers)
        _check_storable(decision)
    except _Unusable as wrong:
        raise UnusableAnswer(llm=llm, kind=wrong.kind, detail=wrong.detail) from wrong
    return decision


class _DoesNotFit(Exception):
    """What is wrong with the arguments of a decision, in words of ours."""


@dataclass
class _Unusable(Exception):
    kind: LlmRequest.Problem
    detail: str


def _read(response: "ModelResponse", offers: Offers) -> Decision:
    said, calls = (response.text or "").strip(), response.tool_calls
    _check_whole(response)
    if not calls:
        return _read_text(said, offers)
    if len(calls) > MOST_CALLS:
        wrong = f"{len(calls)} calls; make at most {MOST_CALLS} in one answer"
        raise _Unusable(Problem.TOO_MANY_CALLS, wrong)
    if not all(
        isinstance(text, str) for one in calls for text in (one.tool_name, one.tool_call_id)
    ):
        raise _Unusable(Problem.MALFORMED, "the name or the id of a call is no text")
    if len({one.tool_call_id for one in calls}) < len(calls):
        wrong = f"{len(calls)} calls, of which several have one id; give each call its own"
        raise _Unusable(Problem.REPEATED_CALL_ID, wrong)
    deciding = [one for one in calls if one.tool_name in offers.decisions]
    if not deciding:
        return CallTools(
            *(_read_call(one, offers) for one in calls), rationale=said[:LONGEST_RATIONALE]
        )
    if len(calls) > 1:
        wrong = f"{deciding[0].tool_name} beside other calls; call it alone"
        raise _Unusable(Problem.MIXED, wrong)
    return _read_decision_tool(deciding[0], offers)


def _check_whole(response: "ModelResponse") -> None:
    if response.finish_reason in ("length", "error") or response.state != "complete":
        wrong = "the answer was cut off before its end; answer in fewer words, or make fewer calls"
        raise _Unusable(Problem.TRUNCATED, wrong)
    if response.finish_reason == "content_filter":
        wrong = "the answer was refused, or held back by a filter"
        raise _Unusable(Problem.REFUSED, wrong)


def _read_text(said: str, offers: Offers) -> Decision:
    if not said:
        raise _Unusable(Problem.EMPTY, "there is neither a call nor a text")
    if offers.output is not None:
        wrong = f"a text ends nothing here; call {DecisionTool.FINISH} with the result"
        raise _Unusable(Problem.BAD_RESULT, wrong)
    return Finish(said)


def _read_call(call: "ToolCallPart", offers: Offers) -> ToolCall:
    arguments = _read_arguments(call)
    if not offers.wants_reasons:
        return ToolCall(call.tool_name, **arguments)
    rationale, confidence = arguments.pop(RATIONALE, ""), arguments.pop(CONFIDENCE, None)
    is_sure = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    return ToolCall(call.tool_name, **arguments).because(
        rationale if isinstance(rationale, str) else "",
        # One that says nothing that can be compared says nothing.
        confidence=float(confidence) if is_sure and 0 <= confidence <= 1 else None,
    )


def _read_arguments(call: "ToolCallPart") -> dict[str, Any]:
    name, raw = bound_text(call.tool_name, 100), call.args
    if isinstance(raw, str):
        if len(raw) > PAYLOAD_BYTES:
            raise _Unusable(Problem.OVERSIZED, f"the arguments of {name} are {len(raw)} characters")
        try:
            raw = from_json(raw or "{}")
        except ValueError as error:
            wrong = f"the arguments of {name} are no JSON: {error}"
            raise _Unusable(Problem.MALFORMED, wrong) from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        wrong = f"the arguments of {name} are no JSON object"
        raise _Unusable(Problem.MALFORMED, wrong)
    return dict(raw)


def _read_decision_tool(call: "ToolCallPart", offers: Offers) -> Decision:
    given = _read_arguments(call)
    try:
        match DecisionTool(call.tool_name):
            case DecisionTool.FINISH:
                return _read_finish(given, offers)
            case DecisionTool.GIVE_UP:
                return Fail(_text(given, "reason"))
            case DecisionTool.ASK:
                return _read_question(given, offers)
            case DecisionTool.SLEEP:
                return Sleep(_duration(given.get("seconds")))
            case DecisionTool.WAIT_FOR:
                return WaitFor(_text(given, "signal"), _timeout(given))
            case DecisionTool.COMPENSATE:
                return Compensate(_text(given, "reason"))
            case DecisionTool.DELEGATE:
                return _read_delegation(given, offers)
            case _ as never:
                assert_never(never)
    except _DoesNotFit as error:
        wrong = f"the arguments of {call.tool_name} do not fit: {error}"
        raise _Unusable(Problem.MALFORMED, wrong) from error
    except (TypeError, ValueError, OverflowError) as error:
        # What they say names values.
        wrong = f"the arguments of {call.tool_name} do not fit; keep to what its schema allows"
        raise _Unusable(Problem.MALFORMED, wrong) from error


def _read_finish(given: dict[str, Any], offers: Offers) -> Finish:
    assert offers.output is not None, "offered only with an output"
    result = given.get(RESULT) if is_wrapped(offers.output) else given
    try:
        return Finish(fit_result(result, offers.output))
    except ResultDoesNotFit as error:
        raise _Unusable(Problem.BAD_RESULT, str(error)) from error


def _read_question(given: dict[str, Any], offers: Offers) -> Ask:
    question, choices = _text(given, "question"), given.get("choices")
    match given.get("answer"):
        case "text":
            form: dict[str, Any] = {"type": "string", "minLength": 1}
        case "number":
            form = {"type": "number"}
        case "yes_or_no":
            form = {"type": "boolean"}
        case "choice" if isinstance(choices, list) and choices:
            form = {"type": "string", "enum": [str(choice)[:200] for choice in choices[:50]]}
        case _:
            wrong = "answer is text, number, yes_or_no, or choice together with choices"
            raise _DoesNotFit(wrong)
    schema = {"type": "object", "properties": {"answer": form}, "required": ["answer"]}
    return Ask(question, schema, groups=offers.ask_groups, timeout=_timeout(given))


def _read_delegation(given: dict[str, Any], offers: Offers) -> Delegate:
    agent, objective = _text(given, "agent"), _text(given, "objective")
    if agent not in offers.delegates:
        raise _DoesNotFit(f"agent is one of {', '.join(offers.delegates)}")
    about, hand_over = given.get("input"), given.get("hand_over")
    if not isinstance(about, dict | None):
        raise _DoesNotFit("input is an object")
    if not isinstance(hand_over, bool | None):
        raise _DoesNotFit("hand_over is true or false")
    return Delegate(agent, objective, about or {}, hand_over=bool(hand_over))


def _text(given: dict[str, Any], name: str) -> str:
    if not isinstance(given.get(name), str):
        raise _DoesNotFit(f"{name} is needed, a text")
    return str(given[name])


def _timeout(given: dict[str, Any]) -> timedelta | None:
    seconds = given.get("timeout_seconds")
    return None if seconds is None else _duration(seconds)


def _duration(seconds: Any) -> timedelta:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _DoesNotFit("seconds are a number")
    # Whoever waits no time at all, again and again, asks as fast as the provider answers.
    return timedelta(seconds=max(seconds, SHORTEST_WAIT) if seconds >= 0 else seconds)


def _check_storable(decision: Decision) -> None:
    body = decisions.encode(decision)
    try:
        check_json(body, field="answer", limit_bytes=_NO_LIMIT)
    except InvalidPayload as error:
        raise _Unusable(Problem.MALFORMED, f"{error.field}: {error.fix}") from error
    try:
        check_json(body, field="answer")
    except InvalidPayload as error:
        raise _Unusable(Problem.OVERSIZED, f"{error.value}: {error.fix}") from error
