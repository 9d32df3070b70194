"""The tools of a shop's desk. The web process shows them; the test's own process sends."""

from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

from tools import Approve, Call, EffectType, Provider, Reconciled, Retry, tool

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


BANK = Provider(
    name="bank",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)


@tool(
    effect_type=EffectType.IDEMPOTENT_WRITE,
    provider=BANK,
    reconcile_handler=lambda call: Reconciled.indeterminate("the ledger is closed"),
    retry_policy=Retry(first_delay=60.0),
    describe="Pay the carrier {amount}",
)
def pay_carrier(call: Call, amount: Decimal) -> dict[str, Any]:
    """Pay the carrier. Its answers get lost."""
    raise TimeoutError("no answer")


@tool(effect_type=EffectType.NON_IDEMPOTENT_WRITE, describe="Print label {label}")
def print_label(call: Call, label: str) -> dict[str, Any]:
    """Print a label. Its answers get lost, and nobody can be asked."""
    raise TimeoutError("no answer")
