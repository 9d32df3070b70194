"""What people and programs ask of runs: to be cancelled, paused, corrected, reconciled.

Guarantees: a request is safe at any moment and from any number of places: it is a column that
the lease holder honours at its next commit, written under the row lock with who asked; no
request moves the state of a run that a worker may hold. A run that has ended is moved by an
edge of the table, with its journal row.

Does not wait for anything: an effect that is under way or unknown is settled first, by
whoever drives the run.
"""

from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Least, Now

from runs.access import OPERATIONS_RECONCILE, RUNS_WRITE, Actor
from runs.asking import check_text, lock_parent, lock_run, note_request, read_again, reopen
from runs.descent import has_effects
from runs.errors import NothingToCorrect, ParentDecides, UnknownOperation, WrongState
from runs.models import AgentRun, ControlRequest, ToolOperation
from runs.state import FINAL_STATES, OperationStatus, RunEvent, RunState
from runs.wake import hint_after_commit, make_due


def cancel_run(
    *, actor: Actor, run_id: UUID, compensate: bool = False, reason: str = ""
) -> AgentRun:
    """Ask for the run to be cancelled at its next commit. Asking again changes nothing.

    With `compensate`, what it did is corrected first; asked for later, it is added to a request
    that is still open. An effect that is under way or unknown is settled first, and the runs
    that it started are cancelled too. Raises UnknownRun, InvalidInput, WrongState (the run is
    final, or is being corrected) or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    check_text(reason, field="reason")
    with transaction.atomic():
        run = lock_run(run_id)
        if _is_cancelled_so(run, compensate=compensate):
            return run
        if run.state in FINAL_STATES or run.compensating_since is not None:
            raise WrongState(run_id=str(run_id), state=_standing(run), request="cancel")
        _request_cancel(
            run, ControlRequest.Kind.CANCEL, actor=actor, reason=reason, compensate=compensate
        )
    return read_again(run)


def pause_run(*, actor: Actor, run_id: UUID, reason: str = "") -> AgentRun:
    """Ask for no further step to be opened and nothing new to be sent until it is resumed.

    What may be under way is still settled. Asking again changes nothing. Raises UnknownRun,
    InvalidInput, WrongState (the run is final) or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    check_text(reason, field="reason")
    with transaction.atomic():
        run = lock_run(run_id)
        if run.state in FINAL_STATES:
            raise WrongState(run_id=str(run_id), state=run.state, request="pause")
        if run.paused_at is not None:
            return run
        note_request(run, ControlRequest.Kind.PAUSE, actor=actor, reason=reason)
        AgentRun.objects.filter(id=run_id).update(
            paused_at=Now(), pause_reason=reason or f"asked for by {actor.name}"
        )
    return read_again(run)


def compensate_run(*, actor: Actor, run_id: UUID, reason: str = "") -> AgentRun:
    """Ask for what the run did to be corrected, in reverse order, each by an operation of its own.

    An active run is cancelled with compensation; a final one is opened again for it, and ends
    as it had ended if it failed, else as cancelled. Asking again changes nothing. Raises
    UnknownRun, InvalidInput, NothingToCorrect, ParentDecides (a child of an active run, which
    corrects it) or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    check_text(reason, field="reason")
    with transaction.atomic():
        lock_parent(run_id)
        run = lock_run(run_id)
        is_final = run.state in FINAL_STATES
        if not is_final and (run.compensating_since is not None or run.cancel_compensates):
            return run
        if not is_final:
            _request_cancel(
                run, ControlRequest.Kind.COMPENSATE, actor=actor, reason=reason, compensate=True
            )
        else:
            _reopen_to_correct(run, actor=actor, reason=reason)
    return read_again(run)


def reconcile_now(*, actor: Actor, operation_id: str | None = None) -> list[str]:
    """Make unknown operations (one, or all) due for reconciliation now; returns their ids.

    Raises UnknownOperation, WrongState (it is not unknown) or NotPermitted.
    """
    actor.require(OPERATIONS_RECONCILE)
    unknown = ToolOperation.objects.filter(status=OperationStatus.UNKNOWN)
    if operation_id is not None:
        known = "\0" not in operation_id  # PostgreSQL takes no NUL, so no id has one
        operation = ToolOperation.objects.filter(id=operation_id).first() if known else None
        if operation is None:
            raise UnknownOperation(operation_id=operation_id)
        if operation.status != OperationStatus.UNKNOWN:
            raise WrongState(
                run_id=str(operation.run_id),
                state=f"not unknown: operation {operation_id} is {operation.status}",
                request="reconcile",
            )
        unknown = unknown.filter(id=operation_id)
    found = list(unknown.order_by("unknown_since").values_list("id", "run_id"))
    with transaction.atomic():
        # In one order, as everybody who locks several runs.
        for unknown_id, run_id in sorted(found, key=lambda one: one[1]):
            make_due(run_id, operation_id=unknown_id)
    return [unknown_id for unknown_id, _ in found]


def _is_cancelled_so(run: AgentRun, *, compensate: bool) -> bool:
    """Whether this was asked for already, or has come to pass."""
    if run.cancel_requested_at is None:
        return run.state == RunState.CANCELLED and not compensate
    if run.state in FINAL_STATES:
        return run.state == RunState.CANCELLED and (run.cancel_compensates or not compensate)
    return run.cancel_compensates or not compensate or run.compensating_since is not None


def _request_cancel(
    run: AgentRun, kind: ControlRequest.Kind, *, actor: Actor, reason: str, compensate: bool
) -> None:
    note_request(run, kind, actor=actor, reason=reason, compensate=compensate)
    # The first who asked stays: a later word adds the compensation alone.
    AgentRun.objects.filter(id=run.pk).update(
        cancel_requested_at=Coalesce(F("cancel_requested_at"), Now()),
        cancel_requested_by=run.cancel_requested_by or actor.name,
        cancel_compensates=compensate,
        wake_at=Coalesce(Least(F("wake_at"), Now()), Now()),
        sweep_at=Coalesce(Least(F("sweep_at"), Now()), Now()),
    )
    hint_after_commit(run.pk)


def _reopen_to_correct(run: AgentRun, *, actor: Actor, reason: str) -> None:
    parent = run.parent
    if parent is not None and parent.finished_at is None:
        raise ParentDecides(
            run_id=str(run.pk), parent_id=str(parent.pk), request="compensate", why="is active"
        )
    if not has_effects(str(run.pk)):
        raise NothingToCorrect(run_id=str(run.pk))
    note_request(run, ControlRequest.Kind.COMPENSATE, actor=actor, reason=reason)
    why = reason or f"asked for by {actor.name}"
    failed = run.state == RunState.FAILED
    reopen(
        run,
        RunEvent.COMPENSATE,
        actor=actor,
        reason=why,
        compensating_since=Now(),
        compensation_reason=why,
        compensation_ending=RunState.FAILED if failed else RunState.CANCELLED,
    )


def _standing(run: AgentRun) -> str:
    if run.compensating_since is not None and run.state not in FINAL_STATES:
        return f"{run.state}, being corrected"
    return run.state
