"""Corrections by hand: a person says that an effect was corrected outside of its run.

Guarantees: a permitted, evidenced and append-only observation on the effect; no saga corrects it
again, and a run that waits for this very word goes on with the next effect. Said while a worker
holds the run, or while a compensation of the effect may yet take effect, it is refused: nobody
then corrects it twice.

Does not verify the evidence, and does not send anything.
"""

from typing import Final

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from runs.access import OPERATIONS_RESOLVE, Actor
from runs.asking import add_edge, check_text, lock_run
from runs.errors import BeingCorrected, EffectCorrected, NoEffect, RunHeld, UnknownOperation
from runs.models import TEXT_LIMIT, AgentRun, ToolObservation, ToolOperation
from runs.saga import find_target, has_effect, is_uncorrected
from runs.state import RunEvent, RunState
from runs.wake import hint_after_commit
from tools.redaction import bound_text, scrub

SHORTEST_EVIDENCE: Final = 1


def correct_by_hand(*, actor: Actor, operation_id: str, evidence: str) -> ToolOperation:
    """Record that the effect of an operation was corrected by hand; returns that operation.

    `operation_id` is the operation that had the effect, or a compensation of it that came to
    nothing. Raises NotPermitted, InvalidInput, UnknownOperation, NoEffect (there is nothing to
    correct), EffectCorrected (it is), BeingCorrected (a compensation may yet take effect) or
    RunHeld.
    """
    actor.require(OPERATIONS_RESOLVE)
    check_text(evidence, field="evidence")
    check_text(evidence.strip(), field="evidence", shortest=SHORTEST_EVIDENCE)
    named = _find(operation_id)
    with transaction.atomic():
        run = lock_run(named.run_id)
        _require_free(run, operation_id)
        target = _find_uncorrected(named)
        said = scrub(evidence.strip(), target.arguments, target.sensitive)
        ToolObservation.objects.create(
            operation_id=target.pk,
            run_id=run.pk,
            source=ToolObservation.Source.PERSON,
            verdict=ToolObservation.Verdict.CORRECTED,
            detail=bound_text(f"corrected by hand, {actor.name} says: {said}", TEXT_LIMIT),
            attempt=target.attempts,
            fence_token=run.fence_token,
        )
        # What was taken back may be done anew.
        ToolOperation.objects.filter(pk=target.pk).update(holds_intent=None)
        # A worker that was stopped, and whose lease is over, must not plan a correction now.
        AgentRun.objects.filter(pk=run.pk).update(version=F("version") + 1)
        if _waits_for(run, target):
            _let_go_on(run, target, actor=actor)
    return _find(target.pk)


def _find(operation_id: str) -> ToolOperation:
    # PostgreSQL takes no NUL, so no id has one.
    known = "\0" not in operation_id
    found = ToolOperation.objects.select_related("compensates").filter(pk=operation_id)
    operation = found.first() if known else None
    if operation is None:
        raise UnknownOperation(operation_id=operation_id)
    return operation


def _require_free(run: AgentRun, operation_id: str) -> None:
    held = AgentRun.objects.filter(pk=run.pk, lease_expires_at__gt=Now())
    if held.exists():
        raise RunHeld(run_id=str(run.pk), operation_id=operation_id)


def _find_uncorrected(named: ToolOperation) -> ToolOperation:
    """The operation whose effect is meant, read under the lock."""
    target = find_target(named)
    if not has_effect(target):
        raise NoEffect(operation_id=target.pk, status=target.status)
    if not is_uncorrected(target):
        raise EffectCorrected(operation_id=target.pk)
    under_way = ToolOperation.objects.filter(compensates=target.pk, settled_at__isnull=True).first()
    if under_way is not None:
        raise BeingCorrected(
            operation_id=target.pk, compensation_id=under_way.pk, status=under_way.status
        )
    return target


def _waits_for(run: AgentRun, target: ToolOperation) -> bool:
    """Whether the run is paused because of this effect, and not because somebody asked for it."""
    is_stuck = run.state == RunState.COMPENSATING and run.paused_at is not None
    return is_stuck and run.pause_reason.startswith(f"operation {target.pk}")


def _let_go_on(run: AgentRun, target: ToolOperation, *, actor: Actor) -> None:
    AgentRun.objects.filter(pk=run.pk).update(
        paused_at=None, pause_reason="", wake_at=Now(), sweep_at=Now()
    )
    reason = f"operation {target.pk} was corrected by hand"
    state = RunState(run.state)
    add_edge(run, RunEvent.RESUME, state, actor=actor, reason=reason, version=run.version + 1)
    hint_after_commit(run.pk)
