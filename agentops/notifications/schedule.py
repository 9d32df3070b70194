"""When a delivery is tried again, and when it is given up.

Guarantees: the delays grow threefold from five seconds to twelve hours, so that the last of
`MOST_TRIES` comes after about three days; each is moved by up to a fifth, so that what failed
together does not come back together.
"""

from datetime import timedelta
from random import SystemRandom
from typing import Final

FIRST_DELAY: Final = 5.0
GROWTH: Final = 3
LONGEST_DELAY: Final = 12 * 3600.0
JITTER: Final = 0.2
MOST_TRIES: Final = 15
# Behind a receiver that is down a delivery may wait for its turn: its time ends all the same.
GIVE_UP_AFTER: Final = timedelta(days=4)

_random: Final = SystemRandom()


def delay_after(tries: int) -> float | None:
    """Seconds until the next try, or None when there is to be none."""
    if tries >= MOST_TRIES:
        return None
    # More doublings than this are beyond the longest delay anyway.
    grown: float = FIRST_DELAY * GROWTH ** min(tries - 1, 20)
    return min(grown, LONGEST_DELAY) * _random.uniform(1 - JITTER, 1 + JITTER)
