"""Keeps secrets and hostile lengths out of what is stored, logged and shown.

Guarantees: `redact` hides whole values by key name at any depth; `scrub` removes the
known values of sensitive arguments from free text; `bound_text` yields text that
PostgreSQL can store, of at most the given length.
Does not recognise secrets nobody declared, nor a declared one that was re-encoded
(base64, split, changed case) on its way into a text.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

# What is kept of a foreign text until it has been scrubbed. Far more than is stored, so
# that a secret which this cut splits is not in the part that stays.
RAW_TEXT: Final = 20_000

REDACTED = "[redacted]"
# Shorter values ("1", "EUR") would punch holes into every sentence and protect nothing.
SHORTEST_SCRUBBED = 4


def redact(value: Any, names: Collection[str]) -> Any:
    """Copy of a JSON value in which every key of `names` (any case) holds `[redacted]`."""
    if not names:
        return value
    return _redact(value, {name.casefold() for name in names})


def _redact(value: Any, hidden: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: REDACTED if str(key).casefold() in hidden else _redact(item, hidden)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact(item, hidden) for item in value]
    return value


def scrub(text: str, arguments: Mapping[str, Any], names: Collection[str]) -> str:
    """`text` without the values (of at least 4 characters) of the sensitive arguments."""
    if not names:
        return text
    for secret in find_secrets(arguments, names):
        text = text.replace(secret, REDACTED)
    return text


def find_secrets(value: Any, names: Collection[str]) -> list[str]:
    """The values (of at least 4 characters) that stand under these names, as texts."""
    found = set(_secrets(value, {name.casefold() for name in names}))
    # Longest first: a value that contains another must not be left half visible.
    return sorted(found, key=len, reverse=True)


def _secrets(value: Any, hidden: Collection[str], *, inside: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, hidden, inside=inside or str(key).casefold() in hidden)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, hidden, inside=inside)
    elif (
        inside
        and not isinstance(value, bool | None)
        and len(secret := str(value)) >= SHORTEST_SCRUBBED
    ):
        yield secret


def bound_text(text: str, limit: int = 2000) -> str:
    """Storable text of at most `limit` characters: cut with an ellipsis, NUL and surrogates out."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and "\0" not in text:
        return text
    return (
        text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )
