"""When "not found" may be believed: pure arithmetic over sends and look-ups.

Closing a socket does not recall the bytes, and a stopped process is not a dead one. So an
unknown operation counts as *settled* only when all of this holds:

  1. every send has ended: its function came back, or the process that made it is known to
     have ended;
  2. the provider's settle window has passed since the last of these ends;
  3. at least three look-ups, spaced over the window, said "not found" after that end;
  4. the newest of them was made after the window.

Guarantees: a look-up that failed or could not say counts for nothing, and three in a hurry
count once. Reads no clock and no row.
Does not protect against a provider whose requests take effect later than its declared
window: such an effect is a late commit (`watch.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

NEGATIVES: Final = 3
# Look-ups count as spaced when this part of the settle window lies between them.
SPACING_PART: Final = 10


@dataclass(frozen=True)
class Send:
    """One send. `ended_at` is None while nobody knows that it cannot go on."""

    number: int
    worker: str
    ended_at: datetime | None


@dataclass(frozen=True)
class Settling:
    """How far it is settled that an operation did not happen.

    `settles_in` is the number of seconds until the settle window is over (0: it is), None
    while `sender`, the worker of some send, is not known to have ended. `spacing` is the
    number of seconds that make the next negative count.
    """

    settles_in: float | None = 0.0
    sender: str = ""
    negatives: int = 0
    confirmed: bool = False
    spacing: float = 0.0

    @property
    def is_settled(self) -> bool:
        return self.settles_in == 0 and self.negatives >= NEGATIVES and self.confirmed

    @property
    def lacks(self) -> str:
        """What keeps it from being settled, in words."""
        if self.settles_in is None:
            return f"its sender ({self.sender or 'a worker'}) is not known to have ended"
        if self.settles_in > 0:
            return f"a request may still take effect for {self.settles_in:.0f} s"
        if self.negatives >= NEGATIVES:
            return "it was not looked up since nothing more could take effect"
        return f"it was looked up {self.negatives} times instead of {NEGATIVES}"

    def next_useful(self, wait: float) -> float:
        """Seconds until the next look-up can bring it further, from the back-off's `wait`."""
        if self.settles_in is None:
            return wait
        if self.settles_in > 0:
            # Not past the window's end, and a little after it rather than just before.
            return min(wait, self.settles_in + 0.1)
        return max(min(wait, self.spacing + 0.1), 0.1)


def settle(
    *,
    sends: Sequence[Send],
    negatives: Sequence[datetime],
    window: timedelta,
    now: datetime,
) -> Settling:
    """How far it is settled; `negatives` are the times of look-ups that said "not found"."""
    spacing = window / SPACING_PART
    open_send = next((send for send in sends if send.ended_at is None), None)
    if open_send is not None:
        return Settling(settles_in=None, sender=open_send.worker, spacing=spacing.total_seconds())
    last_end = max((send.ended_at for send in sends if send.ended_at is not None), default=now)
    settles_at = last_end + window
    counted: list[datetime] = []
    for at in sorted(negatives):
        if at >= last_end and (not counted or at - counted[-1] >= spacing):
            counted.append(at)
    return Settling(
        settles_in=max(0.0, (settles_at - now).total_seconds()),
        negatives=len(counted),
        confirmed=any(at >= settles_at for at in negatives),
        spacing=spacing.total_seconds(),
    )
