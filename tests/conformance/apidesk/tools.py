"""Tools for every way in which a call can stand: made, held for a signature, unknown."""

from typing import Any

from tools import Approve, Call, EffectType, Timeout, tool


@tool(effect_type=EffectType.READ, repeatable=True)
def look_up(call: Call, name: str = "", depth: int = 0) -> dict[str, Any]:
    """Look something up."""
    return {"name": name, "depth": depth}


@tool(effect_type=EffectType.IRREVERSIBLE, approval_policy=Approve(), sensitive=("card",))
def wire(call: Call, order: str, amount: int, card: str = "") -> dict[str, Any]:
    """Wire the money, once it is signed."""
    return {"wired": amount}


@tool(
    effect_type=EffectType.NON_IDEMPOTENT_WRITE,
    approval_policy=Approve(when="false"),
    timeout_policy=Timeout(seconds=5),
)
def post(call: Call, letter: str) -> dict[str, Any]:
    """Post a letter, of which nobody hears again."""
    raise ConnectionResetError("by the peer")
