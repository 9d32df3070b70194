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
# Nobody sends it at this moment: a person, a date or a stop may be all that it waits for.
_WAITING: Final = (
    OperationStatus.UNKNOWN,
    OperationStatus.PREPARED,
    OperationStatus.AWAITING_APPROVAL,
)
Source = ToolObservation.Source
Verdict = ToolObservation.Verdict


def keep_as_late_evidence(observations: list[ToolObservation], *, wake: bool = True) -> None:
    """Append what a worker learned although it no longer holds the run.

    Without `wake` its run keeps its date: whoever sets a run aside has just chosen one.
    """
    for observation in observations:
        if observation.source == Source.WORKER:
            observation.source = Source.STALE_WORKER
        observation.save(force_insert=True)
        events.emit(
            events.Name.LATE_EVIDENCE,
            run_id=observation.run_id,
            operation_id=observation.operation_id,
        )
        note_late_effect(observation, wake=wake)


def keep_late_answer(observation: ToolObservation) -> None:
    """The same, for a function that came back in a thread of its own."""
    keep_as_late_evidence([observation])
    connection.close()


def note_late_effect(observation: ToolObservation, *, wake: bool = True) -> None:
    """Open an incident for each effect that its operation's end denies.

    Whatever it says of an operation that is not settled makes its run due.
    """
    # Read after the observation was written: whoever closes the operation later reads that.
    operation = ToolOperation.objects.get(id=observation.operation_id)
    if wake and operation.status in _WAITING:
        make_due(operation.run_id, operation_id=operation.id)
    if observation.verdict != Verdict.COMMITTED:
        return
    match OperationStatus(operation.status):
        case OperationStatus.REJECTED | OperationStatus.CANCELLED:
            first, *further = name_effects(operation)
            if not operation.incidents.filter(kind=Incident.Kind.LATE_COMMIT).exists():
                open_incident(
                    operation,
                    kind=Incident.Kind.LATE_COMMIT,
                    external_ref=first,
                    detail=f"an effect exists, and the operation was closed as {operation.status}",
                )
            _open_duplicates(operation, further)
        case OperationStatus.COMMITTED:
            _open_duplicates(operation, find_further_effects(operation))
        case _:
            # Whoever settles it reads this observation first.
            return


def find_further_effects(
    operation: ToolOperation, *, pending: Sequence[ToolObservation] = ()
) -> list[str]:
    """The effects beside the recorded one, as the observations say, `pending` ones included."""
    named = name_effects(operation, pending=pending)
    recorded = operation.external_ref
    if recorded in named:
        named.remove(recorded)
        return named
    # Recorded without its reference, or under one that no observation gives.
    return named if recorded else named[1:]


def name_effects(operation: ToolOperation, *, pending: Sequence[ToolObservation] = ()) -> list[str]:
    """Every effect that the observations prove: by its reference, else by its send.

    Two sends that both succeeded are two effects where no key joins them, whatever their
    references; but one that a send left nameless may be the one that a look-up names.
    """
    written = operation.observations.filter(verdict=Verdict.COMMITTED).order_by("id")
    proofs = [*written, *(seen for seen in pending if seen.verdict == Verdict.COMMITTED)]
    references = [
        reference
        for seen in proofs
        for reference in (seen.external_ref, *(seen.also or ()))
        if reference
    ]
    named = list(dict.fromkeys(references))
    sends = {
        seen.attempt: seen.external_ref
        for seen in proofs
        if seen.source in (Source.WORKER, Source.STALE_WORKER)
    }
    is_keyless = operation.effect_type in (EffectType.NON_IDEMPOTENT_WRITE, EffectType.IRREVERSIBLE)
    at_least = len(sends) if is_keyless else min(len(proofs), 1)
    nameless = [f"send {attempt}" for attempt in sorted(sends) if not sends[attempt]] or [""]
    missing = max(at_least - len(named), 0)
    return named + nameless[-missing:] if missing else named


def _open_duplicates(operation: ToolOperation, further: Sequence[str]) -> None:
    """One incident per effect: one that was counted without its name is not counted again."""
    counted = set(
        operation.incidents.filter(kind=Incident.Kind.DUPLICATE).values_list(
            "external_ref", flat=True
        )
    )
    new = [reference for reference in further if reference not in counted]
    for reference in new[: max(len(further) - len(counted), 0)]:
        open_incident(
            operation,
            kind=Incident.Kind.DUPLICATE,
            external_ref=reference,
            detail=FURTHER_EFFECT,
        )


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
