"""Windows: the spans of time that a report looks back over, and the points it draws them with.

Guarantees: a window begins where a slice does that is kept for so long, and is never shorter than
asked; it has at most `MOST_POINTS` points of one length.

Does not read a clock.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from runs.errors import InvalidInput
from runs.slo.slices import floor, resolution

DEFAULT: Final = "24h"
OFFERED: Final = ("1h", "6h", "24h", "7d", "30d", "90d")
LONGEST: Final = timedelta(days=400)
MOST_POINTS: Final = 100
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1)}


@dataclass(frozen=True)
class Window:
    """From `since` until `until`; its points are `width` apart, and the last may be short."""

    since: datetime
    until: datetime
    width: timedelta

    @property
    def points(self) -> list[datetime]:
        """When each point begins, oldest first."""
        count = math.ceil((self.until - self.since) / self.width)
        return [self.since + n * self.width for n in range(count)]


def look_back(window: str, *, now: datetime) -> Window:
    """The window of this name, such as `24h` or `7d`. Raises InvalidInput."""
    length = _read_length(window)
    unit = resolution(length)
    since = floor(now - length, unit)
    width = unit * math.ceil((now - since) / (unit * MOST_POINTS))
    return Window(since=since, until=now, width=width)


def _read_length(window: str) -> timedelta:
    given = re.fullmatch(r"([1-9][0-9]{0,4})([hd])", window, re.ASCII)
    length = int(given[1]) * _UNITS[given[2]] if given else timedelta()
    if not timedelta() < length <= LONGEST:
        raise InvalidInput(
            field="window",
            value=ascii(window[:20]),
            fix=f"Give hours or days up to {LONGEST.days}d, such as {', '.join(OFFERED)}.",
        )
    return length
