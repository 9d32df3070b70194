"""How a request is answered, with and without a fault.

Guarantees: whatever a fault commits is on disk before the caller can notice anything, and a key
is free again before its answer leaves, so that a caller's next request never meets its last one.
Does not outlive the process: a late request that has not landed is lost with it.
"""

import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, assert_never

from examples.shop.provider.faults import Fault, FaultKind
from examples.shop.provider.refunds import KEY_IN_FLIGHT, rejection
from examples.shop.provider.wire import Answer, Hangup, Reply

INTERNAL_ERROR = Answer.of(
    500, {"error": "internal_error", "message": "something broke on our side"}
)


class Action(Protocol):
    """What was asked for: a refund or a look-up."""

    def claim(self) -> AbstractContextManager[bool]: ...

    def perform(self, *, instead: Answer | None = None, moves_money: bool = True) -> Answer: ...


class Stage:
    """The requests that are between their arrival and their end: held, slow or late."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._releases = 0
        self._held = 0
        self._late = 0

    @property
    def held(self) -> int:
        return self._held

    @property
    def late(self) -> int:
        """How many requests whose connection is closed may still have an effect."""
        return self._late

    def reply(self, action: Action, fault: Fault | None) -> Reply:
        """Acts as the fault says; returns when the caller shall see the outcome."""
        if fault is None:
            return self._reply_claimed(action, None)
        self._pass(fault.delay)
        match fault.kind:
            case FaultKind.RESET_BEFORE:
                return Hangup(reset=True)
            case FaultKind.LATE:
                self._land_later(action, seconds=fault.seconds)
                return Hangup()
            case FaultKind.HANG:
                threading.Event().wait()
                raise AssertionError("nobody sets that event")
            case FaultKind.ERROR_500 if not (fault.after_commit or fault.sticky):
                return INTERNAL_ERROR
            case _:
                return self._reply_claimed(action, fault)

    def release(self) -> int:
        """Lets every held request go on; returns how many there were."""
        with self._turn:
            self._releases += 1
            self._turn.notify_all()
            released, self._held = self._held, 0
            return released

    def wait_until_held(self, *, count: int, seconds: float) -> bool:
        """Whether `count` requests are held at once; what they commit first is on disk then."""
        with self._turn:
            return self._turn.wait_for(lambda: self._held >= count, timeout=seconds)

    def wait_until_landed(self, *, seconds: float) -> bool:
        """Whether no closed request can have an effect any more."""
        with self._turn:
            return self._turn.wait_for(lambda: self._late == 0, timeout=seconds)

    def _reply_claimed(self, action: Action, fault: Fault | None) -> Reply:
        with action.claim() as free:
            if not free:
                return KEY_IN_FLIGHT
            return action.perform() if fault is None else self._act(action, fault)

    def _act(self, action: Action, fault: Fault) -> Reply:
        match fault.kind:
            case FaultKind.LOSE_ANSWER:
                action.perform()
                return Hangup(reset=fault.reset)
            case FaultKind.SLOW:
                answer = action.perform()
                self._pass(fault.seconds)
                return answer
            case FaultKind.ERROR_500:
                answer = action.perform(
                    instead=INTERNAL_ERROR if fault.sticky else None,
                    moves_money=fault.after_commit,
                )
                return answer if fault.sticky else INTERNAL_ERROR
            case FaultKind.UNREADABLE:
                answer = action.perform()
                return replace(answer, status=200, body=answer.body[: len(answer.body) // 2])
            case FaultKind.REJECT:
                return action.perform(instead=rejection(fault.reason), moves_money=False)
            case FaultKind.HOLD:
                committed = action.perform() if fault.after_commit else None
                self._hold()
                return committed or action.perform()
            case FaultKind.LAG | FaultKind.FIRST_PAGE:
                # The look-up was made with it: there is nothing else to do.
                return action.perform()
            case FaultKind.LATE | FaultKind.RESET_BEFORE | FaultKind.HANG:
                raise AssertionError(f"{fault.kind} claims no key")
            case _:
                assert_never(fault.kind)

    def _hold(self) -> None:
        with self._turn:
            since = self._releases
            self._held += 1
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._releases > since)

    def _land_later(self, action: Action, *, seconds: float) -> None:
        def land() -> None:
            try:
                self._pass(seconds)
                self._reply_claimed(action, None)
            finally:
                self._count_late(-1)

        self._count_late(+1)
        threading.Thread(target=land, name="late request", daemon=True).start()

    def _count_late(self, change: int) -> None:
        with self._turn:
            self._late += change
            self._turn.notify_all()

    def _pass(self, seconds: float) -> None:
        if seconds > 0:
            threading.Event().wait(seconds)
