"""The faults: everything that is done to a tool, in the order of the table.

A fault strikes the worker (killed or stopped, at a named moment), what is between the
worker and the provider (the delivery of the request or of its answer), or the look-ups.

Guarantees: each fault strikes the first send of an operation and nothing later, so what
follows is recovery alone; a fault that a declaration rules out says why it is not run.
Does not do anything: `between.py` and `driving.py` do.
"""

import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runs.events import Name
from tools.declarations import EffectType
from tools.spec import ToolSpec
from tools.testing.diary import Diary
from tools.testing.errors import UnknownFault
from tools.testing.report import Row
from tools.testing.scale import Scale


class Delivery(StrEnum):
    """What becomes of the first request and of its answer."""

    WHOLE = "both arrive"
    ANSWER_RESET = "the request arrives, the connection is reset instead of an answer"
    ANSWER_TIMED_OUT = "the request arrives, no answer does"
    ANSWER_500 = "the request is carried out and answered with a 500"
    ANSWER_UNREADABLE = "the request is carried out, the answer cannot be read"
    REQUEST_LOST = "nothing arrives, and nobody says so"
    REFUSED = "no connection is made"
    LATE = "the request takes effect after the client has given up"
    SLOW = "the request is carried out, the answer comes after the deadline"
    DOUBLED = "the request arrives twice at once"
    UNDER_WAY = "the request takes effect after its sender is gone"


class LookUps(StrEnum):
    """What becomes of the look-ups, which are really made."""

    WHOLE = "they answer"
    FAIL_TWICE = "the first two fail"
    LAG = "they do not know of an effect until some time after it"


@dataclass(frozen=True)
class Strike:
    """A signal to the worker, at the `nth` event `at` (after the first `after`, if given).

    Without `at` it strikes within the call: the function has been entered, and the tool's
    own has not.
    """

    signal: signal.Signals
    at: Name | None = None
    nth: int = 1
    after: Name | None = None

    def now(self, diary: Diary) -> None:
        """Do it to this process. Returns when it is continued."""
        diary.note("struck")
        # To this very thread: it must not run on while another one takes the signal.
        signal.pthread_kill(threading.get_ident(), self.signal)


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    says: str
    strike: Strike | None = None
    delivery: Delivery = Delivery.WHOLE
    look_ups: LookUps = LookUps.WHOLE

    def ruled_out(self, spec: ToolSpec, scale: Scale) -> str:
        """Why it cannot happen to a tool that is declared like this; empty if it can."""
        if spec.effect_type is EffectType.TRANSACTIONAL:
            return "" if self.delivery in _IN_A_TRANSACTION else "there is no network in between"
        if self.look_ups is not LookUps.WHOLE and spec.reconcile_handler is None:
            return "the tool has no look-up"
        if self.delivery is Delivery.DOUBLED and spec.effect_type not in _HARMLESS_TWICE:
            return "by its declaration the provider makes two effects of two requests"
        if self._takes_effect_late and not scale.has_window:
            return "settle_window says that no request takes effect late"
        return ""

    def not_run(self, why: str) -> Row:
        return Row(fault=self.name, says=self.says, verdict="not run", why=why)

    @property
    def _takes_effect_late(self) -> bool:
        return self.delivery in LANDS_LATE or self.look_ups is LookUps.LAG


LANDS_LATE: Final = (Delivery.LATE, Delivery.UNDER_WAY)
# There they mean: killed within it, and an exception after its writes.
_IN_A_TRANSACTION: Final = (Delivery.WHOLE, Delivery.UNDER_WAY, Delivery.ANSWER_RESET)
_HARMLESS_TWICE: Final = (EffectType.READ, EffectType.IDEMPOTENT_WRITE)

_KILL, _STOP = signal.SIGKILL, signal.SIGSTOP

# Expanded to one row per commit that an undisturbed run makes.
EVERY_COMMIT: Final = "killed_at_every_commit"
NONE: Final = Fault(name="no_fault", says="nothing goes wrong")

FAULTS: Final = (
    NONE,
    Fault(
        name="killed_before_call",
        says="the worker is killed when the intent is recorded and the tool not yet called",
        strike=Strike(_KILL, Name.CALL_STARTING),
    ),
    Fault(
        name="killed_in_call",
        says="the worker is killed while its request is under way; it takes effect later",
        strike=Strike(_KILL),
        delivery=Delivery.UNDER_WAY,
    ),
    Fault(
        name="killed_after_effect",
        says="the worker is killed after the provider committed and before the record of it",
        strike=Strike(_KILL, Name.CALL_DONE),
    ),
    Fault(
        name="killed_after_record",
        says="the worker is killed right after the outcome was recorded",
        strike=Strike(_KILL, Name.COMMIT_DONE, after=Name.CALL_DONE),
    ),
    Fault(name=EVERY_COMMIT, says="the worker is killed right before and after each commit"),
    Fault(
        name="stopped_before_call",
        says="the worker stands still before the call, is replaced after its lease, and goes on",
        strike=Strike(_STOP, Name.CALL_STARTING),
    ),
    Fault(
        name="stopped_in_call",
        says="the same, after the last check of the lease: only the tool's own deadline is left",
        strike=Strike(_STOP),
    ),
    Fault(
        name="stopped_after_effect",
        says="the same, with the answer in hand: there are two answers to one operation",
        strike=Strike(_STOP, Name.CALL_DONE),
    ),
    *(
        Fault(name=name, says=delivery.value, delivery=delivery)
        for name, delivery in (
            ("answer_lost", Delivery.ANSWER_RESET),
            ("answer_timed_out", Delivery.ANSWER_TIMED_OUT),
            ("answer_is_500", Delivery.ANSWER_500),
            ("answer_unreadable", Delivery.ANSWER_UNREADABLE),
            ("answer_too_late", Delivery.SLOW),
            ("request_refused", Delivery.REFUSED),
            ("request_lost", Delivery.REQUEST_LOST),
            ("request_late", Delivery.LATE),
            ("request_doubled", Delivery.DOUBLED),
        )
    ),
    Fault(
        name="look_up_fails",
        says="the answer is lost, and the first two look-ups fail",
        delivery=Delivery.ANSWER_TIMED_OUT,
        look_ups=LookUps.FAIL_TWICE,
    ),
    Fault(
        name="look_up_lags",
        says="the answer is lost, and look-ups lag behind the effect within the settle window",
        delivery=Delivery.ANSWER_TIMED_OUT,
        look_ups=LookUps.LAG,
    ),
)

ALL: Final = tuple(fault.name for fault in FAULTS)


def find_faults(names: Iterable[str]) -> list[Fault]:
    """The faults of these names, in the order of the table. Raises UnknownFault."""
    wanted = set(names)
    for name in sorted(wanted - set(ALL)):
        raise UnknownFault(name, known=ALL)
    return [fault for fault in FAULTS if fault.name in wanted]


def at_every_commit(commits: int) -> Iterator[Fault]:
    """One fault before and one after each of the commits of an undisturbed run."""
    for nth in range(1, commits + 1):
        for when, at in (("before", Name.COMMIT_STARTING), ("after", Name.COMMIT_DONE)):
            yield Fault(
                name=f"killed_{when}_commit_{nth}",
                says=f"the worker is killed right {when} the run's commit {nth}",
                strike=Strike(_KILL, at, nth),
            )
