"""The faults that the provider was told to have, told over HTTP.

Guarantees: of several faults that fit a request the one told first is used, and each is used
exactly `times` times. Does not survive a restart: a new process has no faults.
"""

import threading
from dataclasses import asdict, dataclass
from enum import StrEnum

from examples.shop.provider.errors import InvalidField
from examples.shop.provider.wire import (
    read_object,
    refuse_unknown,
    take_count,
    take_flag,
    take_number,
)

BUSINESS_PATHS = ("/orders", "/refunds", "/bookings")
MOST_SECONDS = 600.0
MOST_TIMES = 100_000


class FaultKind(StrEnum):
    """What goes wrong. "Commits" means: does what was asked (a look-up merely looks)."""

    LOSE_ANSWER = "lose_answer"  # commits, then closes the connection, or resets it: see `reset`
    SLOW = "slow"  # commits, then answers `seconds` later
    ERROR_500 = "error_500"  # answers 500; see `after_commit` and `sticky`
    LATE = "late"  # closes the connection, and commits `seconds` later
    RESET_BEFORE = "reset_before"  # resets the connection; nothing is done
    UNREADABLE = "unreadable"  # commits, then answers 200 with half of the JSON
    REJECT = "reject"  # refuses with `reason`, as the business would
    HANG = "hang"  # never answers, and nothing is done
    HOLD = "hold"  # answers once released; see `after_commit`
    LAG = "lag"  # a look-up finds nothing that was committed in the last `seconds`
    FIRST_PAGE = "first_page"  # a look-up lists its oldest refund alone, with `Has-More: true`


# The options that mean something to a kind; any other is a slip of the one who told it.
OPTIONS: dict[FaultKind, frozenset[str]] = {
    FaultKind.LOSE_ANSWER: frozenset({"reset"}),
    FaultKind.SLOW: frozenset({"seconds"}),
    FaultKind.ERROR_500: frozenset({"after_commit", "sticky"}),
    FaultKind.LATE: frozenset({"seconds"}),
    FaultKind.REJECT: frozenset({"reason"}),
    FaultKind.HOLD: frozenset({"after_commit"}),
    FaultKind.LAG: frozenset({"seconds"}),
}
OF_LOOK_UPS = (FaultKind.LAG, FaultKind.FIRST_PAGE)
COMMON = frozenset({"kind", "path", "method", "times", "delay"})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`path` stands for itself and everything below it.

    `delay` is how many seconds the request is on its way before the provider knows of it: its
    key is not in flight yet. `after_commit` commits before the fault; `sticky` keeps the 500
    for the key and replays it; `reset` sends RST instead of FIN.
    """

    kind: FaultKind
    path: str
    method: str
    times: int
    seconds: float
    delay: float
    after_commit: bool
    sticky: bool
    reset: bool
    reason: str

    def fits(self, *, method: str, path: str) -> bool:
        return method == self.method and (path == self.path or path.startswith(f"{self.path}/"))


class FaultPlan:
    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._faults: list[Fault] = []
        self._left: list[int] = []

    def add(self, fault: Fault) -> None:
        with self._turn:
            self._faults.append(fault)
            self._left.append(fault.times)

    def take(self, *, method: str, path: str) -> Fault | None:
        """The fault that this request meets, used up by one."""
        with self._turn:
            for at, fault in enumerate(self._faults):
                if self._left[at] > 0 and fault.fits(method=method, path=path):
                    self._left[at] -= 1
                    return fault
        return None

    def clear(self) -> None:
        """Forgets all. Requests that already met a fault are not called back."""
        with self._turn:
            self._faults.clear()
            self._left.clear()

    def as_json(self) -> list[dict[str, object]]:
        with self._turn:
            return [
                {**asdict(fault), "left": left}
                for fault, left in zip(self._faults, self._left, strict=True)
            ]


def read_fault(body: bytes) -> Fault:
    """Raises `InvalidField` or `UnreadableBody`."""
    given = read_object(body)
    kinds = ", ".join(FaultKind)
    try:
        kind = FaultKind(given.get("kind", ""))
    except ValueError:
        raise InvalidField("kind", given.get("kind"), f"give one of {kinds}") from None
    refuse_unknown(given, known=COMMON | OPTIONS.get(kind, frozenset()))
    path = given.get("path", "/refunds")
    if not isinstance(path, str) or not f"{path}/".startswith(
        tuple(f"{known}/" for known in BUSINESS_PATHS)
    ):
        raise InvalidField("path", path, f"give one at or below {' or '.join(BUSINESS_PATHS)}")
    method = given.get("method", "POST")
    if method not in ("GET", "POST"):
        raise InvalidField("method", method, "give GET or POST")
    if kind in OF_LOOK_UPS and (method, path) != ("GET", "/refunds"):
        raise InvalidField("kind", str(kind), "it is a fault of GET /refunds: give both")
    reason = given.get("reason", "the provider refuses this one")
    if not isinstance(reason, str):
        raise InvalidField("reason", reason, "give a sentence")
    return Fault(
        kind=kind,
        path=path,
        method=method,
        times=take_count(given, "times", default=1, most=MOST_TIMES),
        seconds=take_number(given, "seconds", default=1.0, least=0.0, most=MOST_SECONDS),
        delay=take_number(given, "delay", default=0.0, least=0.0, most=MOST_SECONDS),
        after_commit=take_flag(given, "after_commit"),
        sticky=take_flag(given, "sticky"),
        reset=take_flag(given, "reset"),
        reason=reason,
    )
