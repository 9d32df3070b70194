"""Sagas: what a run did is corrected newest first, known effects alone, each once."""

import pytest

from runs import CallTools, Compensate, Context, Decision, Fail, Finish, ToolCall, events
from runs.access import operator
from runs.commands import cancel_run, compensate_run
from runs.state import RunState
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    dies_at,
    drive,
    drive_in_time,
    expire_lease,
    found,
    listening,
    run_edges,
    scripted_tool,
)
from tests.database.sagas import (
    FINISH,
    Books,
    Start,
    compensated,
    compensations,
    do_all,
    effect_of,
    failing_run,
    statuses,
    stuck,
)
from tools import EffectType, Rejected

pytestmark = ON_DATABASE


@pytest.fixture
def books() -> Books:
    return Books()


def test_effects_are_corrected_in_reverse_order_and_the_run_ends_as_it_failed(
    start: Start, books: Books
) -> None:
    books.define("a", "b", "c")
    run = compensated(failing_run(start, "a", "b", "c"))
    assert books.names == ["do_a", "do_b", "do_c", "undo_c", "undo_b", "undo_a"]
    assert run.error == "the goal is out of reach"
    assert run_edges(run)[-1] == "FAIL"
    assert [one.compensates_id for one in compensations(run)] == [
        effect_of(run, f"do_{name}").id for name in "cba"
    ]


def test_a_compensation_is_a_new_operation_with_an_id_and_a_key_of_its_own(
    start: Start, books: Books
) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a"))
    (correction,) = compensations(run)
    effect = effect_of(run, "do_a")
    assert correction.id != effect.id
    assert correction.idempotency_key == correction.id
    assert correction.step_number > effect.step_number
    assert (effect.status, correction.status) == ("COMMITTED", "COMMITTED")


def test_a_compensating_tool_is_told_what_it_corrects(start: Start, books: Books) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a"))
    effect = effect_of(run, "do_a")
    told = books.calls[-1].compensates
    assert told is not None
    assert (told.operation_id, told.tool) == (effect.id, "do_a")
    assert (told.arguments, told.result) == ({"amount": 7}, {"external_ref": "ref_1"})
    assert books.calls[0].compensates is None


def test_only_what_was_committed_is_corrected(start: Start, books: Books) -> None:
    books.define("a")
    scripted_tool("seen", name="do_look", effect=EffectType.READ)
    scripted_tool(Rejected("no"), name="do_refused", compensation_handler="undo_a")
    run = compensated(failing_run(start, "a", "look", "refused"))
    assert books.names == ["do_a", "undo_a"]
    assert statuses(run) == [("undo_a", "COMMITTED")]


def test_a_repeat_that_was_only_answered_is_not_corrected_a_second_time(
    start: Start, books: Books
) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a", "a"))
    assert books.names == ["do_a", "undo_a"]
    assert len(compensations(run)) == 1


def test_several_calls_of_one_step_are_corrected_last_first(start: Start, books: Books) -> None:
    books.define("a", "b")

    def decide(context: Context) -> Decision:
        if context.last is None:
            return CallTools(ToolCall("do_a"), ToolCall("do_b"))
        return Fail("no")

    compensated(failing_run(start, "a", "b", decider=decide))
    assert books.names[-2:] == ["undo_b", "undo_a"]


def test_what_is_unknown_is_settled_before_anything_is_corrected(
    start: Start, books: Books
) -> None:
    books.define("a")
    books.define("b", look_up=Script(found({"id": "ref_found"}, "re_found")))
    scripted_tool(
        books.entry("do_c", fails=LOST),
        name="do_c",
        look_up=Script(found({"id": "ref_c"}, "re_c")),
        compensation_handler="undo_b",
    )
    run = failing_run(start, "a", "c")
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    cancel_run(actor=operator(), run_id=run.id, compensate=True)
    compensated(run, RunState.CANCELLED)
    assert books.names == ["do_a", "do_c", "undo_b", "undo_a"]
    told = books.calls[-2].compensates
    assert told is not None
    assert told.external_ref == "re_c"


def test_a_compensation_whose_answer_was_lost_is_reconciled_and_not_sent_again(
    start: Start, books: Books
) -> None:
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler="undo_a")
    look_up = Script(found({"id": "undone"}, "re_undone"))
    scripted_tool(books.entry("undo_a", fails=LOST), name="undo_a", look_up=look_up)
    run = compensated(failing_run(start, "a"))
    assert books.names == ["do_a", "undo_a"]
    assert [(one.status, one.external_ref) for one in compensations(run)] == [
        ("COMMITTED", "re_undone")
    ]


