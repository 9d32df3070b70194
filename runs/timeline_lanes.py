"""Who held a run when: one lane for each fencing token, from what is recorded.

Guarantees: pure; a lane ends when the next one begins, or when its holder gave the run back. The
last sign of life under a token is the last thing that its holder is known to have recorded or done
before somebody else took the run over; what came afterwards under an old token is counted as late.

A renewal of a lease leaves no row behind, so a worker that was alive and recorded nothing gave no
sign that could be seen here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from runs.shapes import TimelineEntry

_LATE: Final = "observation.stale_worker"
# What others write about a holder, or it writes itself when it is none any more.
_NO_SIGNS: Final = ("observation.take_over", "observation.person", _LATE)


@dataclass(frozen=True)
class Hold:
    """One attempt at a step: a worker held the run under a token. `outcome` is "" while it does."""

    token: int
    worker: str
    step: int
    began: datetime
    ended: datetime | None
    outcome: str


@dataclass(frozen=True)
class Lane:
    """What one token covers. `silent` is how long nothing was seen of a holder that was lost."""

    token: int
    worker: str
    steps: tuple[int, int]
    began: datetime
    ended: datetime | None
    outcome: str
    last_sign: datetime
    silent: timedelta | None
    late: int

    @property
    def is_lost(self) -> bool:
        return self.outcome == "lost"


def draw_lanes(holds: Iterable[Hold], entries: Sequence[TimelineEntry]) -> list[Lane]:
    """The lanes of these attempts, by token; `entries` tell what was seen of their holders."""
    by_token: dict[int, list[Hold]] = {}
    for hold in sorted(holds, key=lambda one: (one.token, one.step)):
        by_token.setdefault(hold.token, []).append(hold)
    return [_draw(held, entries) for held in by_token.values()]


def _draw(held: Sequence[Hold], entries: Sequence[TimelineEntry]) -> Lane:
    first, last = held[0], held[-1]
    own = [one for one in entries if one.fence_token == last.token]
    lost_at = last.ended if last.outcome == "lost" else None
    last_sign = max(
        first.began, *(one.at for one in own if _is_sign(one, last, lost_at)), last.began
    )
    return Lane(
        token=last.token,
        worker=last.worker,
        steps=(first.step, last.step),
        began=first.began,
        ended=last.ended,
        outcome=last.outcome,
        last_sign=last_sign,
        silent=None if lost_at is None else lost_at - last_sign,
        late=sum(one.kind == _LATE for one in own),
    )


def _is_sign(entry: TimelineEntry, hold: Hold, lost_at: datetime | None) -> bool:
    if entry.actor != hold.worker or entry.kind in _NO_SIGNS:
        return False
    return lost_at is None or entry.at < lost_at
