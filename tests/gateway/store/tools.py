"""A store's tools, whose effects are counted by the provider of the tests (`provider.py`)."""

import os
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx2
from pydantic import BaseModel

from tools import Approve, Call, EffectType, Provider, Rejected, Retry, Timeout, tool

KEYED = EffectType.IDEMPOTENT_WRITE
# No connection is kept: a stale one would be a fault that no test asked for.
client = httpx2.Client(
    transport=httpx2.HTTPTransport(retries=0, limits=httpx2.Limits(max_keepalive_connections=0))
)
payments = Provider(
    name="store payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
)
post = Provider(name="store post", account="acct_post")
SOON = Retry(max_attempts=5, first_delay=0.1, max_delay=0.2)


class Done(BaseModel):
    effect: int
    external_ref: str


def send(call: Call, what: str, **body: Any) -> Done:
    answer = client.post(
        f"{os.environ['STORE_URL']}/{what}",
        json=body,
        headers={"Idempotency-Key": call.idempotency_key},
        timeout=call.remaining,
    )
    if answer.status_code == 422:
        raise Rejected(answer.text)
    return Done.model_validate(answer.raise_for_status().json())


@tool(provider=payments, effect_type=EffectType.READ)
def look_up_order(call: Call, order_id: str) -> dict[str, Any]:
    """Look an order up."""
    found = send(call, "look_up", order=order_id)
    return {"order_id": order_id, "looked": found.effect}


@tool(
    provider=payments,
    effect_type=KEYED,
    intent_key=("order_id",),
    approval_policy=Approve(when="amount > 500"),
    retry_policy=SOON,
    timeout_policy=Timeout(seconds=20.0),
    sensitive=("card",),
)
def refund_customer(call: Call, order_id: str, amount: Decimal, card: str = "") -> Done:
    """Refund an order.

    The customer hears of it.
    """
    return send(call, "refund", order=order_id, amount=str(amount), card=card)


@tool(
    provider=payments,
    effect_type=KEYED,
    intent_key=("order_id",),
    on_repeated_intent="refuse",
    retry_policy=SOON,
)
def void(call: Call, order_id: str, reason: str) -> Done:
    """Void an order."""
    return send(call, "void", order=order_id, reason=reason)


@tool(
    provider=payments,
    effect_type=KEYED,
    intent_key=("order_id",),
    intent_scope="global",
    retry_policy=SOON,
)
def archive(call: Call, order_id: str, reason: str) -> Done:
    """Archive an order, of which there is one for everybody."""
    return send(call, "archive", order=order_id, reason=reason)


@tool(provider=post, effect_type=EffectType.NON_IDEMPOTENT_WRITE)
def post_letter(call: Call, to: str, text: str = "") -> Done:
    """Post a letter; nobody can say later whether it was posted."""
    return send(call, "letter", order=to, text=text)


@tool(provider=payments, effect_type=KEYED, repeatable=True, retry_policy=SOON)
def ring(call: Call, order_id: str) -> Done:
    """Ring the bell, as often as wanted."""
    return send(call, "ring", order=order_id)


@tool(provider=payments, effect_type=KEYED, retry_policy=SOON)
def relay(call: Call, order_id: str, idempotency_key: str) -> Done:
    """Relay a call whose own argument has the name of ours."""
    return send(call, "relay", order=order_id, key=idempotency_key)


@tool(effect_type=EffectType.READ)
def read_report(call: Call, size: int) -> str:
    """Read a long report."""
    return "x" * size