def test_the_decider_may_have_it_compensated(start: Start, books: Books) -> None:
    books.define("a")
    decider = do_all("a", then=Compensate("the customer left"))
    run = start(decider=decider, tools=("do_a",))
    compensated(run)
    assert books.names == ["do_a", "undo_a"]
    assert (run.error, run.compensation_reason) == ("the customer left", "the customer left")


def test_a_run_that_stops_on_failure_corrects_nothing(start: Start, books: Books) -> None:
    books.define("a")
    run = start(decider=do_all("a"), tools=("do_a",))
    compensated(run)
    assert books.names == ["do_a"]


def test_a_cancel_with_compensation_ends_cancelled(start: Start, books: Books) -> None:
    books.define("a", "b")
    run = start(decider=do_all("a", "b", then=FINISH), tools=("do_a", "do_b"))
    with dies_at(events.Name.DECIDER_STARTING, nth=3):
        drive(run)
    expire_lease(run)
    cancel_run(actor=operator(), run_id=run.id, compensate=True)
    compensated(run, RunState.CANCELLED)
    assert books.names == ["do_a", "do_b", "undo_b", "undo_a"]


@pytest.mark.parametrize(
    ("then", "ending"), [(FINISH, RunState.CANCELLED), (Fail("no"), RunState.FAILED)]
)
def test_a_run_that_has_ended_can_be_compensated(
    then: Decision, ending: RunState, start: Start, books: Books
) -> None:
    books.define("a", "b")
    run = start(decider=do_all("a", "b", then=then), tools=("do_a", "do_b"))
    drive(run)
    compensate_run(actor=operator(), run_id=run.id, reason="recalled")
    compensated(run, ending)
    assert books.names == ["do_a", "do_b", "undo_b", "undo_a"]


def test_a_run_without_effects_ends_at_once(start: Start) -> None:
    run = compensated(start(decider=lambda context: Fail("no"), on_failure="compensate"))
    assert (run_edges(run)[-2:], compensations(run)) == (["COMPENSATE", "FAIL"], [])


def test_a_compensation_is_not_what_a_later_one_corrects(start: Start, books: Books) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a"))
    with pytest.raises(Exception, match="no committed effect that is not corrected"):
        compensate_run(actor=operator(), run_id=run.id)
    assert books.names == ["do_a", "undo_a"]


def test_a_worker_that_dies_between_effect_and_record_leaves_one_compensation(
    start: Start, books: Books
) -> None:
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler="undo_a")
    look_up = Script(found({"id": "undone"}, "re_undone"))
    scripted_tool(books.entry("undo_a"), name="undo_a", look_up=look_up)
    run = failing_run(start, "a")
    with dies_at(events.Name.CALL_DONE, nth=2):
        drive(run)
        drive_in_time(run)
    expire_lease(run)
    compensated(run)
    assert books.names == ["do_a", "undo_a"]
    assert statuses(run) == [("undo_a", "COMMITTED")]


def test_the_agent_is_not_asked_while_its_run_compensates(start: Start, books: Books) -> None:
    books.define("a", "b")
    asked: list[int] = []

    def decide(context: Context) -> Decision:
        asked.append(context.step_number)
        return do_all("a", "b")(context)

    compensated(failing_run(start, "a", "b", decider=decide))
    assert asked == [1, 2, 3]


def test_an_intent_that_was_taken_back_may_be_carried_out_again(start: Start, books: Books) -> None:
    books.define("a", intent_key=("amount",), intent_scope="global")
    compensated(failing_run(start, "a"))
    again = start(decider=do_all("a", then=Finish("again")), tools=("do_a",))
    drive(again)
    assert (again.state, books.names) == (RunState.COMPLETED, ["do_a", "undo_a", "do_a"])


def test_compensating_costs_the_same_however_much_was_corrected_before(
    start: Start, books: Books
) -> None:
    names = [f"n{number}" for number in range(12)]
    books.define(*names)
    run = failing_run(start, *names)
    with listening() as heard:
        compensated(run)
    assert len(books.names) == 24
    commits = [one for one in heard if one.name is events.Name.COMMIT_DONE]
    # Two commits for each step forward, and at most four for each back.
    assert len(commits) <= 2 * 13 + 4 * 13


def test_a_run_is_never_compensated_past_what_it_cannot(start: Start, books: Books) -> None:
    books.define("a")
    scripted_tool(books.entry("do_pivot"), name="do_pivot")
    books.define("c")
    run = stuck(failing_run(start, "a", "pivot", "c"))
    assert books.names == ["do_a", "do_pivot", "do_c", "undo_c"]
    assert "do_pivot has no compensation_handler" in run.pause_reason
    assert effect_of(run, "do_pivot").id in run.pause_reason
