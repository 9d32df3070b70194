"""A run that was delegated to is corrected as a whole, in its turn."""

from typing import Any

import pytest

from runs import Agent, CallTools, Context, Decision, Delegate, Fail, Finish, ToolCall
from runs.access import operator
from runs.commands import compensate_run
from runs.corrections import correct_by_hand
from runs.models import AgentRun
from runs.state import RunState
from tests.database.kit import ON_DATABASE, drive_in_time, scripted_tool
from tests.database.sagas import Books, Start, do_all, effect_of, statuses
from tools import Rejected

pytestmark = ON_DATABASE


@pytest.fixture
def books() -> Books:
    return Books()


def _family(start: Start, *, child_ends: Decision, **child: Any) -> AgentRun:
    """`do_a`, then a child that does `do_b` and ends so, then `do_c`; and the run fails."""
    Agent(name="child", decider=do_all("b", then=child_ends), tools=("do_b",), **child)

    def decide(context: Context) -> Decision:
        match context.position:
            case 1:
                return CallTools(ToolCall("do_a"))
            case 2:
                return Delegate("child")
            case 3:
                return CallTools(ToolCall("do_c"))
            case _:
                return Fail("no")

    return start(decider=decide, tools=("do_a", "do_c"), on_failure="compensate")


def _settle(run: AgentRun) -> AgentRun:
    """Drive the run and its children until nobody is due any more."""
    for _ in range(20):
        for one in (run, *AgentRun.objects.filter(parent=run)):
            one.refresh_from_db()
            drive_in_time(one)
    run.refresh_from_db()
    return run


@pytest.mark.parametrize("child_ends", [Finish("done"), Fail("half way")])
def test_a_child_is_compensated_in_its_turn_however_it_ended(
    child_ends: Decision, start: Start, books: Books
) -> None:
    books.define("a", "b", "c")
    run = _settle(_family(start, child_ends=child_ends))
    assert run.state == RunState.FAILED
    assert books.names == ["do_a", "do_b", "do_c", "undo_c", "undo_b", "undo_a"]
    assert statuses(run) == [
        ("undo_c", "COMMITTED"),
        ("compensate_run", "COMMITTED"),
        ("undo_a", "COMMITTED"),
    ]


def test_a_child_that_compensated_itself_is_left_alone(start: Start, books: Books) -> None:
    books.define("a", "b", "c")
    run = _settle(_family(start, child_ends=Fail("half way"), on_failure="compensate"))
    assert run.state == RunState.FAILED
    assert books.names == ["do_a", "do_b", "undo_b", "do_c", "undo_c", "undo_a"]
    assert statuses(run) == [("undo_c", "COMMITTED"), ("undo_a", "COMMITTED")]


def test_a_child_with_nothing_to_correct_does_not_hold_its_parent_up(
    start: Start, books: Books
) -> None:
    books.define("a", "c")
    scripted_tool(books.entry("do_b"), name="do_b", compensation_handler=lambda call: None)
    run = _settle(_family(start, child_ends=Finish("done")))
    assert run.state == RunState.FAILED
    assert books.names == ["do_a", "do_b", "do_c", "undo_c", "undo_a"]


def test_a_child_that_waits_for_a_person_holds_its_parent_up(start: Start, books: Books) -> None:
    books.define("a", "b", "c", undo={"b": [Rejected("no")]})
    run = _settle(_family(start, child_ends=Finish("done")))
    child = AgentRun.objects.get(parent=run)
    assert (run.state, child.state) == (RunState.WAITING, RunState.COMPENSATING)
    assert books.names == ["do_a", "do_b", "do_c", "undo_c"]
    word = {"actor": operator(), "evidence": "by phone"}
    correct_by_hand(operation_id=effect_of(child, "do_b").id, **word)  # type: ignore[arg-type]
    _settle(run)
    assert run.state == RunState.FAILED
    assert books.names == ["do_a", "do_b", "do_c", "undo_c", "undo_a"]


def test_a_grown_up_tree_can_be_compensated_after_its_end(start: Start, books: Books) -> None:
    books.define("b")
    Agent(name="child", decider=do_all("b", then=Finish("done")), tools=("do_b",))

    def decide(context: Context) -> Decision:
        return Delegate("child") if context.position == 1 else Finish("done")

    run = _settle(start(decider=decide))
    assert run.state == RunState.COMPLETED
    compensate_run(actor=operator(), run_id=run.id)
    _settle(run)
    assert run.state == RunState.CANCELLED
    assert books.names == ["do_b", "undo_b"]
