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
from runs.gateway.naming import Asked, digest_of, key_of_thread, means_the_same, name_call
from runs.gateway.opening import may_claim, open_call
from runs.models import NAME, AgentRun, ControlRequest, GatewayCall
from runs.starting import insert_run
from runs.state import FINAL_STATES, RunState
from runs.wake import make_due
from runs.work import Work
from tools.canonical import digest
from tools.errors import ToolError, UnknownTool
from tools.registry import get_tool

__all__ = ["Accepted", "Asked", "accept_call", "accept_finish"]

LONGEST_KEY: Final = 255
LAST_STEP: Final = 2**31 - 1


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
                return _recall_action(actor, known, asked, run)
            _require_open(run, request="call a tool")
            call = _insert(actor, asked, run, wait_seconds=wait_seconds)
    except (IntegrityError, OperationalError) as error:
        return _meet(actor, asked, error, wait_seconds=wait_seconds)
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
    call = name_call(actor, asked, run_id)
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
        return _meet(actor, asked, error, wait_seconds=wait_seconds)
    if opened is not None:
        return Accepted(call=opened.call, replayed=False, work=opened.work)
    if (known := _find(actor, asked.key)) is None:
        # It was there a moment ago.
        raise KeyForgotten()
    return _recall(known, asked)


def accept_finish(*, actor: Actor, run_id: UUID, result: Any = None, error: str = "") -> AgentRun:
    """Record that the run's agent has reached its goal, or that it will not (`error`).

    The run ends once it has done what it was asked for before. The same said again is the same
    end, unless the run was retried since. Raises UnknownRun, NotExternal, WrongState,
    NotPermitted or InvalidInput.
    """
    check_storable(result, field="result")
    check_text(error, field="error")
    said = {"result": result, "error": error}
    with transaction.atomic():
        run = _lock_external(actor, run_id)
        if _said_before(run, digest(said)):
            # And the answer to that was lost.
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


def _said_before(run: AgentRun, request_digest: str) -> bool:
    """Whether the run's present life was asked to end like this."""
    ends = run.gateway_calls.filter(
        kind=GatewayCall.Kind.FINISH, request_digest=request_digest
    ).order_by("-id")
    retries = ControlRequest.objects.filter(run=run, kind=ControlRequest.Kind.RETRY)
    newest, retry = ends.first(), retries.order_by("-at").first()
    return newest is not None and (retry is None or newest.received_at > retry.at)


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
    if asked.is_named and asked.run is None and asked.thread is None:
        raise InvalidInput(
            field="step" if asked.action is None else "action",
            value="without a run or thread",
            fix="Give the thread or run too: a call of neither is a run of its own, where such a "
            "name would never meet itself.",
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
    # Not by the name of who started it, which may be another one by now.
    assert asked.thread is not None, "asked for calls of a thread alone"
    return AgentRun.objects.filter(idempotency_key=key_of_thread(actor, asked.thread))


def _find(actor: Actor, key: str) -> GatewayCall | None:
    calls = GatewayCall.objects.select_related("same_as")
    return calls.filter(scope=actor.keys, key=key).first()


def _recall(known: GatewayCall, asked: Asked) -> Accepted:
    """The call that the key names. Raises KeyReused or KeyForgotten."""
    if known.request_digest != digest_of(asked):
        raise KeyReused(key=asked.key, run_id=str(known.run_id or ""))
    if known.run_id is None:
        raise KeyForgotten()
    return Accepted(call=known.same_as or known, replayed=True)


def _find_run(actor: Actor, asked: Asked, agent: Agent) -> AgentRun:
    """The run that the call belongs to, locked, or the new one of its thread."""
    if asked.run is not None:
        return _lock_external(actor, asked.run)
    assert asked.thread is not None, "a call of neither is a run of its own"
    known = _runs_of_thread(actor, asked).first()
    if known is None:
        run = _new_run(actor, agent)
        run.labels = {"thread": asked.thread[:NAME]}
        run.idempotency_key = key_of_thread(actor, asked.thread)
        insert_run(run, actor=actor, hints=False)
        return run
    return _lock_external(actor, known.pk, is_own=True)


def _new_run(actor: Actor, agent: Agent) -> AgentRun:
    return AgentRun(
        agent=agent.name,
        agent_version=agent.version,
        state=RunState.READY,
        priority=agent.priority,
        created_by=actor.name,
        created_by_user_id=actor.user_id,
        request_digest=digest(None),
        traceparent=actor.traceparent,
    )


def _lock_external(actor: Actor, run_id: UUID, *, is_own: bool = False) -> AgentRun:
    """The run, for whoever has called in it before or may write every run."""
    run = lock_run(run_id)
    try:
        is_ours = is_external(get_agent(run.agent))
    except UnknownAgent:
        is_ours = False
    if not is_ours:
        raise NotExternal(run_id=str(run_id), agent=run.agent)
    if not is_own and not run.gateway_calls.filter(scope=actor.keys).exists():
        # Another token of the same user is somebody else, as it is where keys are concerned.
        actor.require(RUNS_WRITE)
    return run


def _require_open(run: AgentRun, *, request: str) -> None:
    if run.state in FINAL_STATES:
        raise WrongState(run_id=str(run.pk), state=run.state, request=request)


def _insert(actor: Actor, asked: Asked, run: AgentRun, *, wait_seconds: float) -> GatewayCall:
    call = name_call(actor, asked, run)
    call.answer_by = Now() + timedelta(seconds=wait_seconds)
    call.save(force_insert=True)
    # One with an open step comes to it when that is closed.
    if run.state == RunState.READY or run.lease_expires_at is not None:
        make_due(run.pk, hints=False)
    return call


def _meet(
    actor: Actor, asked: Asked, error: IntegrityError | OperationalError, *, wait_seconds: float
) -> Accepted:
    """What was written meanwhile under the same key, or for the same action of the run."""
    cause = error.__cause__
    if isinstance(cause, pg.LockNotAvailable):
        raise KeyInUse(key=asked.key) from error
    violated = cause.diag.constraint_name if isinstance(cause, pg.IntegrityError) else None
    if violated in _SAME_KEY and (known := _find(actor, asked.key)) is not None:
        return _recall(known, asked)
    if violated == "run_unique_idempotency_key":
        # The thread's first call came twice at once: its run is there now.
        return accept_call(actor=actor, asked=asked, wait_seconds=wait_seconds)
    raise error


# What a key names is the operation too, where nothing else does.
_SAME_KEY: Final = frozenset({"call_unique_key", "call_unique_operation"})


def _find_action(actor: Actor, asked: Asked, run: AgentRun) -> GatewayCall | None:
    """The call that named this step and action of the locked run before, under whatever key."""
    if not asked.is_named:
        return None
    wanted = name_call(actor, asked, run).operation_id
    return GatewayCall.objects.filter(operation_id=wanted).first()


def _recall_action(actor: Actor, known: GatewayCall, asked: Asked, run: AgentRun) -> Accepted:
    """The call, whatever its run has come to; the key is one more name of it from now on.

    Raises ActionReused or KeyForgotten.
    """
    if known.run_id is None:
        # The thread's run was purged. `run` is a new one, which is not kept.
        raise KeyForgotten(of_action=True)
    if not means_the_same(asked, known, run):
        raise ActionReused(operation_id=str(known.operation_id))
    again = name_call(actor, asked, run)
    again.kind, again.same_as = GatewayCall.Kind.AGAIN, known
    again.operation_id = again.arguments = None
    # What is secret in a reason is known by the arguments.
    again.rationale = ""
    again.taken_at = Now()
    again.save(force_insert=True)
    return Accepted(call=known, replayed=True)
