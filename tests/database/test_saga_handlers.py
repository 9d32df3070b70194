"""How a tool says what corrects it, and what becomes of handlers that cannot say."""

from typing import Any

import pytest

from runs import ToolCall
from runs.access import operator
from runs.commands import resume_run
from runs.models import AgentRun
from tests.database.kit import ON_DATABASE, drive, scripted_tool
from tests.database.sagas import (
    Books,
    Start,
    compensated,
    compensations,
    effect_of,
    failing_run,
    statuses,
    stuck,
)
from tools import Call, EffectType, tool
from tools.registry import get_tool

pytestmark = ON_DATABASE


@pytest.fixture
def books() -> Books:
    return Books()


def _run(start: Start, books: Books, handler: Any, **declared: Any) -> AgentRun:
    """A run that did `do_a`, which is corrected as `handler` says."""
    books.define_undo("a")
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler=handler, **declared)
    return failing_run(start, "a")


def test_a_handler_may_be_a_name_a_spec_or_the_decorated_function(
    start: Start, books: Books
) -> None:
    @tool(effect_type=EffectType.TRANSACTIONAL)
    def undo(call: Call, amount: int) -> str:
        """Undo."""
        return f"undone {amount}"

    for number, handler in enumerate(("undo", get_tool("undo"), undo)):
        scripted_tool("done", name=f"do_{number}", compensation_handler=handler)
    run = compensated(failing_run(start, "0", "1", "2"))
    assert [one.result for one in compensations(run)] == ["undone 7"] * 3


def test_a_compensating_tool_gets_the_arguments_that_it_names(start: Start, books: Books) -> None:
    given: list[Any] = []

    @tool(effect_type=EffectType.TRANSACTIONAL)
    def undo(call: Call, amount: int, note: str = "by itself") -> None:
        """Undo."""
        given.append((amount, note))

    @tool(effect_type=EffectType.TRANSACTIONAL, compensation_handler="undo")
    def do_a(call: Call, amount: int, colour: str = "red") -> None:
        """Do."""

    compensated(failing_run(start, "a"))
    assert given == [(7, "by itself")]


def test_a_function_is_told_the_effect_and_says_the_call(start: Start, books: Books) -> None:
    told: list[Call] = []

    def undo_twice_as_much(call: Call) -> ToolCall:
        told.append(call)
        assert call.compensates is not None
        return ToolCall("undo_a", amount=2 * call.arguments["amount"])

    run = compensated(_run(start, books, undo_twice_as_much))
    effect = effect_of(run, "do_a")
    (call,) = told
    assert call.compensates is not None
    assert (call.operation_id, call.compensates.operation_id) == (effect.id, effect.id)
    assert call.compensates.result == {"external_ref": "ref_1"}
    assert compensations(run)[0].arguments == {"amount": 14}


def test_an_async_function_is_awaited(start: Start, books: Books) -> None:
    async def undo(call: Call) -> ToolCall:
        return ToolCall("undo_a")

    compensated(_run(start, books, undo))
    assert books.names == ["do_a", "undo_a"]


def test_a_function_may_say_that_nothing_is_to_be_corrected(start: Start, books: Books) -> None:
    books.define("b")
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler=lambda call: None)
    run = compensated(failing_run(start, "b", "a"))
    assert books.names == ["do_b", "do_a", "undo_b"]
    assert statuses(run) == [("undo_b", "COMMITTED")]
    said = effect_of(run, "do_a").observations.get(verdict="corrected")
    assert said.source == "handler"


def test_many_effects_that_need_no_correction_are_passed_page_by_page(
    start: Start, books: Books
) -> None:
    books.define("first")
    scripted_tool(
        *[books.entry("do_a")] * 10,
        name="do_a",
        repeatable=True,
        compensation_handler=lambda call: None,
    )
    compensated(failing_run(start, "first", *["a"] * 10))
    assert books.names == ["do_first", *["do_a"] * 10, "undo_first"]


def _fail(call: Call) -> ToolCall:
    raise ValueError("the card 4111-1111 is gone")


HANDLERS: dict[str, tuple[Any, str]] = {
    "it fails": (_fail, "failed: ValueError: the card"),
    "it says something else": (lambda call: "undo_a", "it returned str, not ToolCall or None"),
    "its call has no JSON form": (lambda call: ToolCall("undo_a", amount=object()), "failed"),
    "there is none": (None, "do_a has no compensation_handler"),
    "its tool is gone": ("undo_nothing", "it cannot be corrected here"),
}


@pytest.mark.parametrize("case", HANDLERS)
def test_a_handler_that_cannot_say_leaves_it_to_a_person(
    case: str, start: Start, books: Books
) -> None:
    handler, why = HANDLERS[case]
    run = stuck(_run(start, books, handler))
    assert why in run.pause_reason
    assert effect_of(run, "do_a").id in run.pause_reason
    assert compensations(run) == []


def test_what_a_handler_says_is_scrubbed_and_bounded(start: Start, books: Books) -> None:
    def leak(call: Call) -> ToolCall:
        raise ValueError(f"card {call.arguments['card']} " + "x" * 5_000)

    @tool(effect_type=EffectType.TRANSACTIONAL, sensitive=("card",), compensation_handler=leak)
    def do_a(call: Call, amount: int, card: str = "4111-1111") -> None:
        """Do."""

    run = stuck(failing_run(start, "a"))
    assert "4111-" not in run.pause_reason
    assert len(run.pause_reason) <= 2_000


BAD_CALLS: dict[str, ToolCall] = {
    "an unknown tool": ToolCall("undo_nothing"),
    "bad arguments": ToolCall("undo_a", amount="much"),
    "too many arguments": ToolCall("undo_a", colour="red"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_call_that_cannot_be_made_is_refused_and_waits_for_a_person(
    case: str, start: Start, books: Books
) -> None:
    run = stuck(_run(start, books, lambda call: BAD_CALLS[case]))
    assert [status for _, status in statuses(run)] == ["CANCELLED"]
    resume_run(actor=operator(), run_id=run.id)
    stuck(run)
    assert [status for _, status in statuses(run)] == ["CANCELLED"] * 2


def test_what_the_agent_did_itself_is_done_again_only_with_a_persons_word(
    start: Start, books: Books
) -> None:
    # The agent took its own effect back, which is a call of its own with nothing to correct.
    scripted_tool(
        *[books.entry("do_undo")] * 2, name="do_undo", compensation_handler=lambda call: None
    )
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler="do_undo")
    run = failing_run(start, "a", "undo")

    drive(run)
    drive(run)
    assert run.state == "WAITING_FOR_APPROVAL"
    assert books.names == ["do_a", "do_undo"]
    assert "has the same intent" in compensations(run)[0].policy_rule
