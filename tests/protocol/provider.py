"""A provider in this process, with the faults that real ones have, on the real clock or a test's.

Guarantees: keeps its contract, whatever is armed: what lands late lands within `latest`
seconds, look-ups lag no longer than that, and with `honours_keys` one key is one effect.
Does not speak HTTP: the tests of the shop's provider and of the catalog do.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.protocol.picture import Effect
from tools import Call, NotSent, Reconciled, Rejected

LATEST: Final = 0.08
# Hypothesis favours what stands first.
ANSWERS: Final = ("lost", "late", "nothing", "not_sent", "ok", "unreadable", "rejected")
LOOK_UPS: Final = ("behind", "fails", "ok", "cannot say")


@dataclass
class SimulatedProvider:
    """One ledger. `act` and `look_up` are what the tools' functions call."""

    honours_keys: bool
    answers: deque[str] = field(default_factory=deque)
    look_ups: deque[str] = field(default_factory=deque)
    now: Callable[[], float] = time.monotonic
    latest: float = LATEST
    _landed: list[tuple[float, Effect]] = field(default_factory=list)
    _on_their_way: list[tuple[float, str]] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def act(self, call: Call) -> Any:
        answer = self.answers.popleft() if self.answers else "ok"
        match answer:
            case "not_sent":
                raise NotSent("no connection")
            case "rejected":
                raise Rejected("the provider refuses it")
            case "nothing":
                raise TimeoutError("the request was lost")
            case "late":
                with self._turn:
                    due = self.now() + self.latest
                    self._on_their_way.append((due, call.idempotency_key))
                raise TimeoutError("no answer; the request is still on its way")
        reference = self._land(call.idempotency_key)
        match answer:
            case "lost":
                raise ConnectionResetError("the answer was lost")
            case "unreadable":
                return {reference}  # no JSON
        return {"ref": reference, "external_ref": reference}

    def look_up(self, call: Call) -> Reconciled[Any]:
        match self.look_ups.popleft() if self.look_ups else "ok":
            case "fails":
                raise ConnectionRefusedError("nobody there")
            case "cannot say":
                return Reconciled.indeterminate("the first page only")
            case "behind":
                seen_until = self.now() - self.latest
            case _:
                seen_until = self.now()
        self._arrive()
        with self._turn:
            found = [
                effect.reference
                for landed_at, effect in self._landed
                if effect.operation == call.operation_id and landed_at <= seen_until
            ]
        if not found:
            return Reconciled.not_found()
        result = {"ref": found[0], "external_ref": found[0]}
        return Reconciled.committed(result, external_ref=found[0], also=found[1:])

    @property
    def effects(self) -> list[Effect]:
        self._arrive()
        with self._turn:
            return [effect for _, effect in self._landed]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way any more, nor unseen by a lagging look-up."""
        self._arrive()
        with self._turn:
            newest = max((at for at, _ in self._landed), default=0.0)
            return not self._on_their_way and newest + self.latest < self.now()

    def _land(self, key: str) -> str:
        with self._turn:
            known = [effect for _, effect in self._landed if effect.operation == key]
            if known and self.honours_keys:
                return known[0].reference
            effect = Effect(operation=key, reference=f"re_{len(self._landed) + 1}")
            self._landed.append((self.now(), effect))
            return effect.reference

    def _arrive(self) -> None:
        now = self.now()
        with self._turn:
            due = [key for at, key in self._on_their_way if at <= now]
            self._on_their_way = [one for one in self._on_their_way if one[0] > now]
        for key in due:
            self._land(key)
