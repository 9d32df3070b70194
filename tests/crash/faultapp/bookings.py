"""What is booked at the provider and taken back: the tools of a saga, with short deadlines."""

from functools import partial
from typing import Any

from tests.crash.faultapp.payments import SECOND, SOON, client, payments, url_of
from tools import Call, EffectType, Reconciled, external_ref, tool


def find_booking(call: Call) -> Reconciled[dict[str, Any]]:
    """What this operation booked, as the provider says."""
    answer = client.get(
        url_of(payments, "/bookings"),
        params={"operation_id": call.operation_id},
        timeout=call.remaining,
    )
    found = answer.raise_for_status().json()
    if not found:
        return Reconciled.not_found()
    return Reconciled.committed(found[0], external_ref=found[0]["booking_id"])


booked = partial(
    tool,
    provider=payments,
    effect_type=EffectType.IDEMPOTENT_WRITE,
    reconcile_handler=find_booking,
    timeout_policy=SECOND,
    retry_policy=SOON,
)


@booked(compensation_handler="put_back")
def take_items(call: Call, order_id: str, units: int) -> dict[str, Any]:
    """Take items from the stock."""
    return _book(call, "stock", order_id=order_id, units=units)


@booked()
def put_back(call: Call, order_id: str, units: int) -> dict[str, Any]:
    """Put them back."""
    return _book(call, "stock/back", order_id=order_id, units=units)


@booked(compensation_handler="give_back")
def charge(call: Call, order_id: str, units: int) -> dict[str, Any]:
    """Charge the card."""
    return _book(call, "card", order_id=order_id, units=units)


@booked()
def give_back(call: Call, order_id: str, units: int) -> dict[str, Any]:
    """Give the money back."""
    return _book(call, "card/back", order_id=order_id, units=units)


def _book(call: Call, path: str, *, order_id: str, units: int) -> dict[str, Any]:
    answer = client.post(
        url_of(payments, f"/bookings/{path}"),
        json={"order": order_id, "units": units, "operation_id": call.operation_id},
        headers={"Idempotency-Key": call.idempotency_key, "Fence-Token": str(call.fence_token)},
        timeout=call.remaining,
    )
    made: dict[str, Any] = answer.raise_for_status().json()
    external_ref(made["booking_id"])
    return made
