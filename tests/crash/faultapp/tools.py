"""A shop's calls to two payment providers, with deadlines of about a second.

Each write is declared as its provider deserves. `payments` honours keys, so its refunds are
IDEMPOTENT_WRITEs; `keyless` does not, so refunds there are NON_IDEMPOTENT_WRITEs, and those of
a name with `blind` in it cannot be looked up.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from tests.crash.faultapp import bookings as bookings
from tests.crash.faultapp.payments import (
    SECOND,
    SOON,
    STUBBORN_SECONDS,
    Refund,
    client,
    find_in_list,
    find_keyless_refund,
    find_refund,
    keyless,
    payments,
    place_refund,
    place_sleepily,
    url_of,
)
from tools import Approve, Call, EffectType, Provider, Reconciled, Retry, Timeout, tool

KEYED = EffectType.IDEMPOTENT_WRITE
UNKEYED = EffectType.NON_IDEMPOTENT_WRITE


@tool(provider=payments, effect_type=EffectType.READ, timeout_policy=SECOND, retry_policy=SOON)
def read_order(call: Call, order_id: str) -> dict[str, Any]:
    """Read an order."""
    answer = client.get(url_of(payments, f"/orders/{order_id}"), timeout=call.remaining)
    order: dict[str, Any] = answer.raise_for_status().json()
    return order


def declare(
    name: str,
    effect_type: EffectType,
    *,
    place: Callable[..., Refund] = place_refund,
    timeout_policy: Timeout = SECOND,
    retry_policy: Retry = SOON,
    **facts: Any,
) -> None:
    """Register a tool that refunds at the provider that fits its effect type."""
    at: Provider = payments if effect_type is KEYED else keyless

    @tool(
        name=name,
        provider=at,
        effect_type=effect_type,
        timeout_policy=timeout_policy,
        retry_policy=retry_policy,
        **facts,
    )
    def refund(call: Call, order_id: str, amount: str) -> Refund:
        """Refund an order."""
        return place(call, at=at, order_id=order_id, amount=amount)


stubbornly = partial(place_refund, seconds=STUBBORN_SECONDS)
HALF_A_SECOND = Timeout(seconds=0.5)

declare("refund", KEYED, reconcile_handler=find_refund)
declare("blind_refund", KEYED)
# For a provider that takes several leases to answer.
declare("patient_refund", KEYED, reconcile_handler=find_refund, timeout_policy=Timeout(seconds=8.0))
# Waits for its answer, deadline or not.
declare(
    "stubborn_refund",
    KEYED,
    place=stubbornly,
    reconcile_handler=find_refund,
    timeout_policy=HALF_A_SECOND,
)
declare("sleepy_refund", KEYED, place=place_sleepily, reconcile_handler=find_refund)
# Its key is past its retention before it could be sent a second time.
SHORT_LIVED: dict[str, Any] = {
    "idempotency_retention": timedelta(seconds=2),
    "retry_policy": Retry(max_attempts=12, first_delay=2.0, max_delay=2.0),
}
declare("expiring_refund", KEYED, reconcile_handler=find_refund, **SHORT_LIVED)
declare("expiring_blind_refund", KEYED, **SHORT_LIVED)
declare(
    "hasty_refund",
    KEYED,
    reconcile_handler=find_refund,
    retry_policy=Retry(max_attempts=2, first_delay=0.1, max_delay=0.1),
)

declare("unkeyed_refund", UNKEYED, reconcile_handler=find_keyless_refund)
# Longer, for it has no second chance on a machine that stands still for a moment.
declare("unkeyed_blind_refund", UNKEYED, timeout_policy=Timeout(seconds=2.0))
# As long as a real provider's window: "not found" is never believed within a test.
declare(
    "unkeyed_doubtful_refund",
    UNKEYED,
    reconcile_handler=find_keyless_refund,
    settle_window=timedelta(minutes=15),
)
# One is asked about many times before its window is over, the other at first after it.
declare(
    "unkeyed_eager_refund",
    UNKEYED,
    reconcile_handler=find_keyless_refund,
    settle_window=timedelta(seconds=2),
    retry_policy=Retry(max_attempts=12, first_delay=0.05, max_delay=0.05),
)
declare(
    "unkeyed_lazy_refund",
    UNKEYED,
    reconcile_handler=find_keyless_refund,
    settle_window=timedelta(seconds=0.2),
    retry_policy=Retry(max_attempts=12, first_delay=0.5, max_delay=0.5),
)
declare(
    "unkeyed_sleepy_refund", UNKEYED, place=place_sleepily, reconcile_handler=find_keyless_refund
)
declare("unkeyed_blind_sleepy_refund", UNKEYED, place=place_sleepily)
declare("unkeyed_blind_stubborn_refund", UNKEYED, place=stubbornly, timeout_policy=HALF_A_SECOND)
declare(
    "unkeyed_listed_refund",
    UNKEYED,
    reconcile_handler=find_in_list,
    reconcile_within=timedelta(seconds=3),
)
declare(
    "irreversible_refund",
    EffectType.IRREVERSIBLE,
    reconcile_handler=find_keyless_refund,
    approval_policy=Approve(when="false"),
)
declare("signed_refund", KEYED, reconcile_handler=find_refund, approval_policy=Approve(quorum=2))
declare(
    "signed_unkeyed_refund",
    UNKEYED,
    reconcile_handler=find_keyless_refund,
    settle_window=timedelta(seconds=0.2),
    approval_policy=Approve(),
)
declare("refund_beside", KEYED, reconcile_handler=find_refund, parallel=True)
declare("gift", UNKEYED, reconcile_handler=find_keyless_refund, repeatable=True)


def find_thing(call: Call) -> Reconciled[dict[str, Any]]:
    """The thing of this name, if it is as this call would have made it."""
    answer = client.get(_thing_url(call.arguments["name"]), timeout=call.remaining)
    if answer.status_code == 404:
        return Reconciled.not_found()
    found = answer.raise_for_status().json()
    if found["maker"] != call.operation_id:
        return Reconciled.indeterminate("a thing of this name exists that somebody else made")
    return Reconciled.committed(found, external_ref=found["name"])


@tool(
    provider=keyless,
    effect_type=KEYED,
    idempotency_support="natural_id",
    reconcile_handler=find_thing,
    reconcile_within=timedelta(seconds=2),
    timeout_policy=SECOND,
    retry_policy=Retry(max_attempts=3, first_delay=0.1, max_delay=0.1),
)
def create_thing(call: Call, name: str) -> dict[str, Any]:
    """Create a thing under a name that only one thing can have."""
    answer = client.put(
        _thing_url(name),
        json={"name": name, "maker": call.operation_id},
        headers={"If-None-Match": "*"},
        timeout=call.remaining,
    )
    made: dict[str, Any] = answer.raise_for_status().json()
    return made


def _thing_url(name: str) -> str:
    return os.environ["KEYLESS_PAYMENTS_URL"].rstrip("/") + f"/things/{name}"
