"""What the provider does with a refund, and what it makes of an idempotency key.

Guarantees while keys are honoured: one effect per account and key. The same key and body is
answered as the first time, refusals included; the same key with another body is 422
`idempotency_mismatch`; a key whose first request is still being worked on is 409. A key that was
forgotten is a new key.

Does not add up the refunds of an order: a second one goes through, so that a duplicate shows in
the ledger instead of hiding behind a refusal. Does not look at the fencing token; it notes it.
"""

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from examples.shop.provider.errors import InvalidField
from examples.shop.provider.ledger import Effect, KeptAnswer, Ledger, utc_now
from examples.shop.provider.wire import Answer, Request, read_object, refuse_unknown

DEFAULT_ACCOUNT = "acct_main"
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?", re.ASCII)
NAME = re.compile(r"[!-~]{1,255}", re.ASCII)

KEY_IN_FLIGHT = Answer.of(
    409,
    {
        "error": "key_in_flight",
        "message": "the first request with this Idempotency-Key is still being worked on",
    },
)
IDEMPOTENCY_MISMATCH = Answer.of(
    422,
    {
        "error": "idempotency_mismatch",
        "message": "this Idempotency-Key was first used with another body",
    },
)


@dataclass(frozen=True, kw_only=True)
class Order:
    order_id: str
    customer: str
    paid_cents: int

    def as_json(self) -> dict[str, object]:
        return {
            "order_id": self.order_id,
            "customer": self.customer,
            "paid": in_units(self.paid_cents),
            "currency": "EUR",
        }


ORDERS = {
    order.order_id: order
    for order in (
        Order(order_id="17", customer="customer-4", paid_cents=42_00),
        Order(order_id="18", customer="customer-4", paid_cents=120_00),
        Order(order_id="19", customer="customer-7", paid_cents=500_00),
        Order(order_id="20", customer="customer-8", paid_cents=800_00),
        Order(order_id="21", customer="customer-9", paid_cents=12_500_50),
    )
}


@dataclass(frozen=True, kw_only=True)
class Refund:
    """A refund as asked for, understood but not yet judged."""

    account: str
    key: str | None
    fence_token: str | None
    order_id: str
    cents: int
    operation_id: str
    digest: str


class Keys:
    """The idempotency keys that are being worked on."""

    def __init__(self, *, are_honoured: bool) -> None:
        self.are_honoured = are_honoured
        self._turn = threading.Lock()
        # Kept in memory on purpose: after a crash no key may stay "in flight" for ever.
        self._in_flight: set[tuple[str, str]] = set()

    @contextmanager
    def claim(self, account: str, key: str | None) -> Iterator[bool]:
        """Whether the caller may work on the key; it is nobody else's until the block ends."""
        if key is None or not self.are_honoured:
            yield True
            return
        name = (account, key)
        with self._turn:
            free = name not in self._in_flight
            if free:
                self._in_flight.add(name)
        try:
            yield free
        finally:
            if free:
                with self._turn:
                    self._in_flight.discard(name)


