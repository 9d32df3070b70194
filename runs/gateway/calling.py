"""A call from its request to what came of it: for every door that agents elsewhere come through.

Guarantees: what is answered is read from rows; a request that repeats one is answered with what
is recorded, whatever it came to, and carries nothing out.
"""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from runs.access import READ, Actor
from runs.errors import UnknownOperation
from runs.gateway.accepting import Accepted, Asked, accept_call, accept_finish
from runs.gateway.driving import drivers
from runs.gateway.errors import CallInFlight, CallInvalid, PolicyRefuses
from runs.gateway.waiting import await_operation
from runs.models import AgentRun, GatewayCall, NeverSent, ToolOperation
from runs.queries import get_operation
from runs.state import SETTLED_STATUSES, OperationStatus

# How long whoever does not say is kept waiting for a call that is under way.
PATIENCE_SECONDS: Final = 30.0
LONGEST_WAIT: Final = 60.0


@dataclass(frozen=True)
class Called:
    """What is known of a call. `operation` is None until its run has taken it up."""

    call: GatewayCall
    operation: ToolOperation | None
    replayed: bool

    @property
    def is_settled(self) -> bool:
        return self.operation is not None and self.operation.status in SETTLED_STATUSES


def call_operation(*, actor: Actor, asked: Asked, wait_seconds: float | None = None) -> Called:
    """Have a tool called once, and wait for what comes of it.

    With `wait_seconds` until it is settled, for so long at the most; without, until it is
    settled or is known to take long. Raises what `accept_call` raises.
    """
    wait = PATIENCE_SECONDS if wait_seconds is None else wait_seconds
    accepted = accept_call(actor=actor, asked=asked, wait_seconds=wait)
    if accepted.call.taken_at is None and accepted.call.run_id is not None:
        drivers.drive(accepted.call.run_id)
    _wait(accepted.call, seconds=wait, settled_only=wait_seconds is not None)
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
    call = GatewayCall.objects.filter(operation_id=operation_id).first()
    if call is None or call.scope != actor.keys:
        actor.require(READ)
    if call is None:
        return get_operation(operation_id)
    if wait_seconds:
        _wait(call, seconds=wait_seconds, settled_only=True)
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
    if called.operation is None or called.operation.status == OperationStatus.PREPARED:
        return called.call.answer_by is not None and called.call.answer_by > timezone.now()
    return called.operation.status == OperationStatus.RUNNING


def _wait(call: GatewayCall, *, seconds: float, settled_only: bool) -> None:
    if seconds > 0:
        await_operation(str(call.operation_id), seconds=seconds, settled_only=settled_only)


def _read(accepted: Accepted) -> Called:
    call = accepted.call
    operation = _find_operation(str(call.operation_id))
    return Called(call=call, operation=operation, replayed=accepted.replayed)


def _find_operation(operation_id: str) -> ToolOperation | None:
    """The operation, or the newest one that a person or a new version put in its place."""
    try:
        operation = get_operation(operation_id)
    except UnknownOperation:
        return None
    if operation.never_sent != NeverSent.CHANGED:
        return operation
    place = ToolOperation.objects.filter(
        run_id=operation.run_id, step_number=operation.step_number, ordinal=operation.ordinal
    )
    newest = place.order_by("-revision").values_list("id", flat=True)[0]
    return get_operation(newest)
