"""Two agents that refund, and one that fulfils an order and takes back what it did if it cannot.

Their input is `{"order_id": "17", "amount": "42.00"}`; `refund_agent` takes the amount that was
paid when none is given. Both finish with the id of the refund. The input of `fulfil_agent` is
`{"order_id": "18", "items": 2, "cents": 12000}`; it finishes with the id of the shipment.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from pydantic import RootModel

from runs import Agent, Budget, CallTools, Context, Decision, Fail, Finish, Llm, Script, ToolCall

INSTRUCTIONS = """\
You refund orders of a shop. The input names the order; look it up before you refund it. Refund
the amount of the input, and what was paid where it names none; never more than was paid. When a
refund was rejected, or a person denied it, give up: nobody else may be asked."""


class RefundId(RootModel[str]):
    """The id of the refund, as the provider gave it."""


def decide_refund(context: Context) -> Decision:
    """Look the order up, refund it, finish; a call that was rejected ends the run."""
    match context.input:
        case {"order_id": str(order_id)}:
            given: dict[str, Any] = dict(context.input)
        case _:
            return Fail('the input has no "order_id", or it is not text')
    last = context.last
    if last is None:
        return CallTools(ToolCall("lookup_order", order_id=order_id))
    if not last.committed:
        return Fail(f"{last.tool} ended as {last.status}: {last.error}")
    if last.tool == "lookup_order":
        amount = given.get("amount", last.result["paid"])
        return CallTools(ToolCall("refund_customer", order_id=order_id, amount=amount))
    return Finish(last.result["refund_id"])


refund_agent = Agent(
    name="refund_agent",
    # The same agent, with its plan in code or left to the llm of AGENTOPS_LLM.
    decider=Llm(instructions=INSTRUCTIONS) if settings.AGENTOPS_LLM else decide_refund,
    tools=("lookup_order", "refund_customer"),
    budget=Budget(steps=10, tokens=200_000, cost_usd="1.00", duration=timedelta(days=2)),
    output=RefundId,
    constraints=("Never refund more than was paid for the order.",),
)

refund_once = Agent(
    name="refund_once",
    decider=Script(
        ToolCall("refund_customer", order_id="{input.order_id}", amount="{input.amount}"),
        Finish("{last.refund_id}"),
    ),
    tools=("refund_customer",),
)

fulfil_agent = Agent(
    name="fulfil_agent",
    decider=Script(
        ToolCall("reserve_stock", order_id="{input.order_id}", items="{input.items}"),
        ToolCall("charge_card", order_id="{input.order_id}", cents="{input.cents}"),
        ToolCall("ship_order", order_id="{input.order_id}"),
        Finish("{last.booking_id}"),
    ),
    tools=("reserve_stock", "charge_card", "ship_order"),
    # What takes a step back need not be among its tools: the steps themselves declare that.
    on_failure="compensate",
)
