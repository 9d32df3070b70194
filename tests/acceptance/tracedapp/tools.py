"""Its tools, which pass the trace on to the shop at `TRACED_SHOP_URL` as a user's would."""

import logging
import os
from datetime import timedelta
from functools import partial
from typing import Any

import httpx2

from tools import Approve, Call, EffectType, Provider, Reconciled, Retry, Timeout, tool

log = logging.getLogger(__name__)
client = httpx2.Client(transport=httpx2.HTTPTransport(retries=0))

shop = Provider(
    name="traced shop",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
    settle_window=timedelta(seconds=1),
)


def find(call: Call) -> Reconciled[dict[str, Any]]:
    """What this operation did, as the shop says."""
    url = f"{os.environ['TRACED_SHOP_URL']}/{call.operation_id}"
    answer = client.get(url, headers=dict(call.trace_headers), timeout=call.remaining)
    if answer.status_code == 404:
        return Reconciled.not_found()
    return Reconciled.committed(answer.raise_for_status().json())


acting = partial(
    tool,
    provider=shop,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find,
    timeout_policy=Timeout(seconds=5.0),
    retry_policy=Retry(max_attempts=12, first_delay=0.2, max_delay=0.4),
)


@acting(compensation_handler="unbook", sensitive=("card",))
def book(call: Call, item: str, card: str) -> dict[str, Any]:
    """Book an item."""
    return _act(call, {"item": item, "card": card})


@acting(sensitive=("card",))
def unbook(call: Call, item: str, card: str) -> dict[str, Any]:
    """Take the booking back."""
    return _act(call, {"item": item, "card": card})


@acting(
    compensation_handler="recall",
    approval_policy=Approve(groups=("finance",), approve_by=timedelta(hours=1)),
)
def ship(call: Call, item: str) -> dict[str, Any]:
    """Ship an item."""
    log.warning("shipping %s", item)
    return _act(call, {"item": item})


@acting()
def recall(call: Call, item: str) -> dict[str, Any]:
    """Have it sent back."""
    return _act(call, {"item": item})


def _act(call: Call, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(
        f"{os.environ['TRACED_SHOP_URL']}/{call.operation_id}",
        json=body,
        headers={"Idempotency-Key": call.idempotency_key, **call.trace_headers},
        timeout=call.remaining,
    )
    done: dict[str, Any] = answer.raise_for_status().json()
    return done
