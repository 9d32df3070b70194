"""Retrying: a failed run goes on from its last checkpoint.

Guarantees: a committed effect is never made again: the steps that are taken back are the
newest ones, from after the last step that committed a write or was told something. Their
calls were refused or never sent, and their rows stay.

Does not retry what was corrected, or a child whose parent has gone on without it.
"""

from uuid import UUID

from django.db import transaction
from django.db.models import F, Max
from django.db.models.functions import Now

from runs.access import RUNS_WRITE, Actor
from runs.asking import lock_parent, lock_run, note_request, read_again, reopen
from runs.built_in import IS_DELEGATION
from runs.called import is_one_call
from runs.descent import has_effects, was_taken_back
from runs.errors import AlreadyCorrected, OneCall, ParentDecides, ParentHeld, WrongState
from runs.models import (
    AgentRun,
    ControlRequest,
    Incident,
    ToolOperation,
    Wait,
)
from runs.state import OperationStatus, RunEvent, RunState
from tools import EffectType


def retry_run(*, actor: Actor, run_id: UUID) -> AgentRun:
    """Let a failed run go on: its newest steps are done again, up to the last that did something.

    Raises UnknownRun, WrongState (it did not fail), AlreadyCorrected, OneCall, ParentDecides (its
    parent has taken its failure for an answer), ParentHeld or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    with transaction.atomic():
        _lock_parent(run_id)
        run = lock_run(run_id)
        if run.state != RunState.FAILED:
            raise WrongState(run_id=str(run_id), state=run.state, request="retry")
        if run.compensation_ending or was_taken_back(str(run.pk)):
            raise AlreadyCorrected(run_id=str(run_id))
        if is_one_call(run.pk):
            raise OneCall(run_id=str(run_id), request="retry")
        if run.parent_operation is not None:
            _require_waiting_parent(run)
        again = run.steps.filter(number__gt=_last_that_counts(run), voided_at__isnull=True)
        voided = list(again.order_by("number").values_list("number", flat=True))
        # What comes is the bill of another life.
        spent = {"tokens": run.spent_tokens, "cost_usd": str(run.spent_cost_usd)}
        note_request(run, ControlRequest.Kind.RETRY, actor=actor, steps=voided, spent=spent)
        again.update(voided_at=Now())
        reopen(
            run,
            RunEvent.RETRY,
            actor=actor,
            voided_steps=F("voided_steps") + len(voided),
            error="",
            failures=0,
            newest_action="",
            repeats=0,
        )
    return read_again(run)


def _lock_parent(run_id: UUID) -> None:
    """So that nobody claims the parent meanwhile."""
    parent = lock_parent(run_id)
    if parent is not None and parent.finished_at is None and parent.lease_expires_at is not None:
        # Its holder may have read that the child failed, and be about to record that.
        raise ParentHeld(run_id=str(run_id), parent_id=str(parent.pk))


def _require_waiting_parent(run: AgentRun) -> None:
    started_by = ToolOperation.objects.filter(id=run.parent_operation).first()
    parent = run.parent
    if started_by is None or parent is None:
        gone = f"{run.state}, and its parent is gone"
        raise WrongState(run_id=str(run.pk), state=gone, request="retry")
    if parent.finished_at is not None or started_by.status != OperationStatus.RUNNING:
        raise ParentDecides(
            run_id=str(run.pk),
            parent_id=str(parent.pk),
            request="retry",
            why="has taken its failure for an answer",
        )


def _last_that_counts(run: AgentRun) -> int:
    """The newest step that is not done again: it committed a write, or was told something."""
    writes = run.operations.filter(status=OperationStatus.COMMITTED).exclude(
        effect_type=EffectType.READ
    )
    # Closed as if it had no effect, and then one was found.
    late = Incident.objects.filter(run=run, kind=Incident.Kind.LATE_COMMIT)
    told = run.waits.filter(outcome=Wait.Outcome.CAME)
    newest = (
        writes.aggregate(newest=Max("step_number"))["newest"],
        late.aggregate(newest=Max("operation__step_number"))["newest"],
        told.aggregate(newest=Max("step_number"))["newest"],
    )
    last = max((number for number in newest if number is not None), default=0)
    # A child that failed may have left effects, which another one would make again.
    children = run.operations.filter(IS_DELEGATION, step_number__gt=last)
    for operation in children.order_by("-step_number").only("external_ref", "step_number"):
        if operation.external_ref and has_effects(operation.external_ref):
            return operation.step_number
    return last
