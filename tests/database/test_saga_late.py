"""Effects that turn up late are incidents, whatever a saga does meanwhile, and are corrected."""

from typing import Any

import pytest

from runs.access import operator
from runs.commands import compensate_run, resume_run
from runs.late import keep_as_late_evidence
from runs.models import AgentRun, ToolObservation, ToolOperation
from runs.resolution import resolve_operation
from runs.state import RunState
from runs.watch import watch
from tests.database.kit import (
    LOST,
    ON_DATABASE,
    Script,
    change,
    drive,
    drive_in_time,
    found,
    incidents,
    let_pass,
    scripted_tool,
)
from tests.database.sagas import (
    Books,
    Start,
    compensated,
    compensations,
    effect_of,
    failing_run,
    late_commits,
    statuses,
    stuck,
)
from tools import EffectType, Reconciled, Rejected

pytestmark = ON_DATABASE
PERSON = operator("a person")


@pytest.fixture
def books() -> Books:
    return Books()


def _land(operation: ToolOperation, reference: str, **said: Any) -> None:
    """The effect of an earlier send turns up: its worker comes back with the answer."""
    about: dict[str, Any] = {
        "operation_id": operation.id,
        "run_id": operation.run_id,
        "source": ToolObservation.Source.WORKER,
        "verdict": ToolObservation.Verdict.COMMITTED,
        "external_ref": reference,
        "result": {"id": reference},
        "attempt": 1,
        "fence_token": operation.fence_token,
    }
    keep_as_late_evidence([ToolObservation(**about | said)])


def _closed(start: Start, books: Books, *, look_up: Script | None = None) -> AgentRun:
    """`do_b` was sent, and a person closed it as rejected; then the run failed."""
    books.define("a")
    scripted_tool(
        LOST,
        name="do_b",
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        compensation_handler="undo_b",
        look_up=look_up,
    )
    books.define_undo("b")
    run = failing_run(start, "a", "b")
    drive(run)
    assert run.state == RunState.TOOL_STATUS_UNKNOWN
    let_pass(hours=2)
    drive_in_time(run)
    resolve_operation(
        actor=PERSON,
        operation_id=effect_of(run, "do_b").id,
        outcome="rejected",
        evidence="it is not in their books",
    )
    return run


def test_a_forward_effect_that_comes_after_the_compensation_is_an_incident_and_corrected(
    start: Start, books: Books
) -> None:
    run = compensated(_closed(start, books))
    assert books.names == ["do_a", "undo_a"]
    late = effect_of(run, "do_b")
    _land(late, "re_late")
    assert incidents(run) == [("LATE_COMMIT", "re_late")]
    compensate_run(actor=PERSON, run_id=run.id)
    compensated(run)
    assert books.names == ["do_a", "undo_a", "undo_b"]
    told = books.calls[-1].compensates
    assert told is not None
    assert (told.operation_id, told.external_ref) == (late.id, "re_late")
    assert told.result == {"id": "re_late"}


def test_the_watch_goes_on_after_the_run_was_compensated(start: Start, books: Books) -> None:
    look_up = Script(Reconciled.not_found(), found({"id": "re_late"}, "re_late"))
    run = compensated(_closed(start, books, look_up=look_up))
    late = effect_of(run, "do_b")
    change("UPDATE runs_tooloperation SET next_watch_at = now() WHERE id = %s", late.id)
    watch(late.id)
    assert late_commits(run) == [late.id]


def test_one_that_comes_while_the_saga_waits_is_corrected_in_its_turn(
    start: Start, books: Books
) -> None:
    run = _closed(start, books)
    change("UPDATE runs_agentrun SET paused_at = now() WHERE id = %s", run.id)
    drive_in_time(run)
    _land(effect_of(run, "do_b"), "re_late")
    change("UPDATE runs_agentrun SET paused_at = NULL, wake_at = now() WHERE id = %s", run.id)
    compensated(run)
    assert books.names == ["do_a", "undo_b", "undo_a"]


def test_a_second_effect_of_what_was_compensated_is_an_incident(start: Start, books: Books) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a"))
    _land(effect_of(run, "do_a"), "re_second")
    assert [kind for kind, _ in incidents(run)] == ["DUPLICATE"]
    assert books.names == ["do_a", "undo_a"]


def test_a_failed_compensation_whose_effect_turns_up_is_not_made_again(
    start: Start, books: Books
) -> None:
    books.define("a", "b", undo={"b": [Rejected("no such thing")]})
    run = stuck(failing_run(start, "a", "b"))
    (failed,) = compensations(run)
    _land(failed, "re_undone")
    assert late_commits(run) == [failed.id]
    resume_run(actor=PERSON, run_id=run.id)
    compensated(run)
    assert books.names == ["do_a", "do_b", "undo_a"]
    assert statuses(run) == [("undo_b", "REJECTED"), ("undo_a", "COMMITTED")]
