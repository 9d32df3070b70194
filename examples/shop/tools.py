"""What the shop's agents can do: look an order up, refund it, and fulfil it.

Guarantees: one refund per operation as far as the provider honours keys, and only an answer that
is documented as "no effect" counts as a rejection. What fulfilling an order does can be taken back,
each step by a tool of its own.
Does not retry: the client sends each request once, and the kernel decides what follows.
"""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, Field

from runs import ToolCall
from tools import (
    Approve,
    Audit,
    Call,
    Effect,
    EffectType,
    Provider,
    Reconciled,
    Rejected,
    Retry,
    Timeout,
    external_ref,
    tool,
)

OrderId = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Cents = Annotated[int, Field(gt=0, le=100_000_000)]
ChargeId = Annotated[str, Field(pattern=r"^bk_[0-9a-f]{16}$")]
Items = Annotated[int, Field(gt=0, le=1_000)]
Amount = Annotated[Decimal, Field(gt=0, max_digits=11, decimal_places=2)]

# Its own transport: no retries below the kernel, and no proxy from the environment.
client = httpx2.Client(transport=httpx2.HTTPTransport(retries=0))

payments = Provider(
    name="payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
    settle_window=timedelta(minutes=15),
)


class Order(BaseModel):
    order_id: str
    customer: str
    paid: Decimal
    currency: str


class Refund(BaseModel):
    refund_id: str
    amount: Decimal


def find_refund(call: Call) -> Reconciled[Refund]:
    """Asks the provider for the refund of this operation."""
    answer = client.get(
        _url("/refunds"), params={"operation_id": call.operation_id}, timeout=call.remaining
    )
    found = answer.raise_for_status().json()
    if not found:
        return Reconciled.not_found()
    refund = Refund(**found[0])
    return Reconciled.committed(refund, external_ref=refund.refund_id)


def list_refunds(audit: Audit) -> Iterator[Effect]:
    """Asks the provider for every refund of a span, whoever asked for it."""
    span = {"since": audit.since.isoformat(), "until": audit.until.isoformat()}
    answer = client.get(_url("/refunds"), params=span, timeout=30)
    refunds = answer.raise_for_status().json()
    if "Has-More" in answer.headers:
        raise RuntimeError("it listed the first refunds alone")
    for refund in refunds:
        made_at = datetime.fromisoformat(refund["created_at"])
        yield Effect(refund["operation_id"], refund["refund_id"], at=made_at)


@tool(
    provider=payments,
    effect_type=EffectType.READ,
    timeout_policy=Timeout(seconds=5),
    retry_policy=Retry(max_attempts=5, first_delay=1.0, max_delay=60.0),
)
def lookup_order(call: Call, order_id: OrderId) -> Order:
    """Look up an order: who bought it and what was paid."""
    answer = client.get(_url(f"/orders/{quote(order_id, safe='')}"), timeout=call.remaining)
    _raise_if_refused(answer)
    return Order(**answer.raise_for_status().json())


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    intent_key=("order_id",),
    reconcile_handler=find_refund,
    audit_handler=list_refunds,
    timeout_policy=Timeout(seconds=5),
    retry_policy=Retry(max_attempts=5, first_delay=1.0, max_delay=300.0),
    approval_policy=Approve(when="amount > 500", groups=("finance",)),
    describe="Refund {amount} of order {order_id}",
)
def refund_customer(call: Call, order_id: OrderId, amount: Amount) -> Refund:
    """Refund a customer's order, in full or in part."""
    answer = client.post(
        _url("/refunds"),
        json={
            "order": order_id,
            "amount": format(amount, "f"),
            "operation_id": call.operation_id,
        },
        headers={
            "Idempotency-Key": call.idempotency_key,
            # The provider only notes it, for whoever reads its ledger beside our journal.
            "Fence-Token": str(call.fence_token),
        },
        timeout=call.remaining,
    )
    _raise_if_refused(answer)
    refund = Refund(**answer.raise_for_status().json())
    external_ref(refund.refund_id)
    return refund


class Booking(BaseModel):
    booking_id: str
    units: int


def find_booking(call: Call) -> Reconciled[Booking]:
    """Asks the provider for what this operation booked."""
    answer = client.get(
        _url("/bookings"), params={"operation_id": call.operation_id}, timeout=call.remaining
    )
    found = answer.raise_for_status().json()
    if not found:
        return Reconciled.not_found()
    booking = Booking(**found[0])
    return Reconciled.committed(booking, external_ref=booking.booking_id)


def refund_what_was_charged(call: Call) -> ToolCall | None:
    """The refund of a charge; None where nothing was charged."""
    charged = call.compensates
    if charged is None or charged.result["units"] == 0:
        return None
    return ToolCall(
        "refund_charge",
        order_id=charged.arguments["order_id"],
        cents=charged.result["units"],
        charge_id=charged.external_ref,
    )


booked = partial(
    tool,
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_booking,
    timeout_policy=Timeout(seconds=5),
    retry_policy=Retry(max_attempts=5, first_delay=1.0, max_delay=300.0),
)


@booked(compensation_handler="release_stock")
def reserve_stock(call: Call, order_id: OrderId, items: Items) -> Booking:
    """Reserve items for an order."""
    return _book(call, "stock", order_id=order_id, units=items)


@booked()
def release_stock(call: Call, order_id: OrderId, items: Items) -> Booking:
    """Put the items that were reserved for an order back."""
    return _book(call, "stock/back", order_id=order_id, units=items)


@booked(compensation_handler=refund_what_was_charged)
def charge_card(call: Call, order_id: OrderId, cents: Cents) -> Booking:
    """Charge the customer's card."""
    return _book(call, "card", order_id=order_id, units=cents)


@booked()
def refund_charge(call: Call, order_id: OrderId, cents: Cents, charge_id: ChargeId) -> Booking:
    """Give back what was charged."""
    return _book(call, "card/back", order_id=order_id, units=cents)


@booked(compensation_handler="recall_parcel")
def ship_order(call: Call, order_id: OrderId) -> Booking:
    """Hand the order's parcel to the carrier."""
    return _book(call, "carrier", order_id=order_id, units=1)


@booked()
def recall_parcel(call: Call, order_id: OrderId) -> Booking:
    """Have the carrier bring the order's parcel back."""
    return _book(call, "carrier/back", order_id=order_id, units=1)


def _book(call: Call, path: str, *, order_id: str, units: int) -> Booking:
    answer = client.post(
        _url(f"/bookings/{path}"),
        json={"order": order_id, "units": units, "operation_id": call.operation_id},
        headers={"Idempotency-Key": call.idempotency_key, "Fence-Token": str(call.fence_token)},
        timeout=call.remaining,
    )
    _raise_if_refused(answer)
    booking = Booking(**answer.raise_for_status().json())
    external_ref(booking.booking_id)
    return booking


def _url(path: str) -> str:
    return os.environ.get("SHOP_PAYMENTS_URL", "http://127.0.0.1:8800").rstrip("/") + path


def _raise_if_refused(answer: httpx2.Response) -> None:
    """Raises Rejected for the answers that the provider documents as final and without effect.

    A key that is in flight (409) or was used with another body (also 422) is none of them.
    """
    if answer.status_code not in (400, 404, 422):
        return
    said: dict[str, Any] = answer.json()
    match said:
        case {"error": "rejected", "reason": str(reason)}:
            raise Rejected(reason)
        case {"error": "invalid_request" | "unknown_order", "message": str(message)}:
            raise Rejected(message)
