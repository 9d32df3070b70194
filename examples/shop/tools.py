"""What the shop's agents can do: look an order up, and refund it.

Guarantees: one refund per operation as far as the provider honours keys, and only an answer that
is documented as "no effect" counts as a rejection.
Does not retry: the client sends each request once, and the kernel decides what follows.
"""

import os
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, Field

from tools import (
    Approve,
    Call,
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
