"""Intents: the same business action, asked for twice, is carried out once, and one sees it."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from runs import CallTools, Context, Decision, Finish, ToolCall, events
from runs.models import AgentRun, ToolOperation
from runs.queries import duplicate_counts
from runs.state import RunState
from runs.timeline import read_timeline
from tests.database.kit import (
    KEYED,
    ON_DATABASE,
    call_once,
    dies_at,
    drive,
    expire_lease,
    listening,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
)
from tools import Approve, Call, EffectType, tool

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


def _ask_for(*steps: list[ToolCall] | ToolCall) -> tuple[Callable[[Context], Decision], list[Any]]:
    """A decider that makes these calls, step after step, and notes what it is shown."""
    seen: list[Context] = []

    def decide(context: Context) -> Decision:
        seen.append(context)
        if context.step_number > len(steps):
            return Finish([(one.status, one.result) for one in context.observations])
        wanted = steps[context.step_number - 1]
        return CallTools(*(wanted if isinstance(wanted, list) else [wanted]))

    return decide, seen


PAY = ToolCall("pay", amount=1)


# -- Answered with what is recorded -------------------------------------------------------------


def test_the_same_action_in_a_later_step_is_answered_and_not_sent(start: Start) -> None:
    """Case M1."""
    script = scripted_tool({"id": "re_1", "external_ref": "re_1"}, "must not be sent")
    decide, seen = _ask_for(PAY, PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.COMPLETED, 1)
    first = operation_of_step(run, 1)
    for step in (2, 3):
        repeat = operation_of_step(run, step)
        assert (repeat.status, repeat.result, repeat.external_ref) == (
            "COMMITTED",
            first.result,
            "re_1",
        )
        assert (repeat.repeats_id, repeat.attempts, repeat.first_sent_at) == (first.id, 0, None)
        assert repeat.holds_intent is None
        assert repeat.id != first.id
    last = seen[-1].last
    assert last is not None
    assert (last.repeats, last.committed, last.result) == (first.id, True, first.result)
    assert operation_edges(run) == ["INTEND", "SEND", "COMMIT", *["INTEND", "REPLAY"] * 2]
    assert run_edges(run).count("REPLAY") == 2


def test_every_repeat_is_counted_told_and_shown(start: Start) -> None:
    scripted_tool(7)
    decide, _ = _ask_for(PAY, PAY, [PAY, PAY])
    run = start(decider=decide, tools=("pay",))
    with listening() as heard:
        drive(run)
    told = [event for event in heard if event.name is events.Name.REPLAYED]
    repeats = ToolOperation.objects.filter(run=run, repeats__isnull=False)
    assert len(told) == repeats.count() == duplicate_counts().replays == 3
    assert {event.fields["operation_id"] for event in told} == {one.id for one in repeats}
    shown = [entry for entry in read_timeline(run_id=run.id).items if entry.kind]
    replays = {one.operation_id for one in shown if "nothing was sent" in one.reason}
    assert replays - {None} == {one.id for one in repeats}


def test_twice_in_one_decision_is_once(start: Start) -> None:
    script = scripted_tool(7, "must not be sent")
    run = start(decider=call_once(PAY, PAY), tools=("pay",))
    drive(run)
    assert (run.state, run.result, len(script.calls)) == (RunState.COMPLETED, 7, 1)
    assert operation_of(run, ordinal=1).repeats_id == operation_of(run, ordinal=0).id


def test_an_answer_that_is_nothing_is_an_answer(start: Start) -> None:
    script = scripted_tool(None, "must not be sent")
    decide, _ = _ask_for(PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert (run.result, len(script.calls)) == ([["COMMITTED", None]] * 2, 1)


def test_a_repeat_costs_no_signature(start: Start) -> None:
    script = scripted_tool(7, approval_policy=Approve(when="amount > 500"))
    run = start(decider=call_once(PAY, PAY), tools=("pay",))
    drive(run)
    assert len(script.calls) == 1
    assert operation_of(run, ordinal=1).policy_outcome == "replay"


def test_a_crash_between_the_repeat_and_its_record_answers_it_again(start: Start) -> None:
    script = scripted_tool(7)
    decide, _ = _ask_for(PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    for nth in (1, 4, 5, 6, 7):
        try:
            with dies_at(events.Name.COMMIT_STARTING, nth=nth):
                drive(run)
        except AssertionError:
            break
        expire_lease(run)
    drive(run)
    assert run.state == RunState.COMPLETED
    assert operation_edges(run).count("REPLAY") == 1
    assert len(script.calls) == 1


# -- What one intent is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("1.50", "1.5", True),
        ("1.5", "1.500", True),
        ("100", "1E+2", True),
        ("0", "-0.00", True),
        ("1.5", "1.51", False),
        ("15", "1.5", False),
    ],
)
def test_equal_amounts_are_one_intent_however_they_are_written(
    start: Start, one: str, other: str, is_one: bool
) -> None:
    sent = _transfer_tool()
    decide, _ = _ask_for(
        ToolCall("transfer", to="ann", amount=one), ToolCall("transfer", to="ann", amount=other)
    )
    run = start(decider=decide, tools=("transfer",))
    drive(run)
    assert run.state == RunState.COMPLETED
    assert len(sent) == (1 if is_one else 2)


@pytest.mark.parametrize(
    ("key", "other", "is_one"),
    [
        ((), {"amount": "2"}, False),
        ((), {"note": "again"}, False),
        (("to",), {"amount": "2"}, True),
        (("to",), {"note": "again"}, True),
        (("to",), {"to": "bob"}, False),
        (("to", "amount"), {"note": "again"}, True),
        (("to", "amount"), {"amount": "2"}, False),
    ],
)
def test_the_intent_is_what_its_key_names_and_else_all_arguments(
    start: Start, key: tuple[str, ...], other: dict[str, str], is_one: bool
) -> None:
    sent = _transfer_tool(intent_key=key)
    first = {"to": "ann", "amount": "1", "note": ""}
    decide, _ = _ask_for(ToolCall("transfer", **first), ToolCall("transfer", **(first | other)))
    run = start(decider=decide, tools=("transfer",))
    drive(run)
    assert run.state == RunState.COMPLETED
    assert len(sent) == (1 if is_one else 2)


def test_two_intended_equal_gifts_are_possible_where_the_tool_says_so(start: Start) -> None:
    """Case M2."""
    script = scripted_tool(1, 2, 3, repeatable=True)
    decide, _ = _ask_for(PAY, [PAY, PAY])
    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert len(script.calls) == 3
    assert not ToolOperation.objects.filter(repeats__isnull=False).exists()
    assert not ToolOperation.objects.filter(holds_intent__isnull=False).exists()
    assert len(set(ToolOperation.objects.values_list("intent", flat=True))) == 1


def test_two_tools_have_intents_of_their_own(start: Start) -> None:
    pay, refund = scripted_tool(1), scripted_tool(2, name="refund")
    run = start(decider=call_once(PAY, ToolCall("refund", amount=1)), tools=("pay", "refund"))
    drive(run)
    assert (len(pay.calls), len(refund.calls)) == (1, 1)


def test_reads_have_none(start: Start) -> None:
    script = scripted_tool(1, 2, effect=EffectType.READ)
    decide, _ = _ask_for(PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    drive(run)
    assert len(script.calls) == 2


# -- As the tool declares -----------------------------------------------------------------------


def test_a_tool_may_have_repeats_refused(start: Start) -> None:
    script = scripted_tool(7, 8, on_repeated_intent="refuse")
    decide, seen = _ask_for(PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    drive(run)
    repeat = operation_of_step(run, 2)
    assert (repeat.status, repeat.policy_outcome, len(script.calls)) == ("CANCELLED", "refuse", 1)
    assert operation_of_step(run, 1).id in repeat.error
    assert repeat.repeats_id == operation_of_step(run, 1).id
    assert duplicate_counts().refused_repeats == 1
    last = seen[-1].last
    assert last is not None
    assert "same intent" in last.error


def test_a_tool_may_have_repeats_held_for_a_person(start: Start) -> None:
    script = scripted_tool(7, 8, on_repeated_intent="ask")
    decide, _ = _ask_for(PAY, PAY)
    run = start(decider=decide, tools=("pay",))
    drive(run)
    repeat = operation_of_step(run, 2)
    assert (run.state, repeat.status) == (RunState.WAITING_FOR_APPROVAL, "AWAITING_APPROVAL")
    assert (repeat.policy_outcome, repeat.repeats_id) == (
        "require_approval",
        operation_of_step(run, 1).id,
    )
    # Were it approved, it would be sent: it is no replay.
    assert repeat.holds_intent is None
    assert len(script.calls) == 1


def test_refused_repeats_in_a_row_end_the_run(start: Start) -> None:
    script = scripted_tool(*range(9), on_repeated_intent="refuse")
    run = start(decider=lambda context: CallTools(PAY), tools=("pay",))
    drive(run)
    assert (run.state, len(script.calls)) == (RunState.FAILED, 1)


def operation_of_step(run: AgentRun, step: int) -> ToolOperation:
    return ToolOperation.objects.get(run=run, step_number=step, ordinal=0)


def _transfer_tool(**declared: Any) -> list[tuple[str, Decimal]]:
    """Register `transfer(to, amount, note)`; returns what was sent."""
    sent: list[tuple[str, Decimal]] = []

    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=KEYED, **declared)
    def transfer(call: Call, to: str, amount: Decimal, note: str = "") -> int:
        """Transfer an amount."""
        sent.append((to, amount))
        return len(sent)

    return sent
