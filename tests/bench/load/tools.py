"""Tools without an effect outside: what is left is the kernel's own work."""

import time
from datetime import timedelta

from django.db import connection
from pydantic import BaseModel

from tools import Call, EffectType, Provider, tool

bank = Provider(
    name="bench bank", idempotency_support="key", idempotency_retention=timedelta(hours=24)
)


class Performed(BaseModel):
    at: float


@tool(effect_type=EffectType.READ)
def bench_noop(call: Call, number: int) -> Performed:
    """Say when it was called, in seconds since the epoch."""
    return Performed(at=time.time())


@tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=bank, intent_key=("number",))
def bench_write(call: Call, number: int) -> Performed:
    """Be a write to the kernel: with a key, an intent, and a window in which it settles."""
    return Performed(at=time.time())


@tool(effect_type=EffectType.TRANSACTIONAL, intent_key=("number",))
def bench_transaction(call: Call, number: int) -> Performed:
    """Run one statement in the transaction that records the outcome."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return Performed(at=time.time())
