"""Scratch: to be removed."""

import threading
from collections.abc import Callable
from typing import Any, Annotated
from decimal import Decimal
import pytest
from django.db import connection, transaction, IntegrityError
from pydantic import BeforeValidator, PlainSerializer

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.access import operator
from runs.commands import cancel_run
from runs.errors import *
from runs.models import *
from runs.resolution import resolve_operation
from runs.state import RunState
from runs import watch
from tests.database.kit import *
from tools import Approve, Call, EffectType, NotSent, Reconciled, Rejected, tool

pytestmark = ON_DATABASE
Start = Callable[..., AgentRun]
LOST = ConnectionResetError("lost")


def _late(run: AgentRun, verdict: str, **given: Any) -> ToolObservation:
    operation = operation_of(run)
    from runs.late import keep_as_late_evidence

    seen = ToolObservation(
        operation_id=operation.id,
        run_id=run.id,
        source="worker",
        verdict=verdict,
        **{"attempt": operation.attempts, "fence_token": operation.fence_token, **given},
    )
    keep_as_late_evidence([seen])
    return seen


def test_rolled_back_by_flag_then_network(start: Start) -> None:
    seen = []

    def quietly(call: Call) -> int:
        transaction.set_rollback(True)
        return 1

    def network(call: Call) -> int:
        seen.append(ToolOperation.objects.get(id=call.operation_id).status)
        return 2

    scripted_tool(*[quietly] * 9, name="first", effect=EffectType.TRANSACTIONAL, provider=None)
    scripted_tool(*[network] * 9, name="second", effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(ToolCall("first"), ToolCall("second")), tools=("first", "second"))
    progress = drive(run)
    assert set(seen) <= {"RUNNING"}, (seen, progress, run.state)


