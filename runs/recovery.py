"""What to do about an operation whose outcome is unknown: a pure function.

Guarantees: an effect is recorded only on proof; something that may have happened
is sent again only under the same key while the provider still knows it, and never
while an earlier send may be on its way; where nothing more can be asked, a person
is named. The function reads no clock and no row.

Does not yet settle a non-idempotent call by repeated negative look-ups: those go
to a person.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tools import EffectType


@dataclass(frozen=True)
class Facts:
    """What is known about one unknown operation.

    `proof` is evidence that it happened; `refused` the newest refusal that came after
    an outcome was already unknown; `found` the answer of a look-up made just now.
    `in_flight_for` is how many seconds an earlier send may still be on its way.
    """

    effect_type: EffectType
    can_look_up: bool
    key_is_good: bool
    sends: int
    max_sends: int
    look_ups: int
    retry_in: float
    in_flight_for: float = 0.0
    proof: "Proof | None" = None
    refused: str | None = None
    found: Literal["not_found", "indeterminate"] | None = None
    found_why: str = ""


@dataclass(frozen=True)
class Proof:
    """What happened, and which evidence says so (in words)."""

    result: Any
    external_ref: str
    source: str = "evidence"


@dataclass(frozen=True)
class Record:
    """It happened: record this."""

    proof: Proof


@dataclass(frozen=True)
class Reject:
    """It did not happen and will not."""

    reason: str


@dataclass(frozen=True)
class LookUp:
    """Ask the provider."""


@dataclass(frozen=True)
class CallAgain:
    """Repeating it is harmless."""


@dataclass(frozen=True)
class SendSameKey:
    """Repeating it under the same key is one effect at the provider."""


@dataclass(frozen=True)
class AskLater:
    """Nothing may be done for this many seconds."""

    seconds: float


@dataclass(frozen=True)
class NeedsPerson:
    """Nothing that may be asked or sent can settle it."""

    why: str


Recovery = Record | Reject | LookUp | CallAgain | SendSameKey | AskLater | NeedsPerson


def recover(facts: Facts) -> Recovery:
    """The one right next action for an unknown operation."""
    answer = _recover(facts)
    if isinstance(answer, NeedsPerson) and facts.in_flight_for > 0:
        # The answer may still come by itself.
        return AskLater(facts.in_flight_for)
    return answer


def _recover(facts: Facts) -> Recovery:
    if facts.proof is not None:
        return Record(facts.proof)
    if facts.effect_type is EffectType.READ:
        return _recover_read(facts)
    if facts.refused is not None and facts.sends == 1:
        # Only one send was ever made, and this is its answer.
        return Reject(facts.refused)
    if facts.can_look_up and facts.found is None:
        return LookUp()
    if facts.refused is not None:
        # A refusal of a later send does not speak about the first one, which may land yet.
        return NeedsPerson(f"sent before, then refused: {facts.refused}")
    if facts.effect_type is EffectType.IDEMPOTENT_WRITE:
        return _recover_idempotent(facts)
    return NeedsPerson(
        f"a {facts.effect_type} may have happened and "
        + (f"the look-up says {_said(facts)}" if facts.found else "the tool has no look-up")
    )


def _recover_read(facts: Facts) -> Recovery:
    if facts.in_flight_for > 0:
        return AskLater(facts.in_flight_for)
    if facts.sends >= facts.max_sends:
        return Reject(f"no answer in {facts.sends} tries")
    return CallAgain()


def _recover_idempotent(facts: Facts) -> Recovery:
    if facts.found == "indeterminate" and facts.look_ups < facts.max_sends:
        return AskLater(facts.retry_in)
    if not facts.key_is_good:
        return NeedsPerson("the provider may no longer know the idempotency key")
    if facts.in_flight_for > 0:
        return AskLater(facts.in_flight_for)
    if facts.sends >= facts.max_sends:
        return NeedsPerson(f"sent {facts.sends} times under one key without an answer")
    return SendSameKey()


def _said(facts: Facts) -> str:
    said = (facts.found or "").replace("_", " ")
    return f"{said} ({facts.found_why})" if facts.found_why else said
