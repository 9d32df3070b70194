"""How the crash tests' tools talk to a payment provider, and what its providers promise.

A provider that honours keys is at `SHOP_PAYMENTS_URL`, one that ignores them at
`KEYLESS_PAYMENTS_URL`. Every request asks `call.remaining` for its time-out, but those of a
tool that is told to be stubborn.
"""

import os
import signal
from datetime import timedelta

import httpx2
from pydantic import BaseModel

from tests.crash.faultapp.faults import strike_here
from tools import Call, Provider, Reconciled, Retry, Timeout, external_ref
from tools.window import trace

# No connection is kept: a stale one would be a fault that no test asked for.
client = httpx2.Client(
    transport=httpx2.HTTPTransport(retries=0, limits=httpx2.Limits(max_keepalive_connections=0))
)

# Far below what a real provider needs, so that tests need not wait.
SETTLES = timedelta(seconds=1)
payments = Provider(
    name="crash payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
    settle_window=SETTLES,
)
keyless = Provider(
    name="crash payments without keys",
    account="acct_main",
    lookup="by_key",
    settle_window=SETTLES,
)
SOON = Retry(max_attempts=12, first_delay=0.2, max_delay=0.4)
SECOND = Timeout(seconds=1.0)
STUBBORN_SECONDS = 60.0


class Refund(BaseModel):
    refund_id: str
    amount: str


def url_of(provider: Provider, path: str) -> str:
    variable = "SHOP_PAYMENTS_URL" if provider is payments else "KEYLESS_PAYMENTS_URL"
    return os.environ[variable].rstrip("/") + path


def place_refund(
    call: Call, *, at: Provider, order_id: str, amount: str, seconds: float | None = None
) -> Refund:
    answer = client.post(
        url_of(at, "/refunds"),
        json={"order": order_id, "amount": amount, "operation_id": call.operation_id},
        headers={
            "Idempotency-Key": call.idempotency_key,
            "Fence-Token": str(call.fence_token),
        },
        timeout=call.remaining if seconds is None else seconds,
        extensions={"trace": trace(call)},
    )
    made = Refund(**answer.raise_for_status().json())
    external_ref(made.refund_id)
    return made


def place_sleepily(call: Call, *, at: Provider, order_id: str, amount: str) -> Refund:
    """The first worker stands still after its last look at the deadline."""
    seconds = call.remaining
    if call.fence_token == 1:
        strike_here(signal.SIGSTOP)
    return place_refund(call, at=at, order_id=order_id, amount=amount, seconds=seconds)


def find_refund(call: Call) -> Reconciled[Refund]:
    return _find(call, at=payments)


def find_keyless_refund(call: Call) -> Reconciled[Refund]:
    return _find(call, at=keyless)


def find_in_list(call: Call) -> Reconciled[Refund]:
    """Read the list of all refunds, which proves nothing unless it is whole."""
    answer = client.get(url_of(keyless, "/refunds"), timeout=call.remaining)
    listed = answer.raise_for_status().json()
    found = [refund for refund in listed if refund["operation_id"] == call.operation_id]
    if not found and answer.headers.get("Has-More"):
        return Reconciled.indeterminate("only the first page of the list could be read")
    return _tell(found)


def _find(call: Call, *, at: Provider) -> Reconciled[Refund]:
    answer = client.get(
        url_of(at, "/refunds"),
        params={"operation_id": call.operation_id},
        timeout=call.remaining,
    )
    return _tell(answer.raise_for_status().json())


def _tell(found: list[dict[str, str]]) -> Reconciled[Refund]:
    if not found:
        return Reconciled.not_found()
    first, *further = [Refund(refund_id=one["refund_id"], amount=one["amount"]) for one in found]
    return Reconciled.committed(
        first,
        external_ref=first.refund_id,
        also=[refund.refund_id for refund in further],
    )
