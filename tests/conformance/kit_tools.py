"""Tools for the kit's own tests, made anew for each over a real provider.

The provider is the shop's: its own process, HTTP, books on disk. A test says how a refund
is declared, sent and looked up, and what is not said is sound.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx2
from django.db import connection

from examples.shop.provider_process import ProviderProcess
from tools import Call, EffectType, Provider, Reconciled, external_ref, tool
from tools.testing import Intended

ORDER = "21"
NOTES = "kit_notes"

Send = Callable[..., dict[str, Any]]
Find = Callable[[Call], Reconciled[Any]]


def new_refund(number: int) -> dict[str, Any]:
    """An amount that no other call of a test has."""
    return {"order_id": ORDER, "amount": f"{1 + number // 100}.{number % 100:02}"}


class Shop:
    """Refunds at one provider, as tools of any declaration, and how many there are."""

    def __init__(self, process: ProviderProcess) -> None:
        self.process = process
        # It speaks plain HTTP: the certificates of the world need not be read for each shop.
        self.client = httpx2.Client(transport=httpx2.HTTPTransport(retries=0, verify=False))

    def count(self, intended: Intended) -> int:
        return len(self.process.effects(intended.operation_id))

    def provider(self, **facts: Any) -> Provider:
        honest: dict[str, Any] = {
            "name": "shop payments",
            "account": "acct_main",
            "idempotency_support": "key",
            "idempotency_scope": "account",
            "idempotency_retention": timedelta(hours=24),
            "lookup": "by_key",
        }
        return Provider(**(honest | facts))

    def refund(self, effect_type: EffectType, *, send: Send | None = None, **declared: Any) -> Any:
        """A tool that refunds by `send(call, order_id, amount)`, declared as it is said."""
        keyless = {"idempotency_support": "none", "idempotency_retention": None}
        facts = {} if effect_type is EffectType.IDEMPOTENT_WRITE else keyless
        how = send or self.send
        sound: dict[str, Any] = {
            "effect_type": effect_type,
            "provider": self.provider(**facts),
            "reconcile_handler": self.find,
        }

        @tool(name="refund", **(sound | declared))
        def refund(call: Call, order_id: str, amount: str) -> dict[str, Any]:
            """Refund an order."""
            return how(call, order_id, amount)

        return refund

    def read(self) -> Any:
        """A tool that reads an order."""

        @tool(name="read_order", effect_type=EffectType.READ, provider=self.provider())
        def read_order(call: Call, order_id: str) -> dict[str, Any]:
            """Read an order."""
            answer = self.client.get(
                f"{self.process.url}/orders/{order_id}", timeout=call.remaining
            )
            order: dict[str, Any] = answer.raise_for_status().json()
            return order

        return read_order

    def send(
        self,
        call: Call,
        order_id: str,
        amount: str,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        answer = self.client.post(
            f"{self.process.url}/refunds",
            json={"order": order_id, "amount": amount, "operation_id": call.operation_id},
            headers={"Idempotency-Key": key or call.idempotency_key},
            timeout=call.remaining if timeout is None else timeout,
        )
        made: dict[str, Any] = answer.raise_for_status().json()
        external_ref(made["refund_id"])
        return made

    def find(self, call: Call) -> Reconciled[Any]:
        found = self.refunds(call, operation_id=call.operation_id)
        if not found:
            return Reconciled.not_found()
        return Reconciled.committed(found[0], external_ref=found[0]["refund_id"])

    def refunds(self, call: Call, **query: str) -> list[dict[str, Any]]:
        answer = self.client.get(
            f"{self.process.url}/refunds", params=query, timeout=call.remaining
        )
        found: list[dict[str, Any]] = answer.raise_for_status().json()
        return found


# -- A tool of our own database -------------------------------------------------------


@contextmanager
def notes_table() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {NOTES} (operation_id text, words text)")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {NOTES}")


def count_notes(intended: Intended) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT count(*) FROM {NOTES} WHERE operation_id = %s", [intended.operation_id]
        )
        return int(cursor.fetchone()[0])


def write_note(call: Call, words: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {NOTES} VALUES (%s, %s)", [call.operation_id, words])
    return words


def note_tool(write: Callable[[Call, str], str] = write_note) -> Any:
    @tool(name="take_note", effect_type=EffectType.TRANSACTIONAL)
    def take_note(call: Call, words: str) -> str:
        """Keep a note."""
        return write(call, words)

    return take_note