def test_evidence_vs_person(start: Start) -> None:
    script = scripted_tool(LOST, 8, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    _late(run, "committed", result=7, external_ref="re_1")
    try:
        resolve_operation(
            actor=operator(),
            operation_id=operation_of(run).id,
            outcome="not_committed",
            evidence="I looked",
        )
    except RunsError as error:
        print(error)
    drive_when_due(run)
    assert len(script.calls) == 1, run.state


def test_late_proof_after_person(start: Start) -> None:
    script = scripted_tool(LOST, 8, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="not_committed",
        evidence="I looked",
    )
    _late(run, "committed", result=7, external_ref="re_1")
    drive_when_due(run)
    assert len(script.calls) == 1 or Incident.objects.count() == 1, (
        run.state,
        Incident.objects.count(),
        len(script.calls),
    )


def test_late_proof_during_repeat(start: Start) -> None:
    def again(call: Call) -> Any:
        _late(run, "committed", result=7, external_ref="re_1", attempt=1, fence_token=1)
        from tools import external_ref

        external_ref("re_2")
        return 8

    script = scripted_tool(LOST, again)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert len(script.calls) == 2
    assert list(Incident.objects.values_list("kind", "external_ref")) == [("DUPLICATE", "re_1")]


def test_two_proofs(start: Start) -> None:
    script = scripted_tool(LOST, LOST, 9)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    _late(run, "committed", result=7, external_ref="re_1", attempt=1, fence_token=1)
    _late(run, "committed", result=8, external_ref="re_2", attempt=2)
    drive_when_due(run)
    assert run.result == 7
    assert list(Incident.objects.values_list("kind", "external_ref")) == [("DUPLICATE", "re_2")]


def test_watch_also_names_recorded(start: Start) -> None:
    from tools import external_ref

    def again(call: Call) -> Any:
        external_ref("re_2")
        return 8

    look_up = Script(
        Reconciled.not_found(), Reconciled.committed(1, external_ref="re_1", also=("re_2",))
    )
    scripted_tool(LOST, again, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.result == 8
    watch.watch(operation_of(run).id)
    assert list(Incident.objects.values_list("kind", "external_ref")) == [("DUPLICATE", "re_1")]


def test_also_itself(start: Start) -> None:
    look_up = Script(Reconciled.committed(1, external_ref="re_1", also=("re_1", "re_2", "re_2")))
    scripted_tool(LOST, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    with listening() as heard:
        drive_when_due(run)
    assert list(Incident.objects.values_list("kind", "external_ref")) == [("DUPLICATE", "re_2")]
    assert events.Name.INCIDENT in [e.name for e in heard]


def test_doubled_watch_message(start: Start) -> None:
    look_up = Script(Reconciled.not_found(), *[Reconciled.not_found()] * 5)
    scripted_tool(LOST, 8, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    watch.watch(operation_of(run).id)
    watch.watch(operation_of(run).id)
    assert len(look_up.calls) == 2


def test_args_that_do_not_bind(start: Start) -> None:
    def only_raw(value: Any) -> Any:
        if not str(value).startswith("raw"):
            raise ValueError("only raw")
        return "cooked"

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, idempotency_support="natural_id")
    def odd(call: Call, name: Annotated[str, BeforeValidator(only_raw)]) -> int:
        """Odd."""
        return 1

    run = start(decider=call_once(ToolCall("odd", name="raw")), tools=("odd",))
    drive(run)
    assert operation_of(run).status == "CANCELLED"


def test_late_deadline_passed(start: Start) -> None:
    go, kept = threading.Event(), threading.Event()
    unsubscribe = events.subscribe(
        lambda event: kept.set() if event.name is events.Name.LATE_EVIDENCE else None
    )

    def slow(call: Call) -> Any:
        go.wait(20)
        return call.remaining

    scripted_tool(slow, seconds=0.2, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    go.set()
    assert kept.wait(10)
    unsubscribe()
    from runs.evidence import read_sends

    op = operation_of(run)
    sends = read_sends(op, list(op.observations.order_by("id")))
    assert sends[0].ended_at is not None


def test_purge_of_repeated(start: Start) -> None:
    scripted_tool(7, 8, intent_key=("amount",), intent_scope="global")
    first = start(decider=call_once(), tools=("pay",))
    second = start(decider=call_once(), tools=("pay",))
    drive(first)
    drive(second)
    assert operation_of(second).repeats_id == operation_of(first).id
    with transaction.atomic():
        first.delete()
    second.refresh_from_db()
    assert operation_of(second).status == "COMMITTED"


def test_replayed_event_once(start: Start) -> None:
    scripted_tool(7, 8)
    scripted_tool(1, 2, name="b")

    def decide(context: Context) -> Decision:
        if context.step_number <= 2:
            return CallTools(ToolCall("pay"), ToolCall("b"))
        return Finish(1)

    run = start(decider=decide, tools=("pay", "b"))
    with listening() as heard:
        drive(run)
    assert [e.name for e in heard].count(events.Name.REPLAYED) == 2


def test_hook_raises(start: Start) -> None:
    def act(call: Call) -> int:
        transaction.on_commit(lambda: 1 / 0)
        return 7

    scripted_tool(act, effect=EffectType.TRANSACTIONAL, provider=None)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.result == 7


def test_closes_connection(start: Start) -> None:
    def act(call: Call) -> int:
        connection.close()
        return 7

    scripted_tool(*[act] * 9, effect=EffectType.TRANSACTIONAL, provider=None)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).attempts == 1, run.error


def test_broken_transaction(start: Start) -> None:
    def act(call: Call) -> int:
        try:
            with connection.cursor() as c:
                c.execute("SELECT 1/0")
        except Exception:
            pass
        return 7

    scripted_tool(*[act] * 9, effect=EffectType.TRANSACTIONAL, provider=None)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).attempts == 1, run.error


def test_commit_killed(start: Start) -> None:
    def act(call: Call) -> int:
        with connection.cursor() as c:
            c.execute("SELECT 1")
        return 7

    scripted_tool(*[act] * 9, effect=EffectType.TRANSACTIONAL, provider=None)
    run = start(decider=call_once(), tools=("pay",))

    def kill(event: events.Event) -> None:
        if event.name is events.Name.CALL_DONE:
            pid = ask("SELECT pg_backend_pid()")
            with another_connection() as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    u = events.subscribe(kill)
    try:
        drive(run)
    finally:
        u()
    drive_when_due(run)
    assert run.result == 7
