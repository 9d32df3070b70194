"""Two tools of a shop's desk. The web process shows them; the test's own process sends."""

from decimal import Decimal
from typing import Any, Literal

from tools import Approve, Call, EffectType, tool

# What was sent by this process, in order.
SENT: list[dict[str, Any]] = []


@tool(effect_type=EffectType.READ, describe="Look up order {order_id}")
def look_up_order(call: Call, order_id: str) -> dict[str, Any]:
    """Look an order up."""
    return {"order_id": order_id, "paid": "900.00"}


@tool(
    effect_type=EffectType.IRREVERSIBLE,
    approval_policy=Approve(),
    describe="Refund {amount} {currency} of order {order_id}",
    sensitive=("card",),
)
def refund_order(
    call: Call,
    order_id: str,
    amount: Decimal,
    currency: Literal["EUR", "USD"] = "EUR",
    card: str = "",
    note: str = "",
    notify: bool = True,
    lines: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Refund a customer's order."""
    SENT.append(dict(call.arguments))
    return {"refunded": str(amount)}
