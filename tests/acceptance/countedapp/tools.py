"""Reads nobody: no provider has to run."""

from tools import Call, EffectType, tool


@tool(effect_type=EffectType.READ)
def add(call: Call, one: int, other: int) -> int:
    """Add two numbers."""
    return one + other
