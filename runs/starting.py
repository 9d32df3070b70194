"""Starting runs: durable and due in one transaction, and one run per idempotency key.

Guarantees: the same request under one key is one run, however often and from however many
places it is sent; a request that is refused leaves no trace.

Does not tell a worker for sure: the hint may get lost, and the sweep finds the row.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from django.db import IntegrityError, OperationalError, transaction
from django.db.models.functions import Now
from psycopg import errors as pg

from runs.access import RUNS_WRITE, Actor
from runs.agents import get_agent
from runs.asking import add_edge, check_number, check_storable, check_text, read_again
from runs.errors import InvalidInput, KeyInUse, KeyReused
from runs.models import NAME, AgentRun
from runs.state import RunEvent, RunState
from runs.wake import hint_after_commit
from tools.canonical import digest

MAX_LABELS: Final = 20
HIGHEST_PRIORITY: Final = 100
# What the gateway names the run of a thread by.
KEY_OF_THREAD: Final = re.compile(r"thread:(?P<name>[0-9a-f]{32})[0-9a-f]{16}")


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
    priority: int | None = None,
    idempotency_key: str | None = None,
) -> Started:
    """Record a run that is due now (T0) and hint at it after the commit.

    `priority` (-100 to 100, higher goes first) is the agent's unless it is given. Raises
    UnknownAgent, InvalidInput, KeyReused, KeyInUse or NotPermitted; none of them leaves a
    trace.
    """
    actor.require(RUNS_WRITE)
    registered = get_agent(agent)
    request = check_request(
        {
            "agent": agent,
            "objective": objective,
            "input": {} if input is None else input,
            "labels": labels or {},
        },
        key=idempotency_key,
    )
    if priority is not None:
        check_number(priority, field="priority", lowest=-HIGHEST_PRIORITY, highest=HIGHEST_PRIORITY)
        request["priority"] = priority
    run = AgentRun(
        agent=registered.name,
        agent_version=registered.version,
        state=RunState.READY,
        objective=request["objective"],
        input=request["input"],
        labels=request["labels"],
        priority=registered.priority if priority is None else priority,
        created_by=actor.name,
        created_by_user_id=actor.user_id,
        idempotency_key=idempotency_key,
        request_digest=digest(request),
        traceparent=actor.traceparent,
    )
    try:
        with transaction.atomic():
            insert_run(run, actor=actor)
    except (IntegrityError, OperationalError) as error:
        return replay(run, error)
    return Started(run=read_again(run), replayed=False)


def check_request(request: dict[str, Any], *, key: str | None) -> dict[str, Any]:
    """`request` itself, whose digest stands for it under its key. Raises InvalidInput."""
    for name, value in request.items():
        check_storable(value, field=name)
    if key is not None:
        check_text(key, field="Idempotency-Key", shortest=1, longest=255)
        if KEY_OF_THREAD.fullmatch(key):
            # What is called in such a run is taken for the thread's own.
            raise InvalidInput(
                field="Idempotency-Key", value=key, fix="Threads have such keys: give another one."
            )
    _check_labels(request["labels"])
    return request


def insert_run(run: AgentRun, *, actor: Actor, hints: bool = True) -> None:
    """Write a run that is due now, with the first row of its journal, and hint at it unless the
    caller sees to it that somebody comes."""
    run.wake_at = run.sweep_at = Now()
    run.save(force_insert=True)
    add_edge(run, RunEvent.CREATE, RunState.READY, actor=actor)
    if hints:
        hint_after_commit(run.id)


def replay(run: AgentRun, error: IntegrityError | OperationalError) -> Started:
    """The run that exists already under the key of `run`, which `error` kept from being written.

    Raises KeyReused, KeyInUse, or the error itself where the key is not its cause.
    """
    cause, key = error.__cause__, run.idempotency_key
    if isinstance(cause, pg.LockNotAvailable) and key:
        raise KeyInUse(key=key) from error
    violated = cause.diag.constraint_name if isinstance(cause, pg.IntegrityError) else None
    if violated != "run_unique_idempotency_key":
        raise error
    existing = AgentRun.objects.get(created_by=run.created_by, idempotency_key=key)
    if existing.request_digest != run.request_digest:
        raise KeyReused(key=key or "", run_id=str(existing.id)) from error
    return Started(run=existing, replayed=True)


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
