"""Windows and signatures of several people, where the effect is our own or the crowd is larger."""

from dataclasses import dataclass, replace
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.db import connection

from runs import CallTools, Context, Decision, Finish, ToolCall, events, operations
from tests.database.approving import person, say
from tests.database.gating import PAID, Start, held, pay_and_tell, request_of
from tests.database.kit import (
    LOST,
    PLAIN,
    Script,
    drive,
    drive_in_time,
    drive_when_due,
    scripted_tool,
)
from tests.database.policy_rows import save_row
from tools import Approve, Call, EffectType, Reconciled, registry, tool

pytestmark = pytest.mark.django_db(transaction=True)


def test_transactional_calls_that_race_over_a_limit_see_each_other(start: Start) -> None:
    save_row(
        "few",
        tool="pay",
        when="window.count > 1",
        window_seconds=300,
        window_by="all",
        outcome="refuse",
    )
    script = scripted_tool(
        PAID, PAID, effect=EffectType.TRANSACTIONAL, provider=None, max_attempts=1
    )
    first, second = (start(decider=pay_and_tell(), tools=("pay",)) for _ in range(2))
    raced = []

    def overtake(event: events.Event) -> None:
        """The second runs between the first one's try and its call."""
        if event.name is events.Name.COMMIT_DONE and event.fields["run_id"] == first.id:
            raced.append(True)
            if len(raced) == 2:
                thread = Thread(target=drive_second)
                thread.start()
                thread.join()

    def drive_second() -> None:
        try:
            drive(second)
        finally:
            connection.close()

    unsubscribe = events.subscribe(overtake)
    try:
        drive(first)
    finally:
        unsubscribe()
    for run in (first, second):
        drive_when_due(run)
    assert len(script.calls) <= 1
    assert {run.state for run in (first, second)} == {"COMPLETED"}


def test_everybody_who_signed_is_named(start: Start) -> None:
    run, _ = held(start, approval_policy=Approve(quorum=2))
    for name in ("ida", "sam"):
        say(request_of(run), person(name))
    drive(run)
    assert request_of(run).decided_by == "ida, sam"
    assert run.journal.filter(reason="signed by ida, sam").count() == 2


def test_a_settled_repeat_after_a_deployment_is_asked_about_and_not_a_persons(
    start: Start,
) -> None:
    run, script = held(
        start,
        LOST,
        PAID,
        look_up=Script(*[Reconciled.not_found()] * 20),
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
    )
    say(request_of(run), person())
    drive(run)
    object.__setattr__(registry.get_tool("pay"), "version", "another")
    drive_in_time(run)
    assert (run.state, len(script.calls)) == ("WAITING_FOR_APPROVAL", 1)


@dataclass
class Order:
    """What a tool may take as one argument."""

    amount: Decimal


def test_a_rule_looks_into_a_dataclass(start: Start) -> None:
    rule = Approve(when="arguments.order.amount == 700.0")

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, approval_policy=rule)
    def pay_order(call: Call, order: Order) -> None:
        """Pay."""

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("pay_order", order={"amount": "700"}))
        return Finish("paid")

    run = start(decider=decide, tools=("pay_order",))
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"


def test_arguments_that_change_between_the_last_look_and_the_call_do_not_leave(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, script = held(start)
    say(request_of(run), person())
    real = operations.build_call

    def build_another(work: Any, operation: Any, *, seconds: float) -> Call:
        call = real(work, operation, seconds=seconds)
        return replace(call, arguments={"amount": 7_000})

    monkeypatch.setattr(operations, "build_call", build_another)
    drive(run)
    assert script.calls == []
    assert request_of(run).spent_at is None
    monkeypatch.undo()
    drive(run)
    assert [call.arguments for call in script.calls] == [{"amount": 700}]


def test_a_window_that_asks_for_more_by_the_time_of_the_send_is_heard(start: Start) -> None:
    save_row("always", tool="pay", groups=["finance"])
    save_row(
        "busy",
        tool="pay",
        when="window.count > 1",
        window_seconds=300,
        window_by="all",
        groups=["ops"],
    )
    script = scripted_tool(PAID, PAID)
    first, second = (start(decider=pay_and_tell(), tools=("pay",)) for _ in range(2))
    for run in (first, second):
        drive(run)
        say(request_of(run), person(None, "finance"))
    drive(first)
    drive(second)
    assert (first.state, second.state) == ("COMPLETED", "WAITING_FOR_APPROVAL")
    assert (len(script.calls), request_of(second).groups) == (1, ["finance", "ops"])


def test_a_window_counts_what_is_uncertain(start: Start) -> None:
    save_row("few", tool="pay", when="window.count > 1", window_seconds=300, window_by="all")
    scripted_tool(LOST, provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE)
    first, second = (start(decider=pay_and_tell(), tools=("pay",)) for _ in range(2))
    drive(first)
    drive(second)
    assert (first.state, second.state) == ("TOOL_STATUS_UNKNOWN", "WAITING_FOR_APPROVAL")
