"""What the database tests share: scripted tools, workers that die, and dates made due.

A scripted tool is a real tool whose function does what the test wrote down, call
after call. Time is never waited for: the dates in the rows are moved instead.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import DateTimeField
from psycopg.conninfo import make_conninfo

from runs import CallTools, Context, Decision, Fail, Finish, ToolCall, events
from runs.engine import Progress, advance
from runs.late import keep_as_late_evidence
from runs.models import (
    AgentRun,
    Approval,
    Incident,
    Question,
    Signal,
    ToolObservation,
    ToolOperation,
    Transition,
    Wait,
    Worker,
)
from tools import Call, EffectType, Provider, Reconciled, Retry, Timeout, tool

# Each test commits for real.
ON_DATABASE = pytest.mark.django_db(transaction=True)

LOST = ConnectionResetError("by the peer")

# Honours no key: what is sent twice takes effect twice.
PLAIN = Provider(name="post office", lookup="list")

KEYED = Provider(
    name="bank",
    account="acct_1",
    idempotency_support="key",
    idempotency_scope="account",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)


class Died(BaseException):
    """The worker ends here, as far as the engine can tell."""


class Script:
    """Answers one after the other: a value, an exception, or a function of the call."""

    def __init__(self, *answers: Any) -> None:
        self.answers = deque(answers)
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> Any:
        self.calls.append(call)
        answer = self.answers.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return answer(call) if callable(answer) else answer


def scripted_tool(
    *answers: Any,
    effect: EffectType = EffectType.IDEMPOTENT_WRITE,
    name: str = "pay",
    look_up: Script | None = None,
    provider: Provider | None = KEYED,
    max_attempts: int = 3,
    seconds: float = 5.0,
    **declared: Any,
) -> Script:
    """Register a tool `name(amount)` that gives `answers`; the script notes every call."""
    script = Script(*answers)

    def act(call: Call, amount: int = 1) -> Any:
        """Act by the script."""
        return script(call)

    tool(
        name=name,
        effect_type=effect,
        provider=provider,
        reconcile_handler=look_up,
        timeout_policy=Timeout(seconds=seconds),
        retry_policy=Retry(max_attempts=max_attempts, first_delay=2.0, max_delay=100.0),
        **declared,
    )(act)
    return script


def found(result: Any = "found", reference: str = "re_found") -> Reconciled[Any]:
    return Reconciled.committed(result, external_ref=reference)


def call_once(*calls: ToolCall) -> Callable[[Context], Decision]:
    """A decider that makes these calls in one step and then ends as the last one did."""

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(*(calls or (ToolCall("pay", amount=1),)))
        if context.last.committed:
            return Finish(context.last.result)
        return Fail(f"{context.last.status}: {context.last.error}")

    return decide


def drive(run: AgentRun, *, owner: str = "worker 1") -> Progress:
    """One task of one worker; `run` is read again afterwards."""
    progress = advance(run_id=run.id, owner=owner)
    run.refresh_from_db()
    return progress


def drive_when_due(run: AgentRun, *, owner: str = "worker 1") -> Progress:
    """The same, once every date of the run has come."""
    make_due(run)
    return drive(run, owner=owner)


def make_due(run: AgentRun) -> None:
    """Let the dates of a parked run, and of whatever may still be in flight, pass."""
    change(
        "UPDATE runs_agentrun SET wake_at = statement_timestamp()"
        " WHERE id = %s AND wake_at > now()",
        run.id,
    )
    change(
        "UPDATE runs_tooloperation SET in_flight_until = statement_timestamp()"
        " WHERE run_id = %s AND in_flight_until > now()",
        run.id,
    )


def let_pass(**duration: float) -> None:
    """Let time go by: every date of the kernel's rows becomes that much older.

    `let_pass(minutes=15)`. Evidence may not be changed, so its triggers look away meanwhile.
    """
    with past_triggers(), connection.cursor() as cursor:
        cursor.execute(_all_older(), {"older": timedelta(**duration)})


def pass_until_due(run: AgentRun, *, late: float = 0.0) -> None:
    """Let exactly the time go by after which a worker is due, and `late` seconds more."""
    seconds = ask(
        "SELECT EXTRACT(EPOCH FROM wake_at - statement_timestamp())::float8"
        " FROM runs_agentrun WHERE id = %s",
        run.id,
    )
    assert seconds is not None, f"nobody is due for a run that is {run.state}"
    if seconds + late > 0:
        let_pass(seconds=seconds + late)


def drive_in_time(run: AgentRun, *, owner: str = "worker 2", most: int = 200) -> None:
    """Drive the run at each of its dates until nobody is due, or it waits for a person."""
    _drive_on(run, owner=owner, most=most, late=0.0)


def drive_late(run: AgentRun, *, owner: str = "worker 2") -> None:
    """The same by a worker that comes ten minutes late each time: hours go by in a few claims."""
    _drive_on(run, owner=owner, most=20, late=600.0)


def _drive_on(run: AgentRun, *, owner: str, most: int, late: float) -> None:
    for _ in range(most):
        if run.wake_at is None or run.state == "WAITING_FOR_RESOLUTION":
            return
        pass_until_due(run, late=late)
        drive(run, owner=owner)
    raise AssertionError(f"run {run.id} is still {run.state} after {most} claims")


_DATED = (
    AgentRun,
    Approval,
    Question,
    Signal,
    ToolOperation,
    ToolObservation,
    Wait,
    Worker,
)
# The dates in a send's window are texts in a JSON object.
_OLDER_DOCUMENT = """{name} = (
    SELECT jsonb_object_agg(key, to_jsonb((value #>> '{{}}')::timestamptz - %(older)s))
    FROM jsonb_each({name}))"""


@functools.cache
def _all_older() -> str:
    statements = []
    for model in _DATED:
        fields = model._meta.local_fields
        dates = [field.column for field in fields if isinstance(field, DateTimeField)]
        sets = [f"{name} = {name} - %(older)s" for name in dates]
        if model is ToolObservation:
            sets.append(_OLDER_DOCUMENT.format(name='"window"'))
        statements.append(f"UPDATE {model._meta.db_table} SET {', '.join(sets)}")
    return ";".join(statements)


@contextmanager
def past_triggers() -> Iterator[None]:
    """What no trigger sees: in here evidence may be changed.

    Nothing is done to the tables, whose every plan would have to be made anew."""
    with transaction.atomic():
        change("SET LOCAL session_replication_role = replica")
        yield
        change("SET LOCAL session_replication_role = origin")


def expire_lease(run: AgentRun) -> None:
    """Let the lease of a worker that died or was stopped run out.

    Its owner is renamed too: a renewal by this process's heartbeat may be on its way, and
    a worker that is gone renews nothing.
    """
    change(
        "UPDATE runs_agentrun SET lease_owner = 'gone',"
        " lease_expires_at = statement_timestamp() - interval '1 s'"
        " WHERE id = %s AND lease_owner <> ''",
        run.id,
    )
    make_due(run)


def change(sql: str, *values: Any) -> int:
    """One raw statement; returns how many rows it touched."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return int(cursor.rowcount)


def ask(sql: str, *values: Any) -> Any:
    """The first column of the first row of a raw query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        row = cursor.fetchone()
    return None if row is None else row[0]


@contextmanager
def dies_at(name: events.Name, *, nth: int = 1) -> Iterator[None]:
    """End whoever drives a run at the nth event of this name, as a kill would."""
    seen = 0

    def count(event: events.Event) -> None:
        nonlocal seen
        seen += event.name is name
        if event.name is name and seen == nth:
            raise Died

    unsubscribe = events.subscribe(count)
    try:
        yield
    except Died:
        return
    finally:
        unsubscribe()
    raise AssertionError(f"nobody died: {name} happened {seen} times")


@contextmanager
def listening() -> Iterator[list[events.Event]]:
    """Every event inside the block."""
    heard: list[events.Event] = []
    unsubscribe = events.subscribe(heard.append)
    try:
        yield heard
    finally:
        unsubscribe()


def another_connection(*, autocommit: bool = True) -> psycopg.Connection[Any]:
    """A connection of one's own to the test database; the caller closes it."""
    given = connection.settings_dict
    conninfo = make_conninfo(
        dbname=given["NAME"],
        user=given["USER"] or None,
        password=given["PASSWORD"] or None,
        host=given["HOST"] or None,
        port=given["PORT"] or None,
    )
    return psycopg.connect(conninfo, autocommit=autocommit)


def operation_of(run: AgentRun, *, ordinal: int = 0) -> ToolOperation:
    """The newest operation of the run with this place in its decision."""
    return ToolOperation.objects.filter(run=run, ordinal=ordinal).order_by(
        "-step_number"
    ).first() or _none(run)


def run_edges(run: AgentRun) -> list[str]:
    """What the run itself did, oldest first."""
    return list(_journal(run).filter(operation=None).values_list("event", flat=True))


def operation_edges(run: AgentRun) -> list[str]:
    """What its operations did, oldest first."""
    return list(_journal(run).exclude(operation=None).values_list("event", flat=True))


def verdicts(run: AgentRun) -> list[tuple[str, str]]:
    """(source, verdict) of every observation, oldest first."""
    rows = operation_of(run).observations.order_by("id")
    return list(rows.values_list("source", "verdict"))


def incidents(run: AgentRun) -> list[tuple[str, str]]:
    """(kind, reference) of every incident, oldest first."""
    rows = Incident.objects.filter(run=run).order_by("id")
    return list(rows.values_list("kind", "external_ref"))


def hear_late(run: AgentRun, verdict: str, **said: Any) -> None:
    """A worker that lost its lease comes back with what it learned: here of the newest send."""
    operation = operation_of(run)
    about: dict[str, Any] = {
        "source": ToolObservation.Source.WORKER,
        "attempt": operation.attempts,
        "fence_token": operation.fence_token,
        "window": {"returned_at": ask("SELECT now()").isoformat()},
    }
    keep_as_late_evidence(
        [
            ToolObservation(
                operation_id=operation.id,
                run_id=run.id,
                verdict=verdict,
                **about | said,
            )
        ]
    )


def _journal(run: AgentRun) -> Any:
    return Transition.objects.filter(run=run).order_by("id")


def _none(run: AgentRun) -> ToolOperation:
    raise AssertionError(f"run {run.id} has no such operation")
