"""One tool without an effect: what is left is the kernel's own work."""

import time

from pydantic import BaseModel

from tools import Call, EffectType, tool


class Performed(BaseModel):
    at: float


@tool(effect_type=EffectType.READ)
def bench_noop(call: Call, number: int) -> Performed:
    """Say when it was called, in seconds since the epoch."""
    return Performed(at=time.time())
