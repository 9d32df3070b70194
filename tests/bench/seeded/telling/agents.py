"""Agents that act out the story that their input names."""

from datetime import timedelta
from decimal import Decimal

from runs import (
    Agent,
    Ask,
    CallTools,
    Context,
    Decision,
    Delegate,
    Fail,
    Finish,
    Sleep,
    ToolCall,
    WaitFor,
)
from runs.models import LlmRequest

ORDER = 17
TOOLS = ("seed_look", "seed_refund", "seed_post", "seed_pay", "seed_book")


def decide(context: Context) -> Decision:
    """The next decision of the story."""
    story, step = context.input["story"], context.step_number
    if story == "asked an llm":
        context.requests.append(_asked())
    match story, step:
        case "nothing to do", _:
            return Finish("nothing to do")
        case "gave up", 2:
            return Fail("the order does not exist")
        case "took it back", 2:
            return Fail("the second booking is not possible")
        case (("looked twice" | "looked again"), 2):
            return _call("seed_look", order=ORDER + 1)
        case "long", _ if step <= context.input["steps"]:
            return _call("seed_look", order=step)
        case _, 1:
            return _first(story)
    return Finish("done")


def _first(story: str) -> Decision:
    match story:
        case "took it back":
            return _call("seed_book", order=ORDER)
        case "signed" | "denied" | "waits for a signature":
            return _call("seed_pay", order=ORDER)
        case "lost":
            return _call("seed_refund", order=ORDER, mode="lost")
        case "open":
            return _call("seed_refund", order=ORDER, mode="open")
        case "rejected":
            return _call("seed_refund", order=ORDER, mode="rejected")
        case "needs a person":
            return _call("seed_post", order=ORDER)
        case "refunded":
            return _call("seed_refund", order=ORDER)
        case "answered" | "asks":
            return Ask("Which address is right?", {"type": "string"}, groups=("support",))
        case "sleeps":
            return Sleep(for_=timedelta(days=300))
        case "waits for a signal":
            return WaitFor("delivered")
        case "delegates":
            return Delegate("seeded", objective="look it up", input={"story": "looked once"})
    return _call("seed_look", order=ORDER)


def _call(tool: str, **arguments: object) -> CallTools:
    return CallTools(ToolCall(tool, **arguments))


def _asked() -> LlmRequest:
    return LlmRequest(
        purpose=LlmRequest.Purpose.DECIDE,
        outcome=LlmRequest.Outcome.USED,
        llm="openai:gpt-5-mini",
        llm_version="gpt-5-mini-2026-08-07",
        prompt_version="p1",
        finish_reason="tool_call",
        input_tokens=1_200,
        output_tokens=80,
        cost_usd=Decimal("0.0012"),
        latency_ms=830,
        said="The order was paid twice, so one payment goes back.",
    )


seeded = Agent(name="seeded", decider=decide, tools=TOOLS)
seeded_saga = Agent(name="seeded_saga", decider=decide, tools=TOOLS, on_failure="compensate")
seeded_llm = Agent(name="seeded_llm", decider=decide, tools=TOOLS)
