"""Times as people type them: 90s, 15m, 4h, 3d.

Guarantees: what `say_duration` writes, `parse_duration` reads as the same time.
Does not know months or years, whose lengths differ.
"""

import re
from datetime import timedelta
from typing import Final

from runs.errors import InvalidInput

FIX: Final = "Write a whole number and a unit: 90s, 15m, 4h or 3d."
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM: Final = re.compile(r"([0-9]{1,9})\s*([dhms])")


def parse_duration(text: str, *, field: str) -> timedelta:
    """The time that `text` names. Raises InvalidInput."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(field=field, value=ascii(text[:40]), fix=FIX)
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def say_duration(time: timedelta) -> str:
    """The shortest way to write whole seconds in one unit."""
    seconds = int(time.total_seconds())
    for unit, length in _UNITS.items():
        if seconds % length == 0 and seconds:
            return f"{seconds // length}{unit}"
    return "0s"
