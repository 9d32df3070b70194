"""What the provider books for an order: items of its stock, money of a card, parcels.

    POST   /bookings/{book}             {order, units, operation_id} + Idempotency-Key
    POST   /bookings/{book}/back        the same, taken back
    GET    /bookings?operation_id=      the bookings of an operation (all without it)

Guarantees the same of keys as `refunds` does. `units` are items, hundredths or parcels; what is
taken back stands as a booking of its own with negative units, so that nothing is ever erased.

Does not add up the bookings of an order, so that a duplicate shows in the ledger.
"""

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from examples.shop.provider.errors import InvalidField, UnknownPath
from examples.shop.provider.ledger import Booking, KeptAnswer, Ledger, utc_now
from examples.shop.provider.refunds import (
    DEFAULT_ACCOUNT,
    IDEMPOTENCY_MISMATCH,
    Keys,
    read_name,
)
from examples.shop.provider.wire import Answer, Request, read_object, refuse_unknown

BOOKS = ("stock", "card", "carrier")
BACK = "back"
MOST_UNITS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A booking as asked for."""

    booking: Booking
    digest: str


class Books:
    def __init__(self, *, ledger: Ledger, keys: Keys) -> None:
        self._ledger = ledger
        self._keys = keys

    @contextmanager
    def claim(self, wanted: Wanted) -> Iterator[bool]:
        """Whether the caller may work on the key; it is nobody else's until the block ends."""
        with self._keys.claim(wanted.booking.account, wanted.booking.key) as free:
            yield free

    def perform(
        self, wanted: Wanted, *, instead: Answer | None = None, moves_money: bool = True
    ) -> Answer:
        """Books it, or replays what its key was answered; see `Refunds.perform`."""
        booking = wanted.booking
        answer = instead or Answer.of(200, _as_json(booking))
        kept = None
        if booking.key is not None and self._keys.are_honoured:
            kept = KeptAnswer(
                account=booking.account,
                key=booking.key,
                digest=wanted.digest,
                status=answer.status,
                body=answer.body,
            )
        earlier = self._ledger.record(effect=booking if moves_money else None, kept=kept)
        if earlier is None:
            return answer
        if earlier.digest != wanted.digest:
            return IDEMPOTENCY_MISMATCH
        return Answer(status=earlier.status, body=earlier.body, replayed=True)

    def find(self, operation_id: str | None) -> Answer:
        """The bookings of an operation, or all of them: oldest first."""
        found = self._ledger.bookings(operation_id=operation_id)
        return Answer.of(200, [_as_json(booking) for booking in found])


def read_booking(request: Request) -> Wanted:
    """Raises `UnknownPath`, `InvalidField` or `UnreadableBody`."""
    match request.path.removeprefix("/bookings/").split("/"):
        case [book] if book in BOOKS:
            sign = 1
        case [book, end] if book in BOOKS and end == BACK:
            sign = -1
        case _:
            raise UnknownPath(request.path)
    body = read_object(request.body)
    refuse_unknown(body, known=("order", "units", "operation_id"))
    key = None if request.key is None else read_name("Idempotency-Key", request.key)
    booking = Booking(
        booking_id=f"bk_{secrets.token_hex(8)}",
        account=read_name("Account", request.account or DEFAULT_ACCOUNT),
        book=book,
        order_id=read_name("order", body.get("order")),
        units=sign * _units(body.get("units")),
        operation_id=read_name("operation_id", body.get("operation_id", key)),
        key=key,
        fence_token=request.fence_token,
        committed_at=utc_now(),
    )
    asked = json.dumps([request.path, body], sort_keys=True)
    return Wanted(booking=booking, digest=hashlib.sha256(asked.encode()).hexdigest())


def _as_json(booking: Booking) -> dict[str, object]:
    return {
        "booking_id": booking.booking_id,
        "book": booking.book,
        "order": booking.order_id,
        "units": booking.units,
        "operation_id": booking.operation_id,
        "created_at": booking.committed_at,
    }


def _units(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_UNITS:
        raise InvalidField("units", value, f"give a whole number from 1 to {MOST_UNITS}")
    return value
