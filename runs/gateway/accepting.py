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
from django.db.models import QuerySet
from django.db.models.functions import Now
from psycopg import errors as pg
from uuid_utils.compat import uuid7

from runs.access import CALL_PREFIX, RUNS_WRITE, Actor
from runs.agents import EXTERNAL, Agent, get_agent
from runs.asking import check_number, check_storable, check_text, lock_run
from runs.decisions import LONGEST_RATIONALE
from runs.errors import (
    InvalidInput,
    KeyInUse,
    KeyReused,
    RunsError,
    UnknownAgent,
    WrongState,
)
from runs.external import is_external
from runs.gateway.errors import ActionReused, KeyForgotten, NotExternal
from runs.gateway.opening import may_claim, open_call
from runs.models import NAME, AgentRun, GatewayCall
from runs.planning import operation_id
from runs.starting import insert_run
from runs.state import FINAL_STATES, RunState
from runs.wake import make_due
from runs.work import Work
from tools.canonical import digest
from tools.errors import ToolError, UnknownTool
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
    """`replayed` says that the call was asked for before, by the same request. `work` is the run
    that was started for the call, where it was claimed for whoever accepts."""

    call: GatewayCall
    replayed: bool
    work: Work | None = None


def accept_call(
    *, actor: Actor, asked: Asked, wait_seconds: float = 0.0, owner: str | None = None
) -> Accepted:
    """Record the call, and make its run due; the caller waits for it for so long.

    With `owner` a run that is started for the call alone is claimed for them, where it may be:
    then they have to drive it.

    Raises NotPermitted, UnknownTool, InvalidArguments, InvalidInput, UnknownAgent, UnknownRun,
    WrongState, KeyReused, KeyInUse, or one of `gateway.errors`; none of them leaves a trace.
    """
    actor.require(f"{CALL_PREFIX}{asked.tool}")
    _check_names(asked)
    if asked.run is None and asked.thread is None:
        return _accept_alone(actor, asked, wait_seconds=wait_seconds, owner=owner)
    if (known := _find(actor, asked.key)) is not None:
        return _recall(known, asked)
    agent = _find_agent(actor, asked)
    _check_call(asked, agent)
    try:
        with transaction.atomic():
            run = _find_run(actor, asked, agent)
            if (known := _find_action(actor, asked, run)) is not None:
                return _recall_action(known, asked)
            _require_open(run, request="call a tool")
            call = _insert(actor, asked, run, wait_seconds=wait_seconds)
    except (IntegrityError, OperationalError) as error:
        return _meet(actor, asked, error)
    return Accepted(call=call, replayed=False)


def _accept_alone(
    actor: Actor, asked: Asked, *, wait_seconds: float, owner: str | None
) -> Accepted:
    """Accept a call that is a run of its own. The statement itself asks whether the key is known,
    and what a new call has to be is no matter for one that is."""
    try:
        agent = _find_agent(actor, asked)
        _check_call(asked, agent)
    except (RunsError, ToolError):
        if (known := _find(actor, asked.key)) is not None:
            return _recall(known, asked)
        raise
    run_id = uuid7()
    call = _name_call(actor, asked, run_id)
    try:
        opened = open_call(
            call,
            run_id=run_id,
            agent=agent,
            actor=actor,
            wait=wait_seconds,
            owner=owner if may_claim(agent) else None,
        )
    except (IntegrityError, OperationalError) as error:
        return _meet(actor, asked, error)
    if opened is not None:
        return Accepted(call=opened.call, replayed=False, work=opened.work)
    if (known := _find(actor, asked.key)) is None:
        # It was there a moment ago.
        raise KeyForgotten()
    return _recall(known, asked)


def accept_finish(*, actor: Actor, run_id: UUID, result: Any = None, error: str = "") -> AgentRun:
    """Record that the run's agent has reached its goal, or that it will not (`error`).

    The run ends once it has done what it was asked for before. The same said again is the same
    end. Raises UnknownRun, NotExternal, WrongState, NotPermitted or InvalidInput.
    """
    check_storable(result, field="result")
    check_text(error, field="error")
    said = {"result": result, "error": error}
    with transaction.atomic():
        run = _lock_external(actor, run_id)
        ends = run.gateway_calls.filter(kind=GatewayCall.Kind.FINISH)
        if ends.filter(request_digest=digest(said)).exists():
            # Said before, and the answer to that was lost.
            return run
        _require_open(run, request="finish")
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


