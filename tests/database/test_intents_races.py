"""Intents that turn out to be taken: wherever a decision is first written, it is planned anew."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from runs import ToolCall, deciding, events, intents
from runs.access import operator
from runs.commands import cancel_run
from runs.engine import advance
from runs.models import AgentRun, ModelDecision, ToolOperation
from runs.state import RunState
from tests.database.kit import (
    ON_DATABASE,
    Script,
    another_connection,
    ask,
    call_once,
    change,
    drive,
    drive_when_due,
    listening,
    operation_edges,
    operation_of,
    run_edges,
    scripted_tool,
)
from tests.processes import wait_until
from tools import Approve, EffectType, Rejected
from tools.registry import get_tool

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


PAY = ToolCall("pay", amount=1)


@contextmanager
def _when_planned(then: Callable[[], None]) -> Iterator[None]:
    """Do `then` once, after the second decision was planned and before it is written."""
    is_done = False

    def look(event: events.Event) -> None:
        nonlocal is_done
        if event.name is events.Name.DECIDER_DONE and not is_done:
            is_done = True
            then()

    unsubscribe = events.subscribe(look)
    try:
        yield
    finally:
        unsubscribe()
    assert is_done


def _everybodys(*answers: Any, **declared: Any) -> Script:
    given = {"intent_key": ("amount",), "intent_scope": "global"} | declared
    return scripted_tool(*answers, **given)


def _late_runs(start: Start, *calls: ToolCall, tools: tuple[str, ...]) -> tuple[AgentRun, AgentRun]:
    """A run that pays, and one whose decision makes these calls."""
    first = start(decider=call_once(PAY), tools=("pay",))
    second = start(decider=call_once(*calls), tools=tools)
    return first, second


def _drive_with_collision(first: AgentRun, second: AgentRun) -> None:
    """Let the first run carry out the intent while the second has planned it already."""
    with _when_planned(lambda: _elsewhere(first)):
        drive(second, owner="worker 2")
    assert operation_of(first).status == "COMMITTED"


def _elsewhere(run: AgentRun) -> None:
    """Drive a run in a thread of its own, as another worker does."""

    def work() -> None:
        advance(run_id=run.id, owner="worker 1")
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("effect", [EffectType.IDEMPOTENT_WRITE, EffectType.NON_IDEMPOTENT_WRITE])
def test_found_at_the_send(start: Start, effect: EffectType) -> None:
    script = _everybodys("first", "must not be sent", effect=effect)
    first, second = _late_runs(start, PAY, tools=("pay",))
    _drive_with_collision(first, second)
    _is_answered_by(second, first)
    assert len(script.calls) == 1


def test_found_at_the_intent_of_a_transactional_call(start: Start) -> None:
    script = _everybodys("first", "must not run", effect=EffectType.TRANSACTIONAL, provider=None)
    first, second = _late_runs(start, PAY, tools=("pay",))
    _drive_with_collision(first, second)
    _is_answered_by(second, first)
    assert len(script.calls) == 1


def test_found_when_a_call_is_held_for_a_signature(start: Start) -> None:
    """The second decision needs a signature for another call, which comes first."""
    script = _everybodys("first", "must not be sent")
    scripted_tool(7, name="big", approval_policy=Approve())
    first, second = _late_runs(start, ToolCall("big"), PAY, tools=("big", "pay"))
    _drive_with_collision(first, second)
    assert second.state == RunState.WAITING_FOR_APPROVAL
    assert operation_of(second, ordinal=1).repeats_id == operation_of(first).id
    assert len(script.calls) == 1


def test_found_when_a_held_call_is_the_repeat(start: Start) -> None:
    script = _everybodys("first", approval_policy=Approve(when="amount > 500"))
    big = _everybodys("must not be sent", name="big", approval_policy=Approve())
    first = start(decider=call_once(ToolCall("big", amount=1)), tools=("big",))
    second = start(decider=call_once(ToolCall("big", amount=1)), tools=("big",))
    with _when_planned(lambda: _elsewhere(first)):
        drive(second, owner="worker 2")
    # The first holds the intent and waits for its signature; the second waits for the first.
    first.refresh_from_db()
    assert first.state == RunState.WAITING_FOR_APPROVAL
    assert operation_of(second).repeats_id == operation_of(first).id
    assert (operation_of(second).status, second.state) == ("PREPARED", RunState.DECISION_RECORDED)
    assert script.calls == big.calls == []


def test_a_cancelled_decision_takes_no_intent_and_collides_with_nothing(start: Start) -> None:
    script = _everybodys("first", "must not be sent")
    first, second = _late_runs(start, PAY, tools=("pay",))

    def collide() -> None:
        _elsewhere(first)
        cancel_run(actor=operator(), run_id=second.id)

    with _when_planned(collide):
        drive(second, owner="worker 2")
    drive_when_due(second)
    assert operation_of(second).holds_intent is None
    assert operation_of(second).status in ("CANCELLED", "COMMITTED")
    assert len(script.calls) == 1


def test_a_collision_of_the_second_call_does_not_make_the_first_twice(start: Start) -> None:
    other = scripted_tool("other", "must not be sent", name="other")
    script = _everybodys("first", "must not be sent")
    first, second = _late_runs(start, ToolCall("other"), PAY, tools=("other", "pay"))
    _drive_with_collision(first, second)
    assert second.state == RunState.COMPLETED
    assert (len(other.calls), len(script.calls)) == (1, 1)
    assert operation_of(second, ordinal=1).repeats_id == operation_of(first).id


def test_a_decision_that_is_planned_anew_leaves_one_trace(start: Start) -> None:
    """One decision, one journal row for each edge, one event for each repeat."""
    _everybodys("first", "must not be sent")
    other = scripted_tool(1, name="other")
    first, second = _late_runs(start, ToolCall("other"), PAY, PAY, tools=("other", "pay"))
    with listening() as heard:
        _drive_with_collision(first, second)
    assert len(other.calls) == 1
    assert ModelDecision.objects.filter(run=second, step__number=1).count() == 1
    assert run_edges(second)[:3] == ["CREATE", "OPEN_STEP", "RECORD_DECISION"]
    assert run_edges(second).count("RECORD_DECISION") == 2  # of two steps
    told = [one for one in heard if one.name is events.Name.REPLAYED]
    assert [one.fields["operation_id"] for one in told] == [
        operation_of(second, ordinal=n).id for n in (1, 2)
    ]
    assert operation_edges(second).count("REPLAY") == 2


def test_a_collision_does_not_count_as_a_failure_and_forgets_none(start: Start) -> None:
    _everybodys("first", "must not be sent")
    first, second = _late_runs(start, ToolCall("nothing"), PAY, tools=("pay",))
    _drive_with_collision(first, second)
    assert second.state == RunState.COMPLETED
    assert ask("SELECT max(failures) FROM runs_agentrun") == 0


@pytest.mark.parametrize(
    ("policy", "status"), [("ask", "AWAITING_APPROVAL"), ("refuse", "CANCELLED")]
)
def test_a_collision_is_treated_as_the_tool_declares(
    start: Start, policy: str, status: str
) -> None:
    script = _everybodys("first", "must not be sent", on_repeated_intent=policy)
    first, second = _late_runs(start, PAY, tools=("pay",))
    _drive_with_collision(first, second)
    assert operation_of(second).status == status
    assert operation_of(second).repeats_id == operation_of(first).id
    assert len(script.calls) == 1


def test_an_intent_that_was_let_go_before_it_is_planned_anew_is_carried_out(start: Start) -> None:
    """Taken when the decision was written, and free again when its holder is looked for."""
    script = _everybodys(Rejected("no"), "second")
    first, second = _late_runs(start, PAY, tools=("pay",))
    holders: list[Any] = []
    found = intents.find_holders

    def let_go_first(names: Any) -> dict[str, str]:
        wanted = list(names)
        holders.append(found(wanted))
        if len(holders) == 1:
            change("UPDATE runs_tooloperation SET holds_intent = NULL WHERE run_id = %s", first.id)
            return found(wanted)
        return holders[-1]

    def hold_it() -> None:
        _elsewhere(first)
        change(
            "UPDATE runs_tooloperation SET holds_intent = %s WHERE run_id = %s",
            _name_of_intent(second),
            first.id,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deciding, "find_holders", let_go_first)
        with _when_planned(hold_it):
            drive(second, owner="worker 2")
    assert [len(one) for one in holders] == [1]
    assert (second.result, len(script.calls)) == ("second", 2)


def test_an_intent_in_a_commit_that_is_not_over_is_waited_for(start: Start) -> None:
    """Its insert stands in another transaction: taken or free is decided by that one's end."""
    script = _everybodys("first", "second")
    first, second = _late_runs(start, PAY, tools=("pay",))
    drive(first)
    for ends in ("rollback", "commit"):
        change("UPDATE runs_tooloperation SET holds_intent = NULL WHERE run_id = %s", first.id)
        run = second if ends == "rollback" else start(decider=call_once(PAY), tools=("pay",))
        with another_connection(autocommit=False) as other:
            other.execute(
                "UPDATE runs_tooloperation SET holds_intent = %s WHERE run_id = %s",
                [_name_of_intent(run), first.id],
            )
            worker = threading.Thread(target=_elsewhere, args=(run,))
            worker.start()
            wait_until(_somebody_waits, what="the insert waits for the other transaction")
            getattr(other, ends)()
            worker.join()
        run.refresh_from_db()
        assert run.result == ("second" if ends == "rollback" else "first")
        change("UPDATE runs_tooloperation SET holds_intent = NULL")
    assert len(script.calls) == 2


def _is_answered_by(second: AgentRun, first: AgentRun) -> None:
    repeat = operation_of(second)
    assert (second.state, second.result) == (RunState.COMPLETED, "first")
    assert (repeat.repeats_id, repeat.attempts) == (operation_of(first).id, 0)
    assert operation_edges(second) == ["INTEND", "REPLAY"]


def _name_of_intent(run: AgentRun) -> str:
    spec = get_tool("pay")
    planned = ToolOperation(arguments={"amount": 1})
    name = intents.name_intent(planned, spec=spec, run_id=run.id)
    assert name is not None
    return name


def _somebody_waits() -> bool:
    return bool(
        ask(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )
