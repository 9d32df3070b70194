"""What a case's file must not hold: secrets, and values without end.

Guarantees: the value of a sensitive name is nowhere in the file: not under that name, and not in
a text that repeats it; the values in a file are bounded together, whatever the run was.

Does not find a secret that was stored under a name that nobody declared, nor one that a text
has in another form.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

from runs.hiding import Hider

# One result, payload or set of arguments is kept whole up to here.
LARGEST_VALUE: Final = 32_000
# All of them together: those that are kept first have it.
LARGEST_TOTAL: Final = 1_000_000
# How far texts and lists of a value that is too large are cut, the mildest first.
_CUTS: Final = ((4_000, 200), (500, 40))


def hide_in_decision(hider: Hider, body: Mapping[str, Any]) -> dict[str, Any]:
    """An encoded decision without secrets, whose own words stay even where a tool's secret is
    called like one of them."""
    return {
        key: [{name: hider.hide(item) for name, item in one.items()} for one in value]
        if key in ("calls", "children")
        else hider.hide(value)
        for key, value in body.items()
    }


class Keeper:
    """Hides values, and bounds what a file holds of them; `cuts` counts those that were cut."""

    def __init__(self, hider: Hider, total: int = LARGEST_TOTAL) -> None:
        self._hider = hider
        self.hide, self.scrub_own = hider.hide, hider.scrub_own
        self.cuts = 0
        self._left = total

    def keep(self, value: Any, *, is_own: bool = False) -> Any:
        """The value; with its long texts and lists cut where it is too large; or a text that says
        how large it is. `is_own` is what the runtime wrote of what was hidden."""
        hidden = self.scrub_own(value) if is_own else self.hide(value)
        kept = hidden
        if not self._fits(kept):
            self.cuts += 1
            cuts = (_cut(hidden, text=text, items=items) for text, items in _CUTS)
            said = f"[left out: {_size_of(hidden)} bytes]"
            kept = next((cut for cut in cuts if self._fits(cut)), said)
        return self._count(kept)

    def keep_arguments(
        self, arguments: Mapping[str, Any], *, is_own: bool = False
    ) -> dict[str, Any]:
        kept = self.keep(arguments, is_own=is_own)
        return kept if isinstance(kept, dict) else {"": kept}

    def keep_decision(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """A decision whole, because half of one is another one; None where it is too large."""
        hidden = hide_in_decision(self._hider, body)
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
