"""Wrong refunds, each with one thing in its declaration or its code that is not so."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx2
import psycopg
from django.db import connection

from tests.conformance.kit_tools import NOTES, Shop, note_tool
from tools import Call, EffectType, NotSent, Reconciled, Rejected

LAG = timedelta(seconds=1.5)
WRITE = EffectType.IDEMPOTENT_WRITE

Plant = Callable[[Shop], Any]


def reads_by_writing(shop: Shop) -> Any:
    return shop.refund(EffectType.READ, reconcile_handler=None)


def looks_up_an_index(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        found = shop.refunds(call, operation_id=call.operation_id)
        before = datetime.now(UTC) - LAG
        indexed = [one for one in found if datetime.fromisoformat(one["created_at"]) < before]
        return (
            Reconciled.committed(indexed[0], external_ref=indexed[0]["refund_id"])
            if indexed
            else Reconciled.not_found()
        )

    return shop.refund(WRITE, reconcile_handler=find)


def looks_up_the_wrong_id(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        assert not shop.refunds(call, operation_id=f"run-{call.run_id}")
        return Reconciled.not_found()

    return shop.refund(WRITE, reconcile_handler=find)


def looks_up_the_amount(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        alike = [one for one in shop.refunds(call) if one["amount"] == call.arguments["amount"]]
        if not alike:
            return Reconciled.not_found()
        return Reconciled.committed(alike[0], external_ref=alike[0]["refund_id"])

    return shop.refund(WRITE, reconcile_handler=find)


def looks_up_and_always_finds(shop: Shop) -> Any:
    return shop.refund(
        WRITE, reconcile_handler=lambda call: Reconciled.committed({"refund_id": "re_1"})
    )


def looks_up_another_result(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        found = shop.find(call)
        if found.verdict != "committed":
            return found
        return Reconciled.committed({"id": found.external_ref}, external_ref=found.external_ref)

    return shop.refund(WRITE, reconcile_handler=find)


def looks_up_and_swallows_errors(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        try:
            return shop.find(call)
        except Exception:
            return Reconciled.not_found()

    return shop.refund(EffectType.NON_IDEMPOTENT_WRITE, reconcile_handler=find)


def looks_up_and_hopes(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        try:
            return shop.find(call)
        except httpx2.HTTPError:
            return Reconciled.committed({"refund_id": "probably"})

    return shop.refund(WRITE, reconcile_handler=find)


def looks_up_and_takes_every_status_for_nothing(shop: Shop) -> Any:
    def find(call: Call) -> Reconciled[Any]:
        answer = shop.client.get(
            f"{shop.process.url}/refunds",
            params={"operation_id": call.operation_id},
            timeout=call.remaining,
        )
        if answer.status_code != 200 or not answer.json():
            return Reconciled.not_found()
        (found,) = answer.json()
        return Reconciled.committed(found, external_ref=found["refund_id"])

    return shop.refund(EffectType.NON_IDEMPOTENT_WRITE, reconcile_handler=find)


def waits_for_ever(shop: Shop) -> Any:
    return shop.refund(
        WRITE, send=lambda call, order, amount: shop.send(call, order, amount, timeout=60.0)
    )


def tries_again_by_itself(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        for _ in range(2):
            try:
                return shop.send(call, order_id, amount)
            except httpx2.TransportError:
                continue
        return shop.send(call, order_id, amount)

    return shop.refund(WRITE, send=send)


def calls_every_error_a_rejection(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        try:
            return shop.send(call, order_id, amount)
        except httpx2.HTTPError as error:
            raise Rejected("the payment failed") from error

    return shop.refund(WRITE, send=send)


def calls_every_error_not_sent(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        try:
            return shop.send(call, order_id, amount)
        except httpx2.HTTPError as error:
            raise NotSent("the payment failed") from error

    return shop.refund(WRITE, send=send)


def returns_its_errors(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        try:
            return shop.send(call, order_id, amount)
        except httpx2.HTTPError as error:
            return {"error": str(error)}

    return shop.refund(WRITE, send=send)


def shows_its_secret(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        try:
            return shop.send(call, order_id, amount)
        except httpx2.HTTPError as error:
            raise RuntimeError(f"could not refund {amount}") from error

    return shop.refund(WRITE, send=send, sensitive=("amount",))


def sends_twice(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        shop.send(call, order_id, amount)
        return shop.send(call, order_id, amount, key=f"{call.idempotency_key}-again")

    return shop.refund(EffectType.NON_IDEMPOTENT_WRITE, send=send)


def is_always_refused(shop: Shop) -> Any:
    def send(call: Call, order_id: str, amount: str) -> dict[str, Any]:
        raise Rejected("no such order")

    return shop.refund(WRITE, send=send)


def is_declared_without_keys(shop: Shop) -> Any:
    return shop.refund(WRITE, provider=shop.provider(idempotency_support="none"))


# Each with what must be found, by name, and in which field.
PLANTED: Final[Mapping[Plant, Mapping[str, str]]] = {
    reads_by_writing: {"read_has_an_effect": "effect_type"},
    looks_up_an_index: {"look_up_lags": "Provider.lookup"},
    looks_up_the_wrong_id: {"look_up_misses": "reconcile_handler"},
    looks_up_the_amount: {"look_up_of_another": "reconcile_handler"},
    looks_up_and_always_finds: {"look_up_invents": "reconcile_handler"},
    looks_up_another_result: {"results_differ": "reconcile_handler"},
    looks_up_and_swallows_errors: {"look_up_hides_errors": "reconcile_handler"},
    looks_up_and_hopes: {"look_up_hides_errors": "reconcile_handler"},
    looks_up_and_takes_every_status_for_nothing: {"look_up_hides_errors": "reconcile_handler"},
    waits_for_ever: {"ignores_deadline": "function", "sends_after_deadline": "function"},
    tries_again_by_itself: {"retries_by_itself": "function"},
    calls_every_error_a_rejection: {"says_rejected": "function"},
    calls_every_error_not_sent: {"says_not_sent": "function"},
    returns_its_errors: {"says_committed": "function"},
    shows_its_secret: {"shows_sensitive": "sensitive"},
    sends_twice: {"two_effects_of_one_call": "function"},
    is_always_refused: {"cannot_be_called": "arguments"},
    is_declared_without_keys: {"tools.E001": "@tool"},
}


def note_by_another_connection() -> Any:
    """TRANSACTIONAL by its word, and in no transaction of ours."""

    def write(call: Call, words: str) -> str:
        of_ours = connection.get_connection_params()
        named = {
            name: of_ours[name]
            for name in ("host", "port", "user", "password", "dbname")
            if name in of_ours
        }
        with psycopg.connect(**named, autocommit=True) as own:
            own.execute(f"INSERT INTO {NOTES} VALUES (%s, %s)".encode(), [call.operation_id, words])
        return words

    return note_tool(write)
