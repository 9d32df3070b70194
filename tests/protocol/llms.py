"""An llm in this process, with the faults that real ones have.

Guarantees: without a fault it decides what the run's program says, and hands off truly; what it
said is kept, so that a row which tells of an answer that nobody gave is found.

Does not speak HTTP: `tests/llms` does.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final, assert_never

from pydantic import BaseModel
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRateLimitError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from runs import (
    Ask,
    CallTools,
    Compensate,
    Decision,
    Delegate,
    DelegateAll,
    Fail,
    Finish,
    Llm,
    Sleep,
    WaitFor,
)
from runs.decisions import MOST_CALLS
from runs.handoff_asking import TOOL as HAND_OFF
from tests.database.handing import Seen, right
from tools.canonical import PAYLOAD_BYTES

# What is asked for next, and what the llm does instead of deciding. A run is not hurt by the one
# kind, and by so many of the other kind in a row it fails, or is paused.
AWAY: Final = ("rate limited", "overloaded", "silent")
UNUSABLE: Final = (
    "empty",
    "truncated",
    "refused",
    "malformed",
    "one id",
    "oversized",
    "too many",
    "mixed",
    "bad result",
    "too long",
)
# Neither: it becomes an operation that is never sent.
INVALID: Final = ("unknown tool", "bad arguments")
UNTRUE: Final = ("untrue handoff",)
SAID: Final = (*UNUSABLE, *AWAY, *INVALID, *UNTRUE)
RETRY_AFTER: Final = 30.0
# So little that a few calls of a run fill it.
WINDOW_TOKENS: Final = 400

Plan = Callable[[int, int], Decision]
Parts = list[tuple[str, Any]]


class Done(BaseModel):
    """What a run of an llm comes to."""

    seen: int


@dataclass
class SimulatedLlm:
    """`faults` are what the next requests meet, whichever run asks; `said` the ids of answers,
    and `asked` how many requests there were of each purpose."""

    faults: deque[str] = field(default_factory=deque)
    said: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    _numbers: Any = field(default_factory=lambda: count(1))

    def as_decider(self, plan: Plan) -> Llm:
        """One that decides by a plan (position and step to the decision), and its fallback."""

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return self._answer(Seen(messages, info), plan)

        first, second = (FunctionModel(answer, model_name=name) for name in ("first", "second"))
        return Llm(
            first,
            fallback=(second,),
            may=("ask", "sleep", "wait_for", "compensate"),
            window_tokens=WINDOW_TOKENS,
        )

    def _answer(self, seen: Seen, plan: Plan) -> ModelResponse:
        self.asked["handoff" if seen.is_handoff else "decide"] += 1
        fault = self.faults.popleft() if self.faults else ""
        match fault:
            case "rate limited":
                raise ModelHTTPError.for_category(
                    ModelRateLimitError, status_code=429, model_name="m", retry_after=RETRY_AFTER
                )
            case "overloaded":
                raise ModelHTTPError(529, "m")
            case "silent":
                raise TimeoutError
            case "too long":
                raise ModelContextWindowExceededError("m", "too long")
            case "refused":
                raise ContentFilterError("no")
        if seen.is_handoff:
            parts: Parts = [(HAND_OFF, right(seen))]
        else:
            parts = _to_parts(plan(seen.state["position"], seen.state["step"]))
        response = _spoil(parts, fault)
        response.provider_response_id = f"response {next(self._numbers)}"
        response.usage = RequestUsage(input_tokens=7, output_tokens=3)
        self.said.add(response.provider_response_id)
        return response


def _spoil(parts: Parts, fault: str) -> ModelResponse:
    """The answer, unless something is wrong with it."""
    match fault:
        case "empty":
            return ModelResponse([])
        case "truncated":
            return ModelResponse([TextPart("It is do")], finish_reason="length")
        case "malformed":
            return _call([(name, '{"amount": 1') for name, _ in parts])
        case "one id":
            return ModelResponse([ToolCallPart("keyed", {"amount": 1}, "call_0")] * 2)
        case "oversized":
            return _call([("keyed", {"amount": "x" * PAYLOAD_BYTES})])
        case "too many":
            return _call([("keyed", {"amount": 1})] * (MOST_CALLS + 1))
        case "mixed":
            return _call([("keyed", {"amount": 1}), ("give_up", {"reason": "or not"})])
        case "bad result":
            return _call([("finish", {"seen": "all"})])
        case "unknown tool":
            return _call([("no_such_tool", {})])
        case "bad arguments":
            return _call([("keyed", {"amount": "all of it"})])
        case "untrue handoff" if parts[0][0] == HAND_OFF:
            invented = {"text": "all is paid", "operation": "op_invented"}
            return _call([(HAND_OFF, parts[0][1] | {"facts": [invented]})])
    return _call(parts)


def _call(parts: Sequence[tuple[str, Any]]) -> ModelResponse:
    return ModelResponse([ToolCallPart(name, given) for name, given in parts])


def _to_parts(decision: Decision) -> Parts:
    """A decision as the calls that an llm makes of it."""
    match decision:
        case CallTools(calls=calls):
            return [(call.tool, dict(call.arguments)) for call in calls]
        case Finish(result=seen):
            return [("finish", {"seen": seen})]
        case Fail(reason=reason):
            return [("give_up", {"reason": reason})]
        case Compensate(reason=reason):
            return [("take_back", {"reason": reason})]
        case Sleep(for_=timedelta() as duration):
            return [("sleep", {"seconds": duration.total_seconds()})]
        case WaitFor(signal=signal, timeout=timeout):
            return [("wait_for_signal", {"signal": signal} | _within(timeout))]
        case Ask(question=question, timeout=timeout):
            return [
                ("ask_person", {"question": question, "answer": "yes_or_no"} | _within(timeout))
            ]
        case Sleep() | Delegate() | DelegateAll():
            raise AssertionError("no llm sleeps until a date, or starts other runs")
        case _ as never:
            assert_never(never)


def _within(timeout: timedelta | None) -> dict[str, Any]:
    return {} if timeout is None else {"timeout_seconds": timeout.total_seconds()}
