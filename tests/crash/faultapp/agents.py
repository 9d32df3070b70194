"""Agents that read and refund, each the smallest that shows one law."""

import secrets
import time
from datetime import timedelta

from runs import (
    Agent,
    CallTools,
    Context,
    Decision,
    Delegate,
    Fail,
    Finish,
    Llm,
    Script,
    Sleep,
    ToolCall,
    WaitFor,
)

ORDER, AMOUNT = "17", "42.00"
# Several leases of the tests.
LONG_THOUGHT_SECONDS = 3.0


def _read_then(tool: str) -> Script:
    return Script(
        ToolCall("read_order", order_id=ORDER),
        ToolCall(tool, order_id=ORDER, amount="{last.paid}"),
        Finish("{last.refund_id}"),
    )


def _once(tool: str) -> Agent:
    """One call to the tool: `crash_` and the tool's name without `_refund`."""
    call = ToolCall(tool, order_id=ORDER, amount=AMOUNT)
    return Agent(name=_named(tool), decider=Script(call, Finish("{last.refund_id}")), tools=(tool,))


def _twice(tool: str) -> Agent:
    """Not sure of its first call, it asks for the same again in the next step."""
    call = ToolCall(tool, order_id=ORDER, amount=AMOUNT)
    return Agent(
        name=f"{_named(tool)}_twice",
        decider=Script(call, call, Finish("{last.refund_id}")),
        tools=(tool,),
    )


def _named(tool: str) -> str:
    return f"crash_{tool.removesuffix('_refund')}"


def decide_otherwise_each_time(context: Context) -> Decision:
    """Refund an amount that nobody would choose twice; as often as it is asked, another."""
    if context.last is not None:
        return Finish(context.last.result)
    cents = 1 + secrets.randbelow(42_00)
    amount = f"{cents // 100}.{cents % 100:02}"
    return CallTools(ToolCall("refund", order_id=ORDER, amount=amount))


def decide_for_long(context: Context) -> Decision:
    """Think for several leases, then refund."""
    if context.last is not None:
        return Finish(context.last.result)
    time.sleep(LONG_THOUGHT_SECONDS)
    return CallTools(ToolCall("refund", order_id=ORDER, amount=AMOUNT))


def decide_two_refunds(context: Context) -> Decision:
    """Two calls in one step: a retry of the step has one behind it."""
    if not context.observations:
        return CallTools(
            ToolCall("refund", order_id="17", amount="17.00"),
            ToolCall("refund", order_id="18", amount="18.00"),
        )
    if all(seen.committed for seen in context.observations):
        return Finish(len(context.observations))
    return Fail("a refund did not go through")


def decide_together(context: Context) -> Decision:
    """Reads and refunds that leave at once, and the end once each has come to something."""
    if not context.observations:
        orders = ("17", "18")
        return CallTools(
            *(ToolCall("read_order", order_id=order) for order in orders),
            *(ToolCall("refund_beside", order_id=order, amount=AMOUNT) for order in orders),
        )
    if all(seen.committed for seen in context.observations):
        return Finish(len(context.observations))
    return Fail("a call did not go through")


AGENTS = (
    Agent(name="crash_sighted", decider=_read_then("refund"), tools=("read_order", "refund")),
    Agent(
        name="crash_blind",
        decider=_read_then("blind_refund"),
        tools=("read_order", "blind_refund"),
    ),
    Agent(name="crash_fickle", decider=decide_otherwise_each_time, tools=("refund",)),
    Agent(name="crash_thinker", decider=decide_for_long, tools=("refund",)),
    Agent(
        name="crash_together",
        decider=decide_together,
        tools=("read_order", "refund_beside"),
    ),
    Agent(name="crash_pair", decider=decide_two_refunds, tools=("refund",)),
    Agent(
        name="crash_two_orders",
        decider=Script(
            ToolCall("unkeyed_refund", order_id="17", amount="10.00"),
            ToolCall("unkeyed_refund", order_id="18", amount="10.00"),
            Finish("both"),
        ),
        tools=("unkeyed_refund",),
    ),
    Agent(
        name="crash_saga",
        decider=Script(
            ToolCall("take_items", order_id=ORDER, units=2),
            ToolCall("charge", order_id=ORDER, units=42_00),
            Fail("the parcel cannot be sent"),
        ),
        tools=("take_items", "charge"),
        on_failure="compensate",
    ),
    Agent(
        name="crash_waiter",
        decider=Script(
            ToolCall("read_order", order_id=ORDER),
            Sleep(timedelta(milliseconds=200)),
            WaitFor("go"),
            ToolCall("refund", order_id=ORDER, amount="{last.amount}"),
            Finish("{last.refund_id}"),
        ),
        tools=("read_order", "refund"),
    ),
    Agent(
        name="crash_parent",
        decider=Script(Delegate("crash_refund"), Finish("{last}")),
    ),
    Agent(
        name="crash_sleeper",
        decider=Script(
            ToolCall("take_items", order_id=ORDER, units=2),
            Sleep(timedelta(hours=1)),
            Finish("slept"),
        ),
        tools=("take_items",),
    ),
    Agent(
        name="crash_pausing",
        decider=_read_then("refund"),
        tools=("read_order", "refund"),
    ),
    Agent(
        name="crash_thing",
        decider=Script(ToolCall("create_thing", name="lamp"), Finish("{last.name}")),
        tools=("create_thing",),
    ),
    Agent(
        name="crash_llm",
        # A few orders fill so small a window.
        decider=Llm("openai-chat:gpt-5-mini", window_tokens=400),
        tools=("read_order", "refund"),
        constraints=("Refund one order.",),
    ),
    *(
        _once(tool)
        for tool in (
            "refund",
            "patient_refund",
            "sleepy_refund",
            "stubborn_refund",
            "expiring_refund",
            "expiring_blind_refund",
            "hasty_refund",
            "unkeyed_refund",
            "unkeyed_blind_refund",
            "unkeyed_doubtful_refund",
            "unkeyed_eager_refund",
            "unkeyed_lazy_refund",
            "unkeyed_sleepy_refund",
            "unkeyed_blind_sleepy_refund",
            "unkeyed_blind_stubborn_refund",
            "unkeyed_listed_refund",
            "irreversible_refund",
            "signed_refund",
            "signed_unkeyed_refund",
        )
    ),
    *(
        _twice(tool)
        for tool in ("patient_refund", "unkeyed_refund", "unkeyed_blind_refund", "gift")
    ),
)
