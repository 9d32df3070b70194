"""What a caller may ask of runs. Every front door comes through here.

Guarantees: a command checks its actor, then writes in one transaction or not at
all; the same request under one idempotency key is one run, however often and
from however many places it is sent. A request to a run (cancel, reconcile) is a
column that the lease holder honours at its next commit; no command moves the
state of a run that a worker may hold.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Least, Now
from psycopg import errors as pg

from runs.access import OPERATIONS_RECONCILE, RUNS_WRITE, Actor
from runs.agents import get_agent
from runs.errors import (
    InvalidInput,
    KeyInUse,
    KeyReused,
    UnknownOperation,
    UnknownRun,
    WrongState,
)
from runs.models import NAME, AgentRun, ToolOperation, Transition
from runs.state import FINAL_STATES, RUN_EDGES, OperationStatus, RunEvent, RunState
from runs.wake import hint_after_commit, make_due
from tools.canonical import check_json, digest
from tools.errors import InvalidPayload

MAX_LABELS = 20


@dataclass(frozen=True)
class Started:
    """`replayed` says that the run already existed under the same key."""

    run: AgentRun
    replayed: bool


def start_run(
    *,
    actor: Actor,
    agent: str,
    objective: str = "",
    input: Any = None,
    labels: dict[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Started:
    """Record a run that is due now (T0) and hint at it after the commit.

    Raises UnknownAgent, InvalidInput, KeyReused, KeyInUse or NotPermitted; none of
    them leaves a trace.
    """
    actor.require(RUNS_WRITE)
    registered = get_agent(agent)
    request = _checked_request(
        agent=agent, objective=objective, input=input, labels=labels, key=idempotency_key
    )
    run = AgentRun(
        agent=registered.name,
        agent_version=registered.version,
        state=RunState.READY,
        objective=request["objective"],
        input=request["input"],
        labels=request["labels"],
        created_by=actor.name,
        created_by_user_id=actor.user_id,
        idempotency_key=idempotency_key,
        request_digest=digest(request),
    )
    try:
        with transaction.atomic():
            _insert(run, actor=actor)
            hint_after_commit(run.id)
    except IntegrityError as error:
        if _violated(error) != "run_unique_idempotency_key":
            raise
        return _replay(run)
    except OperationalError as error:
        if isinstance(error.__cause__, pg.LockNotAvailable) and idempotency_key:
            raise KeyInUse(key=idempotency_key) from error
        raise
    run.refresh_from_db()
    return Started(run=run, replayed=False)


def cancel_run(*, actor: Actor, run_id: UUID) -> AgentRun:
    """Ask for the run to be cancelled at its next commit. Asking again changes nothing.

    An effect that is under way or unknown is settled first. Raises UnknownRun,
    WrongState (the run is final) or NotPermitted.
    """
    actor.require(RUNS_WRITE)
    asked = AgentRun.objects.filter(
        id=run_id, finished_at__isnull=True, cancel_requested_at__isnull=True
    )
    with transaction.atomic():
        asked.update(
            cancel_requested_at=Now(),
            cancel_requested_by=actor.name,
            wake_at=Coalesce(Least(F("wake_at"), Now()), Now()),
            sweep_at=Coalesce(Least(F("sweep_at"), Now()), Now()),
        )
        hint_after_commit(run_id)
    run = AgentRun.objects.filter(id=run_id).first()
    if run is None:
        raise UnknownRun(run_id=str(run_id))
    if run.state in FINAL_STATES and run.state != RunState.CANCELLED:
        raise WrongState(run_id=str(run_id), state=run.state, request="cancel")
    return run


def resume_run(*, actor: Actor, run_id: UUID) -> AgentRun:
    """Let a paused run go on. Raises UnknownRun, WrongState (not paused) or NotPermitted."""
    actor.require(RUNS_WRITE)
    with transaction.atomic():
        run = AgentRun.objects.select_for_update(no_key=True).filter(id=run_id).first()
        if run is None:
            raise UnknownRun(run_id=str(run_id))
        if run.paused_at is None or run.state in FINAL_STATES:
            raise WrongState(run_id=str(run_id), state=f"{run.state}, not paused", request="resume")
        AgentRun.objects.filter(id=run_id).update(
            paused_at=None, pause_reason="", wake_at=Now(), sweep_at=Now()
        )
        if (RunState(run.state), RunEvent.RESUME) in RUN_EDGES:
            _journal(run, RunEvent.RESUME, actor=actor, reason=f"after a pause: {run.pause_reason}")
        hint_after_commit(run_id)
    run.refresh_from_db()
    return run


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


def _checked_request(
    *,
    agent: str,
    objective: str,
    input: Any,
    labels: dict[str, str] | None,
    key: str | None,
) -> dict[str, Any]:
    request = {
        "agent": agent,
        "objective": objective,
        "input": {} if input is None else input,
        "labels": labels or {},
    }
    try:
        for name, value in request.items():
            check_json(value, field=name)
        check_json(key, field="Idempotency-Key")
    except InvalidPayload as error:
        raise InvalidInput(field=error.field, value=error.value, fix=error.fix) from error
    if key is not None and not 0 < len(key) <= 255:
        raise InvalidInput(
            field="Idempotency-Key", value=f"{len(key)} characters", fix="Use 1 to 255."
        )
    _check_labels(request["labels"])
    return request


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise InvalidInput(
            field="labels",
            value=str(labels)[:80],
            fix=f"Give an object of at most {MAX_LABELS} texts.",
        )
    for name, value in labels.items():
        if not isinstance(value, str) or not 0 < len(name) <= NAME or len(value) > NAME:
            raise InvalidInput(
                field=f"labels.{name[:NAME]}",
                value=str(value)[:80],
                fix=f"Names and values are texts of at most {NAME} characters.",
            )


def _insert(run: AgentRun, *, actor: Actor) -> None:
    run.wake_at = run.sweep_at = Now()
    run.save(force_insert=True)
    _journal(run, RunEvent.CREATE, actor=actor)


def _journal(run: AgentRun, event: RunEvent, *, actor: Actor, reason: str = "") -> None:
    """An edge that a command takes, and not a lease holder."""
    Transition.objects.create(
        run=run,
        version=run.version,
        event=event,
        from_state="" if event is RunEvent.CREATE else run.state,
        to_state=run.state,
        reason=reason,
        actor=actor.name,
        fence_token=run.fence_token,
        step_number=run.step_number,
        attempt=0,
    )


def _replay(run: AgentRun) -> Started:
    existing = AgentRun.objects.get(created_by=run.created_by, idempotency_key=run.idempotency_key)
    if existing.request_digest != run.request_digest:
        raise KeyReused(key=run.idempotency_key or "", run_id=str(existing.id))
    return Started(run=existing, replayed=True)


def _violated(error: IntegrityError) -> str | None:
    cause = error.__cause__
    return cause.diag.constraint_name if isinstance(cause, pg.Error) else None
