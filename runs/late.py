"""What is learned about an operation outside its lease: late answers, late effects.

Guarantees: evidence is appended and moves no state; an effect that shows up although its
operation was closed without one, or beside the recorded one, is an incident, counted once
per reference.

Does not undo anything: a person or a compensation does.
"""

from django.db import connection

from runs import events
from runs.models import Incident, ToolObservation, ToolOperation
from runs.state import OperationStatus

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict


def keep_as_late_evidence(observations: list[ToolObservation]) -> None:
    """Append what a worker learned although it no longer holds the run."""
    for observation in observations:
        if observation.source == Source.WORKER:
            observation.source = Source.STALE_WORKER
        observation.save(force_insert=True)
        events.emit(
            events.Name.LATE_EVIDENCE,
            run_id=observation.run_id,
            operation_id=observation.operation_id,
        )
        note_late_effect(observation)


def keep_late_answer(observation: ToolObservation) -> None:
    """The same, for a function that came back in a thread of its own."""
    keep_as_late_evidence([observation])
    connection.close()


def note_late_effect(observation: ToolObservation) -> bool:
    """Open an incident if the observation proves an effect that its operation's end denies.

    True for a new one.
    """
    if observation.verdict != Verdict.COMMITTED:
        return False
    # Read after the observation was written: whoever closes the operation later reads that.
    operation = ToolOperation.objects.get(id=observation.operation_id)
    match OperationStatus(operation.status):
        case OperationStatus.REJECTED | OperationStatus.CANCELLED:
            kind = Incident.Kind.LATE_COMMIT
            detail = f"an effect exists, and the operation was closed as {operation.status}"
        case OperationStatus.COMMITTED if _is_another(observation, operation):
            kind = Incident.Kind.DUPLICATE
            detail = f"a second effect beside {operation.external_ref or 'the recorded one'}"
        case _:
            return False
    return open_incident(operation, kind=kind, external_ref=observation.external_ref, detail=detail)


def open_incident(
    operation: ToolOperation, *, kind: Incident.Kind, external_ref: str, detail: str
) -> bool:
    """Record an incident; False if this finding is recorded already."""
    _, is_new = Incident.objects.get_or_create(
        operation_id=operation.id,
        kind=kind,
        external_ref=external_ref,
        defaults={"run_id": operation.run_id, "detail": detail},
    )
    if is_new:
        events.emit(
            events.Name.INCIDENT,
            run_id=operation.run_id,
            operation_id=operation.id,
            kind=kind.value,
        )
    return is_new


def _is_another(observation: ToolObservation, operation: ToolOperation) -> bool:
    found, recorded = observation.external_ref, operation.external_ref
    return bool(found) and bool(recorded) and found != recorded
