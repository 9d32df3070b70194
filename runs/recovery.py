"""What to do about an operation whose outcome is unknown: a pure function.

    effect type            look-up proves it   look-up says not found   nothing says anything
    READ                   -                   call again               call again
    TRANSACTIONAL          record              call again               call again
    IDEMPOTENT_WRITE       record              same key, while kept     same key, while kept
    NON_IDEMPOTENT_WRITE   record              again once settled       ask on, then a person
    IRREVERSIBLE           record              a person                 a person

An IDEMPOTENT_WRITE whose key is no longer kept, whose tries are used up, or whose arguments
were stored for another version of its tool is asked about like a NON_IDEMPOTENT_WRITE, and
never sent again under its key.

Guarantees: an effect is recorded only on proof; something that may have happened is sent
again only under a key that the provider still knows, or once it is *settled* that it did
not happen; never while an earlier send may be on its way, and never under a key past its
retention; where nothing more can be asked in time, a person is named. The function reads
no clock and no row.

Does not say what counts as settled (`settling.py`), and trusts a look-up's proof.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from runs.settling import Settling
from tools import EffectType

Key = Literal["kept", "expired", "none"]

NOT_BACK: Final = "a call that was made for it has not come back"
OUTDATED: Final = "its arguments were stored for another version of its tool"
# From harmless to repeat to never to be repeated. A declaration that changed while an
# operation was unknown counts only in the stricter direction.
_STRICTER: Final = tuple(EffectType)


@dataclass(frozen=True)
class Proof:
    """What happened, and which evidence says so (in words)."""

    result: Any
    external_ref: str
    source: str = "evidence"


@dataclass(frozen=True)
class Facts:
    """What is known about one unknown operation. All times are seconds from now.

    `key` is what the provider's promise makes of the idempotency key; `sends` and
    `look_ups` count those begun. `objective_in` is when a person is asked instead of the
    provider; `retry_in` the next delay of the tool's back-off; `in_flight_for` how long an
    earlier send may still be on its way from this side.

    `proof` is evidence that it happened; `refused` the newest refusal that came after an
    outcome was already unknown; `found` the answer of a look-up made just now. `nothing_left`
    says that every send has come back with the word that no byte of it left. A run that is
    to be cancelled may not send: it settles what may have happened and makes nothing happen.
    What `is_outdated` is never sent as it is recorded: `CallAgain` then says that it may be planned
    anew.
    """

    effect_type: EffectType
    can_look_up: bool
    key: Key
    sends: int
    max_sends: int
    retry_in: float
    objective_in: float
    unknown_for: float = 0.0
    in_flight_for: float = 0.0
    settling: Settling = field(default_factory=Settling)
    proof: Proof | None = None
    refused: str | None = None
    may_send: bool = True
    is_outdated: bool = False
    nothing_left: bool = False
    found: Literal["not_found", "indeterminate", "failed"] | None = None
    found_why: str = ""


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
    """Repeating it is harmless, or it is settled that it did not happen."""


@dataclass(frozen=True)
class SendSameKey:
    """Repeating it under the same key is one effect at the provider."""


@dataclass(frozen=True)
class AskLater:
    """Nothing may be done for this many seconds."""

    seconds: float


@dataclass(frozen=True)
class NeedsPerson:
    """Nothing that may be asked or sent can settle it. `overdue`: not within the objective."""

    why: str
    overdue: bool = False


Recovery = Record | Reject | LookUp | CallAgain | SendSameKey | AskLater | NeedsPerson


def stricter(one: EffectType, other: EffectType) -> EffectType:
    """The one of two effect types that allows less."""
    return max(one, other, key=_STRICTER.index)


def recover(facts: Facts) -> Recovery:
    """The one right next action for an unknown operation."""
    answer = _recover(facts)
    if isinstance(answer, NeedsPerson) and facts.in_flight_for > 0:
        if facts.objective_in > 0:
            # The answer may still come by itself.
            return AskLater(min(facts.in_flight_for, facts.objective_in))
        return NeedsPerson(answer.why, overdue=True)
    return answer


def _recover(facts: Facts) -> Recovery:
    if facts.proof is not None:
        return Record(facts.proof)
    harmless = facts.effect_type in (EffectType.READ, EffectType.TRANSACTIONAL)
    if harmless or facts.nothing_left:
        return _recover_harmless(facts)
    if facts.refused is not None and facts.sends == 1:
        # Only one send was ever made, and this is its answer.
        return Reject(facts.refused)
    if facts.can_look_up and facts.found is None:
        return LookUp()
    if facts.effect_type is EffectType.IRREVERSIBLE:
        if facts.found == "failed" and facts.objective_in > 0:
            # Nobody has been asked yet.
            return AskLater(min(facts.retry_in, facts.objective_in))
        return NeedsPerson(f"an IRREVERSIBLE call may have happened and {_said(facts)}")
    if facts.refused is None and facts.effect_type is EffectType.IDEMPOTENT_WRITE:
        return _recover_idempotent(facts)
    return _settle(facts)


def _recover_harmless(facts: Facts) -> Recovery:
    if not facts.may_send:
        return Reject("cancelled before there was an answer")
    if facts.in_flight_for > 0 and facts.objective_in > 0:
        return AskLater(min(facts.in_flight_for, facts.objective_in))
    if facts.in_flight_for > 0:
        return Reject(f"no answer within the objective, and {NOT_BACK}")
    if facts.sends >= facts.max_sends:
        what = "never sent" if facts.nothing_left else "no answer"
        return Reject(f"{what} in {facts.sends} tries")
    return CallAgain()


def _recover_idempotent(facts: Facts) -> Recovery:
    is_kept = facts.key == "kept" and not facts.is_outdated
    if not is_kept or facts.sends >= facts.max_sends or not facts.may_send:
        return _settle(facts)
    if facts.in_flight_for > 0:
        return NeedsPerson(f"it may have happened, and {NOT_BACK}")
    return SendSameKey()


def _settle(facts: Facts) -> Recovery:
    """What may not simply be repeated: ask until it is settled, or the objective is over."""
    settling = facts.settling
    if facts.found == "not_found" and settling.is_settled:
        return _repeat_settled(facts)
    if not facts.can_look_up:
        return NeedsPerson(f"{_what(facts)} and the tool has no look-up")
    if facts.objective_in <= 0:
        return NeedsPerson(
            f"{_what(facts)}, {_said(facts)}, and {settling.lacks}"
            if facts.found == "not_found"
            else f"{_what(facts)} and {_said(facts)}",
            overdue=True,
        )
    wait = facts.retry_in
    if facts.found == "not_found":
        wait = settling.next_useful(wait)
    return AskLater(min(wait, max(facts.objective_in, 1.0)))


def _repeat_settled(facts: Facts) -> Recovery:
    if facts.in_flight_for > 0:
        return NeedsPerson(f"it is not found, and {NOT_BACK}")
    if facts.refused is not None:
        # The refusal was a later send's answer; now the earlier ones are settled too.
        return Reject(facts.refused)
    if not facts.may_send:
        return Reject("it did not happen, and its run is to be cancelled")
    if facts.key == "expired":
        return NeedsPerson("it did not happen, and the provider no longer knows its key")
    if facts.sends >= facts.max_sends:
        return NeedsPerson(f"it did not happen in {facts.sends} sends, and no tries are left")
    return CallAgain()


def _what(facts: Facts) -> str:
    if facts.refused is not None:
        return f"sent before, then refused ({facts.refused}): the earlier send may have happened"
    if facts.effect_type is not EffectType.IDEMPOTENT_WRITE:
        return f"a {facts.effect_type} may have happened"
    if facts.sends >= facts.max_sends:
        return f"sent {facts.sends} times under one key without an answer"
    if not facts.may_send:
        return "cancelled while unknown: it may have happened"
    if facts.is_outdated:
        return f"it may have happened, {OUTDATED}"
    return "it may have happened, the provider may no longer know the idempotency key"


def _said(facts: Facts) -> str:
    match facts.found:
        case None:
            return "the tool has no look-up"
        case "not_found":
            return "the look-up says not found"
        case "indeterminate":
            return f"the look-up cannot say ({facts.found_why or 'no reason given'})"
        case "failed":
            return facts.found_why or "the look-up failed"
