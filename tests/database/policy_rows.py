"""What the tests of policies share: rows, a call to judge, and a second connection."""

from collections.abc import Callable
from decimal import Decimal
from threading import Thread
from typing import Any

from django.db import connection

from tools import Call, EffectType, Provider, tool
from tools.models import ToolPolicy
from tools.registry import isolated_registry
from tools.spec import ToolSpec

PAYMENTS = Provider(name="payments", account="acct_1", idempotency_support="key")


def save_row(name: str, **given: Any) -> ToolPolicy:
    """A row as it is, past every command."""
    said = {"outcome": "require_approval", "version": 1, "author": "ada", "reason": "why", **given}
    if "when" in said:
        said.setdefault("tool", "pay")
    return ToolPolicy.objects.create(name=name, **said)


def call_of(**arguments: Any) -> tuple[ToolSpec, dict[str, Any]]:
    """A tool `pay` of the provider `payments`, and arguments for it."""
    with isolated_registry():

        @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=PAYMENTS, name="pay")
        def pay(call: Call, amount: Decimal = Decimal(1), order: str = "17") -> None:
            """Pay."""

    spec: ToolSpec = pay.spec  # type: ignore[attr-defined]
    return spec, spec.validate(arguments)


def thread_of(work: Callable[[], Any]) -> Thread:
    """`work` in a thread of its own, over a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = Thread(target=run)
    thread.start()
    return thread