class Refunds:
    def __init__(self, *, ledger: Ledger, keys: Keys) -> None:
        self._ledger = ledger
        self._keys = keys

    @contextmanager
    def claim(self, refund: Refund) -> Iterator[bool]:
        """Whether the caller may work on the key; it is nobody else's until the block ends."""
        with self._keys.claim(refund.account, refund.key) as free:
            yield free

    def perform(
        self, refund: Refund, *, instead: Answer | None = None, moves_money: bool = True
    ) -> Answer:
        """Carries the refund out, or replays what its key was answered.

        The answer is on disk with the effect. `instead` is kept and given in place of the true
        answer. Call it inside `claim`.
        """
        answer, effect = _judge(refund)
        answer = instead or answer
        earlier = self._ledger.record(
            effect=effect if moves_money else None, kept=self._to_keep(refund, answer)
        )
        if earlier is None:
            return answer
        if earlier.digest != refund.digest:
            return IDEMPOTENCY_MISMATCH
        return Answer(status=earlier.status, body=earlier.body, replayed=True)

    def find(
        self,
        operation_id: str | None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        behind: float = 0.0,
        first: int | None = None,
    ) -> Answer:
        """The refunds of an operation, or all of them, of a span or at any time: oldest first.

        As they stood `behind` seconds ago; the `first` ones alone say that there may be more.
        """
        found = self._ledger.effects(operation_id=operation_id)
        if since is not None:
            found = [one for one in found if datetime.fromisoformat(one.committed_at) >= since]
        if until is not None:
            found = [one for one in found if datetime.fromisoformat(one.committed_at) < until]
        if behind:
            then = datetime.now(UTC) - timedelta(seconds=behind)
            found = [one for one in found if datetime.fromisoformat(one.committed_at) <= then]
        answer = Answer.of(200, [_as_json(effect) for effect in found[:first]])
        return answer if first is None else replace(answer, has_more=True)

    def forget_keys(self) -> int:
        """Forgets what every key was answered, as at the end of its retention; returns how many."""
        return self._ledger.forget_answers()

    def _to_keep(self, refund: Refund, answer: Answer) -> KeptAnswer | None:
        if refund.key is None or not self._keys.are_honoured:
            return None
        return KeptAnswer(
            account=refund.account,
            key=refund.key,
            digest=refund.digest,
            status=answer.status,
            body=answer.body,
        )


def rejection(reason: str) -> Answer:
    """The refund was understood and will never be carried out."""
    return Answer.of(422, {"error": "rejected", "reason": reason})


def read_refund(request: Request) -> Refund:
    """Raises `InvalidField` or `UnreadableBody`."""
    body = read_object(request.body)
    refuse_unknown(body, known=("order", "amount", "operation_id"))
    key = None if request.key is None else read_name("Idempotency-Key", request.key)
    return Refund(
        account=read_name("Account", request.account or DEFAULT_ACCOUNT),
        key=key,
        fence_token=request.fence_token,
        order_id=read_name("order", body.get("order")),
        cents=_cents(body.get("amount")),
        # A caller that sends only a key can still find its refund by that key.
        operation_id=read_name("operation_id", body.get("operation_id", key)),
        digest=hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(),
    )


def in_units(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _judge(refund: Refund) -> tuple[Answer, Effect | None]:
    order = ORDERS.get(refund.order_id)
    if order is None:
        return rejection(f"there is no order {refund.order_id}"), None
    if refund.cents > order.paid_cents:
        asked, paid = in_units(refund.cents), in_units(order.paid_cents)
        return rejection(f"{asked} is more than the {paid} paid for order {order.order_id}"), None
    effect = Effect(
        refund_id=f"re_{secrets.token_hex(8)}",
        account=refund.account,
        order_id=order.order_id,
        cents=refund.cents,
        operation_id=refund.operation_id,
        key=refund.key,
        fence_token=refund.fence_token,
        committed_at=utc_now(),
    )
    return Answer.of(200, _as_json(effect)), effect


def _as_json(effect: Effect) -> dict[str, object]:
    return {
        "refund_id": effect.refund_id,
        "order": effect.order_id,
        "amount": in_units(effect.cents),
        "operation_id": effect.operation_id,
        "created_at": effect.committed_at,
    }


def read_name(field: str, value: object) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise InvalidField(field, value, "give 1 to 255 visible ASCII characters")
    return value


def _cents(value: object) -> int:
    fix = 'give an amount above zero as text with at most two decimals, like "42.00"'
    if not isinstance(value, str) or AMOUNT.fullmatch(value) is None:
        raise InvalidField("amount", value, fix)
    units, _, hundredths = value.partition(".")
    cents = int(units) * 100 + int(hundredths.ljust(2, "0"))
    if cents == 0:
        raise InvalidField("amount", value, fix)
    return cents
