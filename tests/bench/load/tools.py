"""Tools without an effect outside: what is left is the kernel's own work."""

import os
import time
from datetime import timedelta

import httpx2
from django.db import connection
from pydantic import BaseModel

from tools import Call, EffectType, Provider, tool

bank = Provider(
    name="bench bank", idempotency_support="key", idempotency_retention=timedelta(hours=24)
)


class Performed(BaseModel):
    at: float


# One for the process, as a provider's own library keeps one.
_client = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=64))


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


@tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=bank, intent_key=("number",))
def bench_call(call: Call, number: int) -> str:
    """Ask the provider that BENCH_PROVIDER names, over HTTP."""
    answer = _client.post(
        os.environ["BENCH_PROVIDER"],
        json={"number": number},
        headers={"Idempotency-Key": call.idempotency_key},
        timeout=call.remaining,
    )
    return str(answer.raise_for_status().json()["id"])
