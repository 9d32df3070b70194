"""Tools, look-ups and deciders are other people's code: whatever they do, nothing is lost.

One law for all of it: the outcome is recorded as what it is, the run goes on or says
why not, and no secret is written down on the way.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import httpx2
import pytest
from django.db import connection, transaction
from pydantic import AfterValidator, BeforeValidator

from runs import CallTools, Context, Decision, Finish, ToolCall, deciding
from runs.access import operator
from runs.commands import cancel_run
from runs.models import AgentRun, ToolObservation, Transition
from runs.state import RunState
from runs.timeline import read_timeline
from tests.database.gating import tamper
from tests.database.kit import (
    KEYED,
    ON_DATABASE,
    Script,
    call_once,
    drive,
    drive_when_due,
    operation_of,
    scripted_tool,
)
from tools import Call, EffectType, NotSent, Reconciled, Rejected, Retry, tool
from tools.execution import abandoned, in_flight

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
CARD = "4111222233334444"


class _Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


# -- Tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [None, 422, {"code": "no"}, ["a"], _Unreadable()])
def test_a_refusal_is_a_refusal_whatever_its_reason_is(start: Start, reason: Any) -> None:
    scripted_tool(Rejected(reason))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).status == "REJECTED"
    assert run.state == RunState.FAILED
    assert in_flight() == frozenset()


def test_what_was_not_sent_is_tried_again_whatever_its_reason_is(start: Start) -> None:
    scripted_tool(NotSent(ConnectionError("refused")), 7)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert operation_of(run).status == "PREPARED"
    drive_when_due(run)
    assert run.result == 7


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), ZeroDivisionError()])
def test_a_validator_that_breaks_refuses_the_call(start: Start, error: Exception) -> None:
    def check(value: str) -> str:
        raise error

    @tool(effect_type=EffectType.READ)
    def look(call: Call, name: Annotated[str, AfterValidator(check)]) -> None:
        """Look."""

    run = start(decider=call_once(ToolCall("look", name="a")), tools=("look",))
    drive(run)
    assert operation_of(run).status == "CANCELLED"
    assert run.state == RunState.FAILED


def test_arguments_that_cannot_be_read_back_refuse_the_call(start: Start) -> None:
    """A validator that does not accept what it made itself."""

    def only_raw(value: object) -> str:
        if not str(value).startswith("raw"):
            raise ValueError("not raw")
        return "cooked"

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=KEYED)
    def cook(call: Call, name: Annotated[str, BeforeValidator(only_raw)]) -> None:
        """Cook."""

    run = start(decider=call_once(ToolCall("cook", name="raw")), tools=("cook",))
    drive(run)
    assert operation_of(run).status == "CANCELLED"
    assert "not raw" in operation_of(run).error
    assert run.state == RunState.FAILED


def test_a_tool_that_changes_its_arguments_changes_no_record_and_leaks_nothing(
    start: Start,
) -> None:
    @tool(effect_type=EffectType.NON_IDEMPOTENT_WRITE, sensitive=("card",))
    def charge(call: Call, card: str) -> None:
        """Charge a card."""
        raise RuntimeError(f"failed with {call.arguments.pop('card')}")  # type: ignore[attr-defined]

    run = start(decider=call_once(ToolCall("charge", card=CARD)), tools=("charge",))
    drive(run)
    assert operation_of(run).arguments == {"card": CARD}
    assert CARD not in _everything_said(run)


def test_a_secret_that_the_bound_would_cut_is_hidden_whole(start: Start) -> None:
    @tool(effect_type=EffectType.NON_IDEMPOTENT_WRITE, sensitive=("card",))
    def charge(call: Call, card: str) -> None:
        """Charge a card."""
        raise RuntimeError("y" * 1970 + f" {card}")

    run = start(decider=call_once(ToolCall("charge", card=CARD)), tools=("charge",))
    drive(run)
    said = _everything_said(run)
    # Four digits alone stand in many an id.
    assert f"y {CARD[:4]}" not in said
    assert CARD not in said


def test_a_declaration_that_was_added_later_hides_what_the_journal_says(start: Start) -> None:
    scripted_tool(RuntimeError(f"failed with {CARD}"), effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(ToolCall("pay", amount=int(CARD))), tools=("pay",))
    drive(run)
    # The tool is not registered with the name today; the row is what says so.
    tamper("UPDATE runs_tooloperation SET sensitive = '[\"amount\"]'")
    shown = [entry.model_dump_json() for entry in read_timeline(run_id=run.id).items]
    assert CARD not in "".join(shown)


def test_a_tool_does_not_draw_on_the_kernels_connections(start: Start) -> None:
    def look(call: Call) -> bool:
        Transition.objects.exists()
        return connection.pool is None

    scripted_tool(look, effect=EffectType.READ)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    assert run.result is True
    assert connection.pool is not None


def test_a_function_that_ignores_its_deadline_is_counted_until_it_is_back(start: Start) -> None:
    back = threading.Event()
    scripted_tool(lambda call: back.wait(60), effect=EffectType.READ, seconds=0.2)
    before = abandoned()
    drive(start(decider=call_once(), tools=("pay",)))
    assert abandoned() == before + 1
    back.set()
    wait_until(lambda: abandoned() == before)


def test_a_key_that_may_be_forgotten_before_the_deadline_is_not_used_again(start: Start) -> None:
    forgetful = replace(KEYED, idempotency_retention=timedelta(seconds=20))
    script = scripted_tool(
        ConnectionResetError("lost"), "a second effect", provider=forgetful, seconds=19.0
    )
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.state == RunState.WAITING_FOR_RESOLUTION
    assert len(script.calls) == 1


def test_a_refused_connection_proves_nothing_when_nobody_knows_how_many_requests_there_were(
    start: Start,
) -> None:
    def act(call: Call) -> None:
        # The first request of this function may have taken effect; it asked for no time-out.
        raise httpx2.ConnectError("refused")

    script = scripted_tool(act, act, act, effect=EffectType.NON_IDEMPOTENT_WRITE)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert len(script.calls) == 1
    assert run.state == RunState.WAITING_FOR_RESOLUTION


def test_a_repeat_hands_over_the_same_bytes(start: Start) -> None:
    sent: list[str] = []

    @tool(
        provider=KEYED,
        effect_type=EffectType.IDEMPOTENT_WRITE,
        retry_policy=Retry(max_attempts=3, first_delay=1.0),
    )
    def post(call: Call, body: dict[str, Any]) -> str:
        """Post a body."""
        sent.append(json.dumps([dict(call.arguments), body]))
        if len(sent) == 1:
            raise ConnectionResetError("lost")
        return "done"

    body = {"zebra": 1, "a": {"long_name": 1, "b": 2, "c": -0.0, "d": 1.0}, "é": [3, "x"]}
    run = start(decider=call_once(ToolCall("post", body=body)), tools=("post",))
    drive(run)
    drive_when_due(run)
    assert run.result == "done"
    assert sent[0] == sent[1]


def test_a_call_that_the_agent_may_not_make_hides_its_secrets_too(start: Start) -> None:
    @tool(effect_type=EffectType.NON_IDEMPOTENT_WRITE, sensitive=("card",))
    def charge(call: Call, card: str) -> None:
        """Charge a card."""

    run = start(decider=call_once(ToolCall("charge", card=CARD)))
    drive(run)
    operation = operation_of(run)
    assert (operation.status, operation.sensitive) == ("CANCELLED", ["card"])


@pytest.mark.parametrize(
    ("effect", "state"),
    [
        (EffectType.READ, RunState.CANCELLED),
        (EffectType.IDEMPOTENT_WRITE, RunState.WAITING_FOR_RESOLUTION),
    ],
)
def test_a_run_that_is_to_be_cancelled_sends_nothing_again(
    start: Start, effect: EffectType, state: RunState
) -> None:
    script = scripted_tool(ConnectionResetError("lost"), 7, effect=effect)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    cancel_run(actor=operator(), run_id=run.id)
    drive_when_due(run)
    drive_when_due(run)
    assert len(script.calls) == 1
    assert run.state == state


# -- Look-ups -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Reconciled.committed({}, external_ref="r" * 300), "failed"),
        (Reconciled.committed({}, external_ref="a\0b"), "failed"),
        (Reconciled.committed({}, external_ref="re_1", also=("r" * 300,)), "failed"),
        (Reconciled.committed({}, external_ref="re_1", also=("a\0b",)), "failed"),
        (Reconciled(verdict="committed", also=7), "failed"),  # type: ignore[arg-type]
        (Reconciled(verdict="COMMITTED"), "failed"),  # type: ignore[arg-type]
        (Reconciled(verdict="indeterminate", why=5), "indeterminate"),  # type: ignore[arg-type]
        ("found", "failed"),
    ],
)
def test_a_look_up_that_answers_junk_has_not_answered(
    start: Start, answer: Any, verdict: str
) -> None:
    look_up = Script(*[answer] * 9)
    scripted_tool(
        ConnectionResetError("lost"), 7, look_up=look_up, effect=EffectType.NON_IDEMPOTENT_WRITE
    )
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    for _ in range(3):
        drive_when_due(run)
    looked = ToolObservation.objects.filter(run=run, source="look_up")
    assert [seen.verdict for seen in looked] == [verdict] * 3
    assert run.state == RunState.TOOL_STATUS_UNKNOWN


def test_a_negative_look_up_carries_nothing_along(start: Start) -> None:
    look_up = Script(Reconciled(verdict="not_found", result=object()))
    scripted_tool(ConnectionResetError("lost"), 7, look_up=look_up)
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.result == 7


# -- Deciders -----------------------------------------------------------------------------------


def _opens_a_transaction() -> None:
    transaction.atomic().__enter__()


def _turns_autocommit_off() -> None:
    connection.set_autocommit(False)


def _begins_by_hand() -> None:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")


@pytest.mark.parametrize("leave", [_opens_a_transaction, _turns_autocommit_off, _begins_by_hand])
def test_a_transaction_that_a_decider_left_open_swallows_no_commit(
    start: Start, leave: Callable[[], None]
) -> None:
    seen: list[bool] = []

    def look(call: Call) -> int:
        # Another thread, so another connection: it sees only what is committed.
        seen.append(
            Transition.objects.filter(event="SEND", operation_id=call.operation_id).exists()
        )
        return 7

    scripted_tool(look, effect=EffectType.READ)

    def decide(context: Context) -> Decision:
        leave()
        return CallTools(ToolCall("pay")) if context.last is None else Finish(context.last.result)

    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert seen == [True]
    assert (run.state, run.result) == (RunState.COMPLETED, 7)
    other = start(decider=lambda context: Finish("unharmed"))
    drive(other)
    assert other.result == "unharmed"


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit(), _Unreadable()]
)
def test_whatever_a_decider_raises_counts_and_ends(start: Start, error: BaseException) -> None:
    def decide(context: Context) -> Decision:
        raise error

    run = start(decider=decide)
    for _ in range(3):
        drive_when_due(run)
    assert run.state == RunState.FAILED
    assert "no decision in 3 tries" in run.error


def test_a_decider_that_never_answers_costs_a_try_and_no_worker(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "DECIDER_SECONDS", 0.1)
    back = threading.Event()

    def decide(context: Context) -> Decision:
        back.wait(60)
        return Finish("too late")

    run = start(decider=decide)
    for _ in range(3):
        drive_when_due(run)
    back.set()
    assert run.state == RunState.FAILED
    assert "no answer within" in run.error
    wait_until(lambda: abandoned() == 0)


def test_a_decider_cannot_change_the_input_of_its_run(start: Start) -> None:
    def decide(context: Context) -> Decision:
        seen = context.input.pop("order")
        return CallTools(ToolCall("pay")) if context.last is None else Finish(seen)

    scripted_tool(7)
    run = start(decider=decide, tools=("pay",), input={"order": "17"})
    drive(run)
    assert run.result == "17"


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until, "it did not come true in 10 s"
        time.sleep(0.01)


def _everything_said(run: AgentRun) -> str:
    """All free text that was stored about a run, and all that its timeline shows."""
    run.refresh_from_db()
    stored = [
        *Transition.objects.filter(run=run).values_list("reason", flat=True),
        *ToolObservation.objects.filter(run=run).values_list("detail", flat=True),
        *run.operations.values_list("error", flat=True),
        run.error,
    ]
    shown = [entry.model_dump(mode="json") for entry in read_timeline(run_id=run.id).items]
    return json.dumps([stored, shown])
