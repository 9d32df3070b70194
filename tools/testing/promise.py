"""What is promised of an operation, whatever happened on its way.

    READ              no effect
    TRANSACTIONAL     exactly one, and never a doubt
    any other write   never two; never closed as rejected while the effect is there; never
                      recorded as committed without it; and where nobody can know, it stands
                      before a person, with the reason

Guarantees: pure; it looks at the end alone and not at how the kernel came there.
"""

from dataclasses import dataclass
from typing import Final

from tools.declarations import EffectType

A_PERSON: Final = "a person"
UNSETTLED: Final = "unknown"
COMMITTED: Final = "COMMITTED"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Where an operation stands when nobody works on it any more, and why."""

    ended: str
    effects: int
    reason: str


def breach(effect_type: EffectType, ending: Ending) -> str:
    """What of the promise was not kept, in words; empty if all of it was."""
    effects, ended = ending.effects, ending.ended
    if ended == UNSETTLED:
        return f"still not settled, and nobody was asked: {ending.reason}"
    if effect_type is EffectType.READ:
        return f"a READ left {effects} effects" if effects else ""
    if effects > 1:
        return f"{effects} effects of one operation"
    if ended == COMMITTED and not effects:
        return "recorded as committed, and there is no effect"
    if effect_type is EffectType.TRANSACTIONAL and ended != COMMITTED:
        return f"a TRANSACTIONAL operation ended as {ended}: {ending.reason}"
    if ended == A_PERSON:
        return "" if ending.reason else "a person is asked, and not told why"
    if ended != COMMITTED and effects:
        return f"ended as {ended} while the effect is there"
    return ""
