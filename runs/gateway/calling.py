"""A call from its request to what came of it: for every door that agents elsewhere come through.

Guarantees: what is answered is read from rows; a request that repeats one is answered with what
is recorded, whatever it came to, and carries nothing out.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models.functions import Now

from runs.access import READ, Actor
from runs.called import drop_if_ended
from runs.errors import UnknownOperation
from runs.gateway.accepting import Accepted, Asked, accept_call, accept_finish
from runs.gateway.driving import drivers
from runs.gateway.errors import CallInFlight, CallInvalid, PolicyRefuses
from runs.gateway.reading import read_operation
from runs.gateway.waiting import board
from runs.models import AgentRun, GatewayCall, NeverSent, ToolOperation
from runs.queries import get_operation
from runs.state import SETTLED_STATUSES, OperationStatus

# How long whoever does not say is kept waiting for a call that is under way.
PATIENCE_SECONDS: Final = 30.0
LONGEST_WAIT: Final = 60.0


@dataclass(frozen=True)
class Called:
    """What is known of a call. `operation` is None until its run has taken it up, and for ever
    where the run ended before."""

    call: GatewayCall
    operation: ToolOperation | None
    replayed: bool

    @property
    def is_settled(self) -> bool:
        if self.operation is None:
            # Its run ended before.
            return self.call.taken_at is not None
        return self.operation.status in SETTLED_STATUSES


def call_operation(*, actor: Actor, asked: Asked, wait_seconds: float | None = None) -> Called:
    """Have a tool called once, and wait for what comes of it.

    With `wait_seconds` until it is settled, for so long at the most; without, until it is
    settled or is known to take long. Raises what `accept_call` raises.
    """
    wait = PATIENCE_SECONDS if wait_seconds is None else wait_seconds
    with ExitStack() as stack:
        with drivers.room() as room:
            owner = room.owner if room is not None else None
            accepted = accept_call(actor=actor, asked=asked, wait_seconds=wait, owner=owner)
            call = accepted.call
            watch = stack.enter_context(board.watching(str(call.operation_id))) if wait else None
            if accepted.work is not None:
                assert room is not None, "whoever claimed it has a thread for it"
                room.drive(accepted.work)
            elif call.taken_at is None and call.run_id is not None:
                drivers.drive(call.run_id)
        if watch is not None:
            if accepted.work is None:
                watch.look()
            watch.wait(seconds=wait, settled_only=wait_seconds is not None)
    return _read(accepted)


def finish_run(*, actor: Actor, run_id: UUID, result: Any = None, error: str = "") -> AgentRun:
    """Have a run of an external agent end; see `accept_finish`."""
    run = accept_finish(actor=actor, run_id=run_id, result=result, error=error)
    drivers.drive(run_id)
    return run


def look_at_call(
    *, actor: Actor, operation_id: str, wait_seconds: float = 0.0
) -> Called | ToolOperation:
    """A call, for whoever made it or may see everything; an operation that no call asked for.

    Raises UnknownOperation or NotPermitted.
    """
    # The database refuses some texts, which are no ids.
    is_possible = operation_id.isascii() and operation_id.isprintable()
    found = GatewayCall.objects.filter(operation_id=operation_id)
    call = found.first() if is_possible else None
    if call is None or call.scope != actor.keys:
        actor.require(READ)
    if call is None:
        return get_operation(operation_id)
    if wait_seconds:
        with board.watching(operation_id) as watch:
            if watch is not None:
                watch.look()
                watch.wait(seconds=wait_seconds, settled_only=True)
    return _read(Accepted(call=call, replayed=False))


def raise_if_unanswerable(called: Called) -> None:
    """Raise what became of a call that has no result to show: PolicyRefuses, CallInvalid, or
    CallInFlight where the request repeats one that is just being answered."""
    operation = called.operation
    if operation is not None and operation.never_sent == NeverSent.REFUSED:
        raise PolicyRefuses(operation_id=operation.pk, why=operation.error)
    if operation is not None and operation.never_sent == NeverSent.INVALID:
        raise CallInvalid(operation_id=operation.pk, why=operation.error)
    if called.replayed and _is_in_flight(called):
        raise CallInFlight(operation_id=str(called.call.operation_id))


def _is_in_flight(called: Called) -> bool:
    """Whether the first who asked may still be waiting for the answer."""
    quick = (OperationStatus.PREPARED, OperationStatus.RUNNING)
    if called.is_settled or (called.operation is not None and called.operation.status not in quick):
        return False
    # By the clock that set the date.
    return GatewayCall.objects.filter(pk=called.call.pk, answer_by__gt=Now()).exists()


def _read(accepted: Accepted) -> Called:
    call = accepted.call
    operation = _find_operation(str(call.operation_id))
    if operation is None and call.run_id is not None:
        drop_if_ended(call)
        if call.taken_at is not None:
            # Taken up since it was looked for, or never.
            operation = _find_operation(str(call.operation_id))
    if operation is None and call.run_id is None:
        raise UnknownOperation(operation_id=str(call.operation_id))
    return Called(call=call, operation=operation, replayed=accepted.replayed)


def _find_operation(operation_id: str) -> ToolOperation | None:
    """The operation, or the newest one that a person or a new version put in its place."""
    operation = read_operation(operation_id)
    if operation is None or operation.never_sent != NeverSent.CHANGED:
        return operation
    place = ToolOperation.objects.filter(
        run_id=operation.run_id, step_number=operation.step_number, ordinal=operation.ordinal
    )
    newest = place.order_by("-revision").values_list("id", flat=True)[0]
    return get_operation(newest)
