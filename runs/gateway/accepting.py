"""Accepting a call: durable before it is answered, and one call per key.

Guarantees: the same request under one key is one call, however often and from however many
places it is sent, and keys of two tokens never meet; a key outlives what it was used for, and is
then refused, never carried out anew; a request that is refused leaves no trace.

Does not carry anything out: the run's worker does, as it does for every agent.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, OperationalError, transaction
from django.db.models.functions import Now
from psycopg import errors as pg

from runs.access import CALL_PREFIX, RUNS_WRITE, Actor
from runs.agents import EXTERNAL, Agent, get_agent
from runs.asking import check_number, check_storable, check_text, lock_run
from runs.decisions import LONGEST_RATIONALE
from runs.errors import InvalidInput, KeyInUse, KeyReused, UnknownAgent, WrongState
from runs.external import is_external
from runs.gateway.errors import ActionReused, KeyForgotten, NotExternal
from runs.models import NAME, AgentRun, GatewayCall
from runs.planning import operation_id
from runs.starting import insert_run
from runs.state import FINAL_STATES, RunState
from runs.wake import make_due
from tools.canonical import digest
from tools.errors import UnknownTool
from tools.registry import get_tool

LONGEST_KEY: Final = 255
LAST_STEP: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One call as an agent that runs elsewhere asks for it.

    `run` is a run of an external agent; `thread` is the caller's own name for one, which is
    started where there is none. With neither, the call is a run of its own. `step` and `action`
    name the call within the run, whatever key it comes under. `agent` is the external agent in
    whose name a new run is started.
    """

    tool: str
    arguments: Any
    key: str
    run: UUID | None = None
    thread: str | None = None
    step: int | None = None
    action: str | None = None
    agent: str | None = None
    rationale: str = ""


@dataclass(frozen=True)
class Accepted:
    """`replayed` says that the call was asked for before, by the same request."""

    call: GatewayCall
    replayed: bool


def accept_call(*, actor: Actor, asked: Asked, wait_seconds: float = 0.0) -> Accepted:
    """Record the call, and make its run due; the caller waits for it for so long.

    Raises NotPermitted, UnknownTool, InvalidArguments, InvalidInput, UnknownAgent, UnknownRun,
    WrongState, KeyReused, KeyInUse, or one of `gateway.errors`; none of them leaves a trace.
    """
    actor.require(f"{CALL_PREFIX}{asked.tool}")
    _check_names(asked)
    if (known := _find(actor, asked.key)) is not None:
        return _recall(known, asked)
    agent = _find_agent(asked)
    _check_call(asked, agent)
    try:
        with transaction.atomic():
            run = _find_run(actor, asked, agent)
            call = _insert(actor, asked, run, wait_seconds=wait_seconds)
    except (IntegrityError, OperationalError) as error:
        return _meet(actor, asked, error)
    return Accepted(call=call, replayed=False)


def accept_finish(*, actor: Actor, run_id: UUID, result: Any = None, error: str = "") -> AgentRun:
    """Record that the run's agent has reached its goal, or that it will not (`error`).

    The run ends once it has done what it was asked for before. Raises UnknownRun, NotExternal,
    WrongState, NotPermitted or InvalidInput.
    """
    check_storable(result, field="result")
    check_text(error, field="error")
    said = {"result": result, "error": error}
    with transaction.atomic():
        run = _lock_external(actor, run_id)
        GatewayCall.objects.create(
            run=run,
            kind=GatewayCall.Kind.FINISH,
            scope=actor.keys,
            request_digest=digest(said),
            arguments=said,
            created_by=actor.name,
            door=actor.door,
            address=actor.address,
        )
        make_due(run.pk)
    run.refresh_from_db()
    return run


def _check_names(asked: Asked) -> None:
    check_text(asked.key, field="Idempotency-Key", shortest=1, longest=LONGEST_KEY)
    for name, longest in (("thread", 200), ("action", NAME)):
        if (given := getattr(asked, name)) is not None:
            check_text(given, field=name, shortest=1, longest=longest)
    check_text(asked.rationale, field="rationale", longest=LONGEST_RATIONALE)
    if asked.step is not None:
        check_number(asked.step, field="step", lowest=0, highest=LAST_STEP)
    if asked.run is not None and asked.thread is not None:
        raise InvalidInput(
            field="thread", value="beside a run", fix="Give a run or a thread, not both."
        )


def _check_call(asked: Asked, agent: Agent) -> None:
    if not isinstance(asked.arguments, dict):
        raise InvalidInput(
            field="arguments", value=type(asked.arguments).__name__, fix="Give a JSON object."
        )
    check_storable(asked.arguments, field="arguments")
    spec = get_tool(asked.tool)
    if spec.name not in agent.allowed_tools:
        raise UnknownTool(asked.tool, near=agent.allowed_tools)
    spec.validate(asked.arguments)


def _find_agent(asked: Asked) -> Agent:
    if asked.run is not None:
        run = AgentRun.objects.filter(id=asked.run).values_list("agent", flat=True).first()
        name = run if run is not None else EXTERNAL
    else:
        name = asked.agent or EXTERNAL
    agent = get_agent(name)
    if not is_external(agent):
        raise NotExternal(run_id=str(asked.run or ""), agent=name)
    return agent


