"""Tools for the kit's own tests: one of each effect type, sound, over a real provider.

The provider is the shop's, in its own process; each tool is made anew for the test that
checks it, over the provider that the test has started.
"""

from datetime import timedelta
from typing import Any

import httpx2
from django.db import connection

from examples.shop.provider_process import ProviderProcess
from tools import Call, EffectType, Provider, Reconciled, external_ref, tool
from tools.testing import Intended

ORDER = "21"
TABLE = "kit_notes"


def arguments(number: int) -> dict[str, Any]:
    """An amount that no other call has."""
    return {"order_id": ORDER, "amount": f"{1 + number // 100}.{number % 100:02}"}


class Shop:
    """Refunds at one provider, as tools of any declaration, and how many there are."""

    def __init__(self, process: ProviderProcess) -> None:
        self.process = process
        self.client = httpx2.Client(transport=httpx2.HTTPTransport(retries=0))

    def count(self, intended: Intended) -> int:
        return len(self.process.effects(intended.operation_id))

    def provider(self, **facts: Any) -> Provider:
        honest = {
            "name": "shop payments",
            "account": "acct_main",
            "idempotency_support": "key",
            "idempotency_scope": "account",
            "idempotency_retention": timedelta(hours=24),
            "lookup": "by_key",
        }
        return Provider(**(honest | facts))

    def send(self, call: Call, order_id: str, amount: str, *, timeout: float) -> dict[str, Any]:
        answer = self.client.post(
            f"{self.process.url}/refunds",
            json={"order": order_id, "amount": amount, "operation_id": call.operation_id},
            headers={"Idempotency-Key": call.idempotency_key},
            timeout=timeout,
        )
        made: dict[str, Any] = answer.raise_for_status().json()
        external_ref(made["refund_id"])
        return made

    def find(self, call: Call) -> Reconciled[dict[str, Any]]:
        answer = self.client.get(
            f"{self.process.url}/refunds",
            params={"operation_id": call.operation_id},
            timeout=call.remaining,
        )
        found = answer.raise_for_status().json()
        if not found:
            return Reconciled.not_found()
        return Reconciled.committed(found[0], external_ref=found[0]["refund_id"])

    def refund(self, effect_type: EffectType, **declared: Any) -> Any:
        """A refund that is declared like this, over a provider of which `facts` are said."""
        facts = {} if effect_type is EffectType.IDEMPOTENT_WRITE else {"idempotency_support": "none"}

        @tool(
            **{"provider": self.provider(**facts), "reconcile_handler": self.find}
            | {"effect_type": effect_type, "name": "refund"}
            | declared
        )
        def refund(call: Call, order_id: str, amount: str) -> dict[str, Any]:
            """Refund an order."""
            return self.send(call, order_id, amount, timeout=call.remaining)

        return refund
