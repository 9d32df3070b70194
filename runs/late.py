"""What is learned about an operation outside its lease: late answers, late effects.

Guarantees: evidence is appended and moves no state; an effect that shows up although its
operation was closed without one, or beside the recorded one, is an incident, counted once
per reference.

Does not undo anything: a person or a compensation does.
"""

from collections.abc import Sequence
from typing import Final

from django.db import connection

from runs import events
from runs.models import Incident, ToolObservation, ToolOperation
from runs.state import OperationStatus
from runs.wake import make_due
from tools import EffectType

FURTHER_EFFECT: Final = "the provider has a further effect beside the recorded one"
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


def note_late_effect(observation: ToolObservation) -> None:
    """Open an incident if the observation proves an effect that its operation's end denies.

    Whatever it says of an operation that is still unknown makes its run due: a person may be
    all that it waits for.
    """
    # Read after the observation was written: whoever closes the operation later reads that.
    operation = ToolOperation.objects.get(id=observation.operation_id)
    if operation.status == OperationStatus.UNKNOWN:
        make_due(operation.run_id, operation_id=operation.id)
    if observation.verdict != Verdict.COMMITTED:
        return
    match OperationStatus(operation.status):
        case OperationStatus.REJECTED | OperationStatus.CANCELLED:
            _open_late_commit(operation, observation)
            for reference in further_references(observation):
                open_incident(
                    operation,
                    kind=Incident.Kind.DUPLICATE,
                    external_ref=reference,
                    detail=FURTHER_EFFECT,
                )
        case OperationStatus.COMMITTED:
            for external_ref in find_further_effects(operation):
                open_incident(
                    operation,
                    kind=Incident.Kind.DUPLICATE,
                    external_ref=external_ref,
                    detail=FURTHER_EFFECT,
                )
        case _:
            # Whoever settles it reads this observation first.
            return


def _open_late_commit(operation: ToolOperation, observation: ToolObservation) -> None:
    """One per operation: an effect of another reference beside it is a duplicate."""
    known = operation.incidents.filter(kind=Incident.Kind.LATE_COMMIT).first()
    found = observation.external_ref
    if known is None:
        detail = f"an effect exists, and the operation was closed as {operation.status}"
        kind = Incident.Kind.LATE_COMMIT
    elif found and known.external_ref and found != known.external_ref:
        kind, detail = Incident.Kind.DUPLICATE, FURTHER_EFFECT
    else:
        return
    open_incident(operation, kind=kind, external_ref=found, detail=detail)


def find_further_effects(
    operation: ToolOperation, *, pending: Sequence[ToolObservation] = ()
) -> set[str]:
    """References of effects beside the operation's recorded one, as its observations say,
    those that are yet to be written included.

    Two sends that both succeeded are two effects where no key joins them, whatever their
    references; such a one without a reference is named by its send.
    """
    written = operation.observations.filter(verdict=Verdict.COMMITTED).order_by("id")
    proofs = [*written, *(seen for seen in pending if seen.verdict == Verdict.COMMITTED)]
    recorded = operation.external_ref
    further = {seen.external_ref for seen in proofs if seen.external_ref and recorded}
    for seen in proofs:
        further |= further_references(seen)
    if operation.effect_type in (EffectType.NON_IDEMPOTENT_WRITE, EffectType.IRREVERSIBLE):
        made = {
            seen.attempt: seen.external_ref or f"send {seen.attempt}"
            for seen in proofs
            if seen.source in (Source.WORKER, Source.STALE_WORKER)
        }
        names = [made[attempt] for attempt in sorted(made)]
        if names and recorded not in names:
            # The recorded one has no reference: it is the newest send's.
            names.pop()
        further |= {*names}
    return further - {recorded}


def further_references(observation: ToolObservation) -> set[str]:
    """The references of further effects that a look-up saw beside the one it reports."""
    return {*(observation.also or ())} - {observation.external_ref}


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
