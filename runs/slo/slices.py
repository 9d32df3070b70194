"""Slices: how time is cut for counting, and how long each length of slice is kept.

Guarantees: slices of one length do not overlap and each longer one holds whole shorter ones;
where a window begins is a boundary of the slices that are kept for so long.

Does not read a clock, nor a row.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

SLICE: Final = timedelta(minutes=5)
# All slices are multiples of their length from here on.
ORIGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Fold:
    """Slices of `shorter` length become parts of `longer` ones once they are `after` old."""

    shorter: timedelta
    longer: timedelta
    after: timedelta


# A day is shown by minutes, a week by hours, a year by days; what lies before is only summed.
FOLDS: Final = (
    Fold(shorter=SLICE, longer=timedelta(hours=1), after=timedelta(hours=26)),
    Fold(shorter=timedelta(hours=1), longer=timedelta(days=1), after=timedelta(days=8)),
    Fold(shorter=timedelta(days=1), longer=timedelta(days=365), after=timedelta(days=402)),
)


def floor(at: datetime, length: timedelta = SLICE) -> datetime:
    """The beginning of the slice that holds this time."""
    return at - (at - ORIGIN) % length


def ceil(at: datetime, length: timedelta = SLICE) -> datetime:
    """The end of the slice that holds this time, or this time where one ends."""
    return at + (ORIGIN - at) % length


def resolution(age: timedelta) -> timedelta:
    """The length of the slices that are there of what is so old."""
    for fold in FOLDS:
        if age <= fold.after:
            return fold.shorter
    return FOLDS[-1].longer
