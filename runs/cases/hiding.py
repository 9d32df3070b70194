"""What a case's file must not hold: secrets, and values without end.

Guarantees: the value of a sensitive name is nowhere in the file: not under that name, and not in
a text that repeats it; the values in a file are bounded together, whatever the run was.

Does not find a secret that was stored under a name that nobody declared, nor one that a text
has in another form.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic_core import to_json

from tools.redaction import REDACTED, redact, scrub

# One result, payload or set of arguments is kept whole up to here.
LARGEST_VALUE: Final = 32_000
# All of them together: those that are kept first have it.
LARGEST_TOTAL: Final = 1_000_000
# How far texts and lists of a value that is too large are cut, the mildest first.
_CUTS: Final = ((4_000, 200), (500, 40))


class Hider:
    """Hides what `names` name, and every copy of it that `values` show."""

    def __init__(self, names: Collection[str], values: Iterable[Any] = ()) -> None:
        self._names = frozenset(name.casefold() for name in names)
        secrets = [found for value in values for found in _values_of(value, self._names)]
        # As `scrub` takes them: the values that stand under a name.
        self._secrets = {REDACTED: secrets}

    def hide(self, value: Any) -> Any:
        """Copy of a JSON value without secrets."""
        if not self._names:
            return value
        return self._scrub(redact(value, self._names))

    def hide_in_decision(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The same of an encoded decision, whose own words stay even where a tool's secret is
        called like one of them."""
        return {
            key: [self._hide_in_part(one) for one in value]
            if key in ("calls", "children")
            else self.hide(value)
            for key, value in body.items()
        }

    def _hide_in_part(self, part: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.hide(value) for key, value in part.items()}

    def _scrub(self, value: Any) -> Any:
        match value:
            case str():
                return scrub(value, self._secrets, self._secrets)
            case Mapping():
                return {key: self._scrub(item) for key, item in value.items()}
            case list() | tuple():
                return [self._scrub(item) for item in value]
            case _:
                return value


class Keeper:
    """Hides values, and bounds what a file holds of them; `cuts` counts those that were cut."""

    def __init__(self, hider: Hider, total: int = LARGEST_TOTAL) -> None:
        self.hide, self.hide_in_decision = hider.hide, hider.hide_in_decision
        self.cuts = 0
        self._left = total

    def keep(self, value: Any) -> Any:
        """The value; with its long texts and lists cut where it is too large; or a text that says
        how large it is."""
        hidden = self.hide(value)
        kept = hidden
        if not self._fits(kept):
            self.cuts += 1
            cuts = (_cut(hidden, text=text, items=items) for text, items in _CUTS)
            said = f"[left out: {_size_of(hidden)} bytes]"
            kept = next((cut for cut in cuts if self._fits(cut)), said)
        return self._count(kept)

    def keep_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        kept = self.keep(arguments)
        return kept if isinstance(kept, dict) else {"": kept}

    def keep_decision(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """A decision whole, because half of one is another one; None where it is too large."""
        hidden = self.hide_in_decision(body)
        if not self._fits(hidden):
            self.cuts += 1
            return None
        kept: dict[str, Any] = self._count(hidden)
        return kept

    def _fits(self, value: Any) -> bool:
        return _size_of(value) <= min(LARGEST_VALUE, self._left)

    def _count(self, kept: Any) -> Any:
        self._left = max(0, self._left - _size_of(kept))
        return kept


def _values_of(value: Any, names: Collection[str]) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if str(key).casefold() in names:
                yield item
            else:
                yield from _values_of(item, names)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values_of(item, names)


def _size_of(value: Any) -> int:
    return len(to_json(value))


def _cut(value: Any, *, text: int, items: int) -> Any:
    match value:
        case str() if len(value) > text:
            return f"{value[:text]}… [{len(value) - text} characters left out]"
        case Mapping():
            return {key: _cut(item, text=text, items=items) for key, item in value.items()}
        case list() | tuple():
            return [_cut(item, text=text, items=items) for item in value[:items]]
        case _:
            return value