def _find_agent(actor: Actor, asked: Asked) -> Agent:
    """Of the run that is there, or else the one in whose name it is started."""
    known: str | None = None
    if asked.run is not None or asked.thread is not None:
        runs = AgentRun.objects.filter(id=asked.run) if asked.run else _runs_of_thread(actor, asked)
        known = runs.values_list("agent", flat=True).first()
    name = known or asked.agent or EXTERNAL
    if asked.agent not in (None, name):
        raise InvalidInput(
            field="agent",
            value=ascii(asked.agent[:NAME]) if asked.agent else "",
            fix=f"The run is one of {name}: leave the agent out.",
        )
    agent = get_agent(name)
    if not is_external(agent):
        raise NotExternal(run_id=str(asked.run or ""), agent=name)
    return agent


def _runs_of_thread(actor: Actor, asked: Asked) -> QuerySet[AgentRun]:
    return AgentRun.objects.filter(
        created_by=actor.name, idempotency_key=_key_of_thread(actor, asked)
    )


def _key_of_thread(actor: Actor, asked: Asked) -> str:
    return f"thread:{digest([actor.keys, asked.thread])[:48]}"


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
    """The run that the call belongs to, locked, or the new one of its thread."""
    if asked.run is not None:
        return _lock_external(actor, asked.run)
    assert asked.thread is not None, "a call of neither is a run of its own"
    known = _runs_of_thread(actor, asked).first()
    if known is None:
        run = _new_run(actor, agent)
        run.labels = {"thread": asked.thread[:NAME]}
        run.idempotency_key = _key_of_thread(actor, asked)
        insert_run(run, actor=actor, hints=False)
        return run
    return _lock_external(actor, known.pk)


def _new_run(actor: Actor, agent: Agent) -> AgentRun:
    return AgentRun(
        agent=agent.name,
        agent_version=agent.version,
        state=RunState.READY,
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
    return run


def _require_open(run: AgentRun, *, request: str) -> None:
    if run.state in FINAL_STATES:
        raise WrongState(run_id=str(run.pk), state=run.state, request=request)


def _insert(actor: Actor, asked: Asked, run: AgentRun, *, wait_seconds: float) -> GatewayCall:
    call = _name_call(actor, asked, run.pk)
    call.answer_by = Now() + timedelta(seconds=wait_seconds)
    call.save(force_insert=True)
    # One with an open step comes to it when that is closed.
    if run.state == RunState.READY or run.lease_expires_at is not None:
        make_due(run.pk, hints=False)
    return call


def _name_call(actor: Actor, asked: Asked, run_id: UUID) -> GatewayCall:
    """The call's row, but for its dates."""
    is_named = asked.step is not None or asked.action is not None
    what = (
        ["action", asked.action or asked.tool]
        if is_named
        else ["key", digest([actor.keys, asked.key])]
    )
    return GatewayCall(
        run_id=run_id,
        scope=actor.keys,
        key=asked.key,
        request_digest=_digest(asked),
        operation_id=operation_id(
            run_id=run_id, step_number=asked.step or 0, logical_action=f"external {what}"
        ),
        tool=asked.tool,
        arguments=asked.arguments,
        rationale=asked.rationale,
        created_by=actor.name,
        door=actor.door,
        address=actor.address,
    )


def _meet(actor: Actor, asked: Asked, error: IntegrityError | OperationalError) -> Accepted:
    """What was written meanwhile under the same key, or for the same action of the run."""
    cause = error.__cause__
    if isinstance(cause, pg.LockNotAvailable):
        raise KeyInUse(key=asked.key) from error
    violated = cause.diag.constraint_name if isinstance(cause, pg.IntegrityError) else None
    if violated in _SAME_KEY and (known := _find(actor, asked.key)) is not None:
        return _recall(known, asked)
    if violated == "run_unique_idempotency_key":
        # The thread's first call came twice at once: its run is there now.
        return accept_call(actor=actor, asked=asked)
    raise error


# What a key names is the operation too, where nothing else does.
_SAME_KEY: Final = frozenset({"call_unique_key", "call_unique_operation"})


def _find_action(actor: Actor, asked: Asked, run: AgentRun) -> GatewayCall | None:
    """The call that named this step and action of the locked run before, under whatever key."""
    if asked.step is None and asked.action is None:
        return None
    wanted = _name_call(actor, asked, run.pk).operation_id
    return GatewayCall.objects.filter(operation_id=wanted).first()


def _recall_action(known: GatewayCall, asked: Asked) -> Accepted:
    """The call, whatever its run has come to. Raises ActionReused."""
    if known.request_digest != _digest(asked):
        raise ActionReused(operation_id=str(known.operation_id))
    return Accepted(call=known, replayed=True)
