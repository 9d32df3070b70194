"""A shop's calls to the payment provider, with deadlines of about a second.

Every request asks `call.remaining` for its time-out but those of `stubborn_refund`,
which is the tool that does not keep to its deadline.
"""

import os
import signal
from datetime import timedelta
from typing import Any

import httpx2
from pydantic import BaseModel

from tools import Call, EffectType, Provider, Reconciled, Retry, Timeout, external_ref, tool

# No connection is kept: a stale one would be a fault that no test asked for.
client = httpx2.Client(
    transport=httpx2.HTTPTransport(retries=0, limits=httpx2.Limits(max_keepalive_connections=0))
)

payments = Provider(
    name="crash payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)
SOON = Retry(max_attempts=12, first_delay=0.2, max_delay=0.4)
SECOND = Timeout(seconds=1.0)


class Refund(BaseModel):
    refund_id: str
    amount: str


def find_refund(call: Call) -> Reconciled[Refund]:
    answer = client.get(
        _url("/refunds"), params={"operation_id": call.operation_id}, timeout=call.remaining
    )
    found = answer.raise_for_status().json()
    if not found:
        return Reconciled.not_found()
    refund = Refund(**found[0])
    return Reconciled.committed(refund, external_ref=refund.refund_id)


@tool(provider=payments, effect_type=EffectType.READ, timeout_policy=SECOND, retry_policy=SOON)
def read_order(call: Call, order_id: str) -> dict[str, Any]:
    """Read an order."""
    answer = client.get(_url(f"/orders/{order_id}"), timeout=call.remaining)
    order: dict[str, Any] = answer.raise_for_status().json()
    return order


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=SECOND,
    retry_policy=SOON,
)
def refund(call: Call, order_id: str, amount: str) -> Refund:
    """Refund an order; the provider can be asked what became of it."""
    return _refund(call, order_id=order_id, amount=amount, seconds=call.remaining)


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    timeout_policy=SECOND,
    retry_policy=SOON,
)
def blind_refund(call: Call, order_id: str, amount: str) -> Refund:
    """Refund an order; nobody can be asked what became of it."""
    return _refund(call, order_id=order_id, amount=amount, seconds=call.remaining)


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=Timeout(seconds=8.0),
    retry_policy=SOON,
)
def patient_refund(call: Call, order_id: str, amount: str) -> Refund:
    """Refund an order, at a provider that takes several leases to answer."""
    return _refund(call, order_id=order_id, amount=amount, seconds=call.remaining)


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=Timeout(seconds=0.5),
    retry_policy=SOON,
)
def stubborn_refund(call: Call, order_id: str, amount: str) -> Refund:
    """Refund an order and wait for the answer, deadline or not."""
    return _refund(call, order_id=order_id, amount=amount, seconds=60.0)


@tool(
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_refund,
    timeout_policy=SECOND,
    retry_policy=SOON,
)
def sleepy_refund(call: Call, order_id: str, amount: str) -> Refund:
    """Refund an order; the first worker stands still after the last look at its deadline."""
    seconds = call.remaining
    if call.fence_token == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return _refund(call, order_id=order_id, amount=amount, seconds=seconds)


def _refund(call: Call, *, order_id: str, amount: str, seconds: float) -> Refund:
    answer = client.post(
        _url("/refunds"),
        json={"order": order_id, "amount": amount, "operation_id": call.operation_id},
        headers={
            "Idempotency-Key": call.idempotency_key,
            "Fence-Token": str(call.fence_token),
        },
        timeout=seconds,
    )
    made = Refund(**answer.raise_for_status().json())
    external_ref(made.refund_id)
    return made


def _url(path: str) -> str:
    return os.environ["SHOP_PAYMENTS_URL"].rstrip("/") + path