def _digest(asked: Asked) -> str:
    """What the same request has in common with itself: not why, nor how long it is waited for."""
    return digest(
        {
            "tool": asked.tool,
            "arguments": asked.arguments,
            "run": str(asked.run) if asked.run is not None else None,
            "thread": asked.thread,
            "step": asked.step,
            "action": asked.action,
            "agent": asked.agent,
        }
    )


def _find(actor: Actor, key: str) -> GatewayCall | None:
    return GatewayCall.objects.filter(scope=actor.keys, key=key).first()


def _recall(known: GatewayCall, asked: Asked) -> Accepted:
    """The call that the key names. Raises KeyReused or KeyForgotten."""
    if known.request_digest != _digest(asked):
        raise KeyReused(key=asked.key, run_id=str(known.run_id or ""))
    if known.run_id is None:
        raise KeyForgotten()
    return Accepted(call=known, replayed=True)


def _find_run(actor: Actor, asked: Asked, agent: Agent) -> AgentRun:
    """The run that the call belongs to, locked or new."""
    if asked.run is not None:
        return _lock_external(actor, asked.run)
    if asked.thread is None:
        run = _new_run(actor, agent, objective=f"call {asked.tool}")
        insert_run(run, actor=actor, hints=False)
        return run
    key = f"thread:{digest([actor.keys, asked.thread])[:48]}"
    known = AgentRun.objects.filter(created_by=actor.name, idempotency_key=key).first()
    if known is None:
        run = _new_run(actor, agent, objective="")
        run.labels = {"thread": asked.thread[:NAME]}
        run.idempotency_key = key
        insert_run(run, actor=actor, hints=False)
        return run
    return _lock_external(actor, known.pk)


def _new_run(actor: Actor, agent: Agent, *, objective: str) -> AgentRun:
    return AgentRun(
        agent=agent.name,
        agent_version=agent.version,
        state=RunState.READY,
        objective=objective,
        priority=agent.priority,
        created_by=actor.name,
        created_by_user_id=actor.user_id,
        request_digest=digest(None),
    )


def _lock_external(actor: Actor, run_id: UUID) -> AgentRun:
    run = lock_run(run_id)
    try:
        is_ours = is_external(get_agent(run.agent))
    except UnknownAgent:
        is_ours = False
    if not is_ours:
        raise NotExternal(run_id=str(run_id), agent=run.agent)
    if run.created_by != actor.name:
        actor.require(RUNS_WRITE)
    if run.state in FINAL_STATES:
        raise WrongState(run_id=str(run_id), state=run.state, request="call a tool")
    return run


def _insert(actor: Actor, asked: Asked, run: AgentRun, *, wait_seconds: float) -> GatewayCall:
    is_named = asked.step is not None or asked.action is not None
    what = (
        ["action", asked.action or asked.tool]
        if is_named
        else ["key", digest([actor.keys, asked.key])]
    )
    call = GatewayCall(
        run=run,
        scope=actor.keys,
        key=asked.key,
        request_digest=_digest(asked),
        operation_id=operation_id(
            run_id=run.pk, step_number=asked.step or 0, logical_action=f"external {what}"
        ),
        tool=asked.tool,
        arguments=asked.arguments,
        rationale=asked.rationale,
        ends_run=asked.run is None and asked.thread is None,
        created_by=actor.name,
        door=actor.door,
        address=actor.address,
        answer_by=Now() + timedelta(seconds=wait_seconds),
    )
    call.save(force_insert=True)
    # One with an open step comes to it when that is closed.
    if not call.ends_run and (run.state == RunState.READY or run.lease_expires_at is not None):
        make_due(run.pk, hints=False)
    return call


def _meet(actor: Actor, asked: Asked, error: IntegrityError | OperationalError) -> Accepted:
    """What was written meanwhile under the same key, or for the same action of the run."""
    cause = error.__cause__
    if isinstance(cause, pg.LockNotAvailable):
        raise KeyInUse(key=asked.key) from error
    violated = cause.diag.constraint_name if isinstance(cause, pg.IntegrityError) else None
    if violated == "call_unique_key" and (known := _find(actor, asked.key)) is not None:
        return _recall(known, asked)
    if violated == "run_unique_idempotency_key":
        # The thread's first call came twice at once: its run is there now.
        return accept_call(actor=actor, asked=asked)
    if violated == "call_unique_operation":
        return _recall_action(actor, asked, error)
    raise error


def _recall_action(actor: Actor, asked: Asked, error: Exception) -> Accepted:
    """The call that this step and action of the run named before, under another key."""
    with transaction.atomic():
        run = _find_run(actor, asked, _find_agent(asked))
        name = f"external {['action', asked.action or asked.tool]}"
        wanted = operation_id(run_id=run.pk, step_number=asked.step or 0, logical_action=name)
    known = GatewayCall.objects.filter(operation_id=wanted).first()
    if known is None:
        raise error
    if known.request_digest != _digest(asked):
        raise ActionReused(operation_id=wanted)
    return Accepted(call=known, replayed=True)
