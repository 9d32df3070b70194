"""Tools that do what their caller asks for: answer, lose their answer, refuse.

They have no effect outside: what is left of them are the rows.
"""

from datetime import timedelta
from typing import Any

from tools import (
    Approve,
    Call,
    EffectType,
    Provider,
    Reconciled,
    Rejected,
    Retry,
    tool,
)

keyed = Provider(
    name="seeded payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)
plain = Provider(name="seeded post office", account="acct_main")


def look_up(call: Call) -> Reconciled[Any]:
    """What was lost is found; what stays open cannot be said."""
    if call.arguments["mode"] == "open":
        return Reconciled.indeterminate("the ledger is closed for the night")
    return Reconciled.committed({"refund": call.arguments["order"]}, external_ref="re_seeded")


@tool(effect_type=EffectType.READ)
def seed_look(call: Call, order: int) -> dict[str, Any]:
    """Look an order up."""
    return {"order": order, "paid": "42.00", "items": [{"sku": "tea", "count": 2}]}


@tool(
    provider=keyed,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    intent_key=("order",),
    reconcile_handler=look_up,
    retry_policy=Retry(first_delay=60.0),
)
def seed_refund(call: Call, order: int, mode: str = "well") -> dict[str, Any]:
    """Refund an order, and lose the answer where `mode` says so."""
    if mode == "rejected":
        raise Rejected("this order was refunded before")
    if mode != "well" and call.attempt == 1:
        raise ConnectionResetError("by the peer")
    return {"refund": order}


@tool(provider=plain, effect_type=EffectType.NON_IDEMPOTENT_WRITE)
def seed_post(call: Call, order: int) -> None:
    """Send a parcel, and lose the answer: nobody can be asked about it."""
    raise ConnectionResetError("by the peer")


@tool(
    provider=keyed,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    approval_policy=Approve(when="true", groups=("finance",), approve_by=timedelta(days=360)),
)
def seed_pay(call: Call, order: int) -> dict[str, Any]:
    """Pay somebody, once it is signed."""
    return {"paid": order}


@tool(
    provider=keyed,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    compensation_handler="seed_unbook",
)
def seed_book(call: Call, order: int) -> dict[str, Any]:
    """Book something that can be taken back."""
    return {"booked": order}


@tool(provider=keyed, effect_type=EffectType.IDEMPOTENT_WRITE)
def seed_unbook(call: Call, order: int) -> dict[str, Any]:
    """Take a booking back."""
    return {"unbooked": order}
