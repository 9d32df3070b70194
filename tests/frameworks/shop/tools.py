"""A refund at a provider that ignores keys: whatever is sent twice is done twice.

`repeatable`, so that no intent helps: only what a call is named by tells a repeat from a second
refund. `refund_order` is the same with an intent, for callers who name nothing.
"""

import os
from datetime import timedelta
from decimal import Decimal

import httpx2
from pydantic import BaseModel

from tools import (
    Approve,
    Call,
    EffectType,
    Provider,
    Reconciled,
    Rejected,
    Timeout,
    external_ref,
    tool,
)

client = httpx2.Client(transport=httpx2.HTTPTransport(retries=0))
payments = Provider(
    name="payments",
    account="acct_main",
    lookup="by_key",
    settle_window=timedelta(seconds=1),
)
# Far longer than any test holds an answer back.
PATIENT = Timeout(seconds=20)


class Refund(BaseModel):
    refund_id: str
    amount: str


def find_refund(call: Call) -> Reconciled[Refund]:
    """What the provider knows of this operation."""
    answer = client.get(
        _url("/refunds"), params={"operation_id": call.operation_id}, timeout=call.remaining
    )
    found = answer.raise_for_status().json()
    if not found:
        return Reconciled.not_found()
    refund = Refund(refund_id=found[0]["refund_id"], amount=found[0]["amount"])
    return Reconciled.committed(refund, external_ref=refund.refund_id)


@tool(
    provider=payments,
    effect_type=EffectType.NON_IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=PATIENT,
    approval_policy=Approve(when="amount > 500"),
    repeatable=True,
)
def refund_customer(call: Call, order_id: str, amount: Decimal) -> Refund:
    """Refund a customer's order, in full or in part."""
    return _place(call, order_id=order_id, amount=amount)


@tool(
    provider=payments,
    effect_type=EffectType.NON_IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=PATIENT,
    intent_key=("order_id",),
)
def refund_order(call: Call, order_id: str, amount: Decimal) -> Refund:
    """Refund a customer's order, once."""
    return _place(call, order_id=order_id, amount=amount)


def _place(call: Call, *, order_id: str, amount: Decimal) -> Refund:
    body = {"order": order_id, "amount": f"{amount:.2f}", "operation_id": call.operation_id}
    answer = client.post(
        _url("/refunds"),
        json=body,
        headers={"Idempotency-Key": call.idempotency_key},
        timeout=call.remaining,
    )
    if answer.status_code == 422:
        raise Rejected(answer.json()["reason"])
    made = answer.raise_for_status().json()
    external_ref(made["refund_id"])
    return Refund(refund_id=made["refund_id"], amount=made["amount"])


def _url(path: str) -> str:
    return os.environ["SHOP_PAYMENTS_URL"].rstrip("/") + path
