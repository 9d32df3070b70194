"""Intents: the same business action, asked for twice.

An operation that carries out an intent *holds* it: a unique column names the intent in its
scope (the run, or everywhere) from the moment the call is planned, and lets it go only when
it is settled that nothing happened. A second call with the same intent finds the name
taken, also in a race, and *repeats* the first: it is answered with the recorded result,
held for a person, or refused, as its tool declares.

Guarantees: of two calls with one intent at most one is sent without a person's word; every
repeat is a row that names what it repeats.

Does not look before it plans: the steady path pays for the unique index alone, and only a
collision costs a query.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from runs import events
from runs.models import NeverSent, ToolOperation
from runs.outcomes import end_unsent, move_run, park, settle
from runs.state import OperationEvent, OperationStatus, RunEvent
from runs.work import Work
from tools.canonical import digest
from tools.registry import get_tool
from tools.spec import ToolSpec

# The outcome of the policy for a call that is answered and not sent.
REPLAY = "replay"
# While another run carries the intent out, its end is looked for no more often than this.
SHORTEST_WAIT = 1.0


def name_intent(operation: ToolOperation, *, spec: ToolSpec, run_id: UUID) -> str | None:
    """What the operation would hold: its intent within its scope; None for one without.

    A compensation holds what it corrects, so that one effect is corrected once.
    """
    values = [spec.name, spec.intent_values(operation.arguments)]
    operation.intent = digest(values)
    if operation.compensates_id is not None:
        return name_correction(operation.compensates_id)
    return _name_in_scope(values, spec=spec, run_id=run_id)


def name_correction(operation_id: str) -> str:
    """What a compensation of this operation holds."""
    return digest(["compensates", operation_id])


def name_forward(operation: ToolOperation, *, spec: ToolSpec, run_id: UUID) -> str | None:
    """What a compensation would hold if it were an agent's own call."""
    values = [spec.name, spec.intent_values(operation.arguments)]
    return _name_in_scope(values, spec=spec, run_id=run_id)


def _name_in_scope(values: list[Any], *, spec: ToolSpec, run_id: UUID) -> str | None:
    if not spec.effect_type.is_write or spec.repeatable:
        return None
    scope = "" if spec.intent_scope == "global" else str(run_id)
    return digest([spec.intent_scope, scope, *values])


def find_holders(names: Iterable[str | None]) -> dict[str, str]:
    """By name: the operation that holds each of these intents."""
    held = ToolOperation.objects.filter(holds_intent__in=[name for name in names if name])
    return {name: holder for name, holder in held.values_list("holds_intent", "id") if name}


def is_replay(operation: ToolOperation) -> bool:
    """Whether the operation is to be answered by the one that it repeats, and never sent."""
    return operation.policy_outcome == REPLAY


def replay(work: Work, operation: ToolOperation) -> None:
    """Answer a repeated call with what is recorded, or leave it alone until that is settled."""
    holder = _find_repeated(work, operation)
    if holder is None:
        return _drop(work, operation, "the operation that it repeats was purged")
    match OperationStatus(holder.status):
        case OperationStatus.COMMITTED:
            operation.result = holder.result
            operation.external_ref = holder.external_ref
            settle(work, operation)
            reason = f"operation {holder.id} carried out this intent; nothing was sent"
            work.move_operation(operation, OperationEvent.REPLAY, reason)
            move_run(work, RunEvent.REPLAY, reason)
            work.tell(events.Name.REPLAYED, operation)
        case OperationStatus.REJECTED | OperationStatus.CANCELLED:
            reason = f"it repeats operation {holder.id}, which came to nothing: {holder.error}"
            _drop(work, operation, reason)
        case _:
            wait = get_tool(operation.tool).retry_policy.delay(max(1, work.attempt))
            park(work, operation, seconds=max(wait, SHORTEST_WAIT))


def _drop(work: Work, operation: ToolOperation, reason: str) -> None:
    """Close the repeat without an effect: the decider is told, and may ask anew."""
    end_unsent(work, operation, OperationEvent.REFUSE, why=NeverSent.REPEAT, error=reason)


def _find_repeated(work: Work, operation: ToolOperation) -> ToolOperation | None:
    for sibling in work.operations:
        # Perhaps not written yet.
        if sibling.id == operation.repeats_id:
            return sibling
    return ToolOperation.objects.filter(id=operation.repeats_id).first()
