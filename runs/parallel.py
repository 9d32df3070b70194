"""Sending several operations of a step at once.

Guarantees: one commit makes all intents durable before anything leaves; each call then has a
thread and a deadline of its own, and what each came to is planned in the order of the decision
once all are back or past their deadlines, so that the next commit records all of it. So a batch
costs the two commits that a single call does. A crash between the two leaves every one of them
unknown, and each is settled by itself.

Bounded: a process keeps `MOST_BESIDE` threads for calls beside the first of a batch, whatever
number of runs it drives. Where none is free a batch leaves in parts, and a call by itself never
waits for one.

Not sent together, but one by one through `operations.perform`: a call that spends a signature, and
one that a policy counts in a window, for it must see those before it.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from runs import events
from runs.calls import build_call
from runs.judging import NEEDED
from runs.lease import margin_seconds
from runs.models import ToolOperation
from runs.objections import find_objection
from runs.operations import (
    LEASE_TOO_SHORT,
    Ready,
    begin_send,
    give_turns_back,
    late_listener,
    make_ready,
    outlives_lease,
    record_outcome,
    take_turn,
    withhold,
)
from runs.outcomes import prepare_run
from runs.work import Work
from tools import Call
from tools.execution import Execution, begin
from tools.outcome import Outcome, Unsent, name_of
from tools.threads import reset_after_fork

MOST_BESIDE: Final = 64


def perform_together(work: Work, operations: Sequence[ToolOperation]) -> None:
    """Send the operations and plan what came back; those that may not leave now are left alone."""
    ready = [one for operation in operations if (one := make_ready(work, operation)) is not None]
    plain = [one for one in ready if _is_plain(work, one)]
    going: list[Ready] = []
    with _places.taking(len(plain)) as places:
        try:
            for one in plain[:places]:
                if take_turn(work, one):
                    going.append(one)
            if going:
                _send(work, going)
        finally:
            give_turns_back(work, going)


def _is_plain(work: Work, one: Ready) -> bool:
    is_signed = one.approval is not None or one.operation.policy_outcome == NEEDED
    return not is_signed and not work.judged[one.operation.id].counts


def _send(work: Work, going: Sequence[Ready]) -> None:
    longest = max(one.seconds for one in going)
    work.change.lease_seconds = longest + 2 * margin_seconds()
    prepare_run(work)
    for one in going:
        begin_send(work, one)
    work.commit()
    work.lease.expect(longest + margin_seconds())
    sends = [_build(work, one) for one in going]
    outcomes = iter(_call(work, [send for send in sends if not send.objection]))
    for send in sends:
        if send.objection:
            withhold(work, send.ready, send.call, send.objection)
        else:
            record_outcome(work, send.ready, send.call, next(outcomes))


@dataclass(frozen=True)
class _Send:
    """A call whose intent is durable; with an `objection` it does not leave after all."""

    ready: Ready
    call: Call
    objection: str


def _build(work: Work, one: Ready) -> _Send:
    call = build_call(work, one.operation, seconds=one.seconds)
    objection = find_objection(work, one.operation, one.spec, call, admitted=one.admitted)
    return _Send(one, call, objection)


def _call(work: Work, sends: Sequence[_Send]) -> list[Outcome]:
    """What each call came to, in order. Of one that nobody waits for any more it is heard late."""
    with ExitStack() as under_way:
        begun = [under_way.enter_context(_begin(work, send.ready, send.call)) for send in sends]
        outcomes = []
        for execution, send in zip(begun, sends, strict=True):
            outcomes.append(outcome := execution.wait())
            about = work.about(send.ready.operation)
            events.emit(events.Name.CALL_DONE, **about, outcome=name_of(outcome))
        return outcomes


def _begin(work: Work, one: Ready, call: Call) -> Execution:
    events.emit(events.Name.CALL_STARTING, **work.about(one.operation))
    if outlives_lease(work, call):
        return Execution.ended(call, Unsent(LEASE_TOO_SHORT))
    return begin(spec=one.spec, call=call, on_late=late_listener(one, call))


class _Places:
    """The threads of this process that may call beside others."""

    def __init__(self) -> None:
        self._free = MOST_BESIDE
        self._lock = threading.Lock()

    @contextmanager
    def taking(self, wanted: int) -> Iterator[int]:
        """How many of `wanted` calls may be made at once, which is one at the least."""
        with self._lock:
            beside = min(max(wanted - 1, 0), self._free)
            self._free -= beside
        try:
            yield 1 + beside
        finally:
            with self._lock:
                self._free += beside


_places: Final = _Places()
# A child has neither the calls nor, perhaps, a lock that anybody will give back.
reset_after_fork(_places.__init__)  # type: ignore[misc]
