"""Reading what an API answered, by what it documents.

Guarantees: an answer means something only if the declaration says so; every other one raises,
so that a write is unknown; a provider's words are bounded, and never hold the token.
Does not guess: a field that is missing is not an empty one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tools.catalog.sending import Answer, UnreadableAnswer
from tools.errors import ToolError
from tools.redaction import REDACTED, bound_text

MOST_WORDS = 300
MISSING: Final = object()


class UnexpectedAnswer(ToolError):
    """An answer that the declaration gives no meaning: what was asked for may have happened."""

    def __init__(self, answer: Answer, *, token: str = "") -> None:
        self.status = answer.status
        super().__init__(f"the provider answered {answer.status}: {_words(answer, token)}")


class KeyMismatch(ToolError):
    """The provider knows the key with another request: one of the two was sent in error."""

    def __init__(self, key: str, answer: Answer, *, token: str = "") -> None:
        self.key = key
        super().__init__(
            f"the provider knows the key {key} with other arguments; a person must compare: "
            f"{answer.status}: {_words(answer, token)}"
        )


@dataclass(frozen=True)
class Says:
    """One documented answer: its status, and the JSON fields that tell it from others.

    `fields` maps a place ("error.code") to the text that must stand there; `reason` is the
    place of the words for people.
    """

    status: int
    fields: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    def fits(self, answer: Answer) -> bool:
        """Whether the answer is this one; a body that cannot be read has no fields."""
        if answer.status != self.status:
            return False
        if not self.fields:
            return True
        try:
            said = answer.json()
        except ValueError:
            return False
        return all(pick(said, place) == text for place, text in self.fields.items())

    def words(self, answer: Answer, *, token: str = "") -> str:
        """The reason that the answer gives, or the answer itself."""
        if self.reason:
            try:
                given = pick(answer.json(), self.reason)
            except ValueError:
                given = MISSING
            if isinstance(given, str) and given:
                return _clean(given, token)
        return f"{answer.status}: {_words(answer, token)}"


def pick(value: Any, place: str) -> Any:
    """What stands at "a.b" of a JSON value, or MISSING; "" is the value itself."""
    for name in place.split(".") if place else ():
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def read_reference(value: Any, place: str) -> str | None:
    """The provider's reference at `place`, None where none is declared."""
    if not place:
        return None
    reference = pick(value, place)
    if isinstance(reference, bool) or not isinstance(reference, str | int) or reference == "":
        raise UnreadableAnswer(f"there is no reference at {place}")
    return str(reference)


def _words(answer: Answer, token: str) -> str:
    return _clean(answer.body[: 4 * MOST_WORDS].decode(errors="replace"), token) or "no words"


def _clean(text: str, token: str) -> str:
    return bound_text(text.replace(token, REDACTED) if token else text, MOST_WORDS)
