"""Forking: another run that goes on from what one of a run's steps had reached.

Guarantees: a fork inherits what its origin had done by the end of a closed step as facts, by
reference: it never sends those calls again, and the intents of both are one lineage, so that
neither repeats the other's effect unseen. One request under one key is one fork.

Does not copy rows, and inherits no signature: what the fork wants to send is asked about anew.
"""

from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction

from runs.access import RUNS_WRITE, Actor
from runs.agents import get_agent
from runs.asking import lock_run, note_request, read_again
from runs.called import is_one_call
from runs.descent import was_taken_back
from runs.errors import AlreadyCorrected, InvalidInput, OneCall
from runs.models import AgentRun, ControlRequest
from runs.starting import Started, check_request, insert_run, replay
from runs.state import RunState
from tools.canonical import digest

# So many of the possible steps are named in a refusal.
NAMED_STEPS: Final = 20


def fork_run(
    *,
    actor: Actor,
    run_id: UUID,
    step: int,
    objective: str | None = None,
    input: Any = None,
    labels: dict[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Started:
    """Start a run of the same agent from the end of `step` of a run in whatever state.

    Step 0 is the beginning. What is not given is the origin's. Raises UnknownRun, UnknownAgent,
    InvalidInput, AlreadyCorrected (an effect that it would inherit was taken back), OneCall,
    KeyReused, KeyInUse or NotPermitted; none of them leaves a trace.
    """
    actor.require(RUNS_WRITE)
    with transaction.atomic():
        # Locked, because a retry may be taking back its newest steps.
        origin = lock_run(run_id)
        _require_standing(origin, step=step)
        if is_one_call(origin.pk):
            raise OneCall(run_id=str(run_id), request="fork")
        fork = _prepare(
            origin,
            actor=actor,
            step=step,
            given={"objective": objective, "input": input, "labels": labels},
            key=idempotency_key,
        )
        try:
            with transaction.atomic():
                insert_run(fork, actor=actor)
        except (IntegrityError, OperationalError) as error:
            return replay(fork, error)
        note_request(origin, ControlRequest.Kind.FORK, actor=actor, fork=str(fork.id), step=step)
    return Started(run=read_again(fork), replayed=False)


def _require_standing(origin: AgentRun, *, step: Any) -> None:
    """Refuse to inherit as done what was taken back. Raises AlreadyCorrected."""
    run: AgentRun | None = origin
    while run is not None and type(step) is int:
        if was_taken_back(str(run.pk), up_to_step=step):
            raise AlreadyCorrected(run_id=str(run.pk))
        step, run = run.forked_at_step, run.forked_from


def _prepare(
    origin: AgentRun, *, actor: Actor, step: int, given: dict[str, Any], key: str | None
) -> AgentRun:
    agent = get_agent(origin.agent)
    own = {"objective": origin.objective, "input": origin.input, "labels": origin.labels}
    request = check_request(
        own | {name: value for name, value in given.items() if value is not None}, key=key
    )
    return AgentRun(
        agent=agent.name,
        agent_version=agent.version,
        state=RunState.READY,
        objective=request["objective"],
        input=request["input"],
        labels=request["labels"],
        priority=origin.priority,
        forked_from=origin,
        forked_at_step=step,
        lineage=origin.lineage or origin.id,
        inherited_steps=_position(origin, step=step),
        created_by=actor.name,
        created_by_user_id=actor.user_id,
        idempotency_key=key,
        request_digest=digest({"fork": str(origin.id), "step": step, **given}),
        traceparent=actor.traceparent,
    )


def _position(origin: AgentRun, *, step: Any) -> int:
    """How far the origin's plan was by the end of `step`. Raises InvalidInput."""
    closed = list(
        origin.steps.filter(closed_at__isnull=False, voided_at__isnull=True)
        .order_by("number")
        .values_list("number", flat=True)
    )
    # Neither True nor 1.0 names a step.
    if type(step) is int and (step == 0 or step in closed):
        return origin.inherited_steps + (closed.index(step) + 1 if step else 0)
    newest = ", ".join(str(number) for number in closed[-NAMED_STEPS:])
    earlier = "earlier ones, " if len(closed) > NAMED_STEPS else ""
    raise InvalidInput(
        field="step",
        value=ascii(step)[:80],
        fix=f"Give 0 (the beginning){' or a closed step: ' if newest else '.'}{earlier}{newest}",
    )
