"""A compensation that came to nothing waits for a person, who tries again or corrects by hand."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from runs.access import READ, Actor, operator
from runs.commands import compensate_run, resume_run
from runs.corrections import correct_by_hand
from runs.errors import (
    EffectCorrected,
    InvalidInput,
    NoEffect,
    NotPermitted,
    RunHeld,
    UnknownOperation,
)
from runs.intents import name_correction
from runs.models import AgentRun, ToolObservation, ToolOperation
from runs.planning import operation_id
from runs.state import RunState
from runs.timeline import read_timeline
from tests.database.kit import (
    another_connection,
    change,
    drive,
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
from tools.canonical import canonical_json

# Signatures need the whole stack.
pytestmark = pytest.mark.django_db(transaction=True)

NO = Rejected("the account is closed")
PERSON = operator("a person")


@pytest.fixture
def books() -> Books:
    return Books()


def _refused(start: Start, books: Books, *, times: int = 1) -> AgentRun:
    """Two effects; the compensation of the newer one is refused, and the run waits."""
    books.define("a", "b", undo={"b": [NO] * times})
    return stuck(failing_run(start, "a", "b"))


def test_a_failed_compensation_waits_for_a_person(start: Start, books: Books) -> None:
    run = _refused(start, books)
    (failed,) = compensations(run)
    assert books.names == ["do_a", "do_b"]
    assert failed.id in run.pause_reason
    assert "the account is closed" in run.pause_reason
    drive(run)
    assert len(compensations(run)) == 1


def test_resumed_it_is_tried_anew_with_another_id(start: Start, books: Books) -> None:
    run = _refused(start, books)
    resume_run(actor=PERSON, run_id=run.id)
    compensated(run)
    assert books.names == ["do_a", "do_b", "undo_b", "undo_a"]
    first, second, _ = compensations(run)
    assert first.id != second.id
    assert first.compensates_id == second.compensates_id
    assert statuses(run) == [
        ("undo_b", "REJECTED"),
        ("undo_b", "COMMITTED"),
        ("undo_a", "COMMITTED"),
    ]


def test_resumed_once_it_is_tried_once(start: Start, books: Books) -> None:
    run = _refused(start, books, times=2)
    resume_run(actor=PERSON, run_id=run.id)
    stuck(run)
    assert statuses(run) == [("undo_b", "REJECTED")] * 2


def test_a_person_who_corrected_it_by_hand_lets_the_run_go_on(start: Start, books: Books) -> None:
    run = _refused(start, books)
    (failed,) = compensations(run)
    effect = effect_of(run, "do_b")
    named = correct_by_hand(actor=PERSON, operation_id=failed.id, evidence="paid back in cash")
    assert named.id == effect.id
    compensated(run)
    assert books.names == ["do_a", "do_b", "undo_a"]
    said = effect.observations.get(verdict="corrected")
    assert said.detail == "corrected by hand, a person says: paid back in cash"


def test_a_correction_by_hand_stands_in_the_timeline(start: Start, books: Books) -> None:
    run = _refused(start, books)
    correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_b").id, evidence="in cash")
    entries = read_timeline(run_id=run.id, cursor=None, size=500).items
    told = [(one.kind, one.reason) for one in entries if "by hand" in (one.reason or "")]
    assert told == [
        ("observation.person", "corrected by hand, a person says: in cash"),
        ("run.resume", f"operation {effect_of(run, 'do_b').id} was corrected by hand"),
    ]


def test_an_effect_without_a_handler_waits_until_it_is_corrected_by_hand(
    start: Start, books: Books
) -> None:
    books.define("a")
    scripted_tool(books.entry("do_b"), name="do_b")
    run = stuck(failing_run(start, "a", "b"))
    resume_run(actor=PERSON, run_id=run.id)
    stuck(run)
    correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_b").id, evidence="by phone")
    compensated(run)
    assert books.names == ["do_a", "do_b", "undo_a"]


def test_what_was_corrected_by_hand_before_is_skipped_later(start: Start, books: Books) -> None:
    books.define("a", "b")
    run = start(decider=do_all("a", "b", then=FINISH), tools=("do_a", "do_b"))
    drive(run)
    correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_b").id, evidence="by phone")
    run.refresh_from_db()
    assert run.state == RunState.COMPLETED
    compensate_run(actor=PERSON, run_id=run.id)
    compensated(run, RunState.CANCELLED)
    assert books.names == ["do_a", "do_b", "undo_a"]


def test_a_word_on_one_effect_does_not_end_a_pause_for_another(start: Start, books: Books) -> None:
    run = _refused(start, books)
    correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_a").id, evidence="by phone")
    run.refresh_from_db()
    assert run.paused_at is not None
    correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_b").id, evidence="by phone")
    compensated(run)
    assert books.names == ["do_a", "do_b"]


def _said(run: AgentRun) -> int:
    return ToolObservation.objects.filter(run=run, verdict="corrected").count()


def test_what_cannot_be_corrected_by_hand_is_refused_and_nothing_is_written(
    start: Start, books: Books
) -> None:
    scripted_tool("seen", name="do_look", effect=EffectType.READ)
    books.define("a")
    run = start(decider=do_all("look", "a", then=FINISH), tools=("do_look", "do_a"))
    drive(run)
    effect = effect_of(run, "do_a").id
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (NoEffect, {"operation_id": effect_of(run, "do_look").id}),
        (UnknownOperation, {"operation_id": "op_nobody"}),
        (UnknownOperation, {"operation_id": "op\0"}),
        (InvalidInput, {"evidence": "  "}),
        (InvalidInput, {"evidence": "x" * 2_001}),
        (InvalidInput, {"evidence": "a\0b"}),
        (NotPermitted, {"actor": Actor(name="reader", scopes=frozenset({READ}))}),
    ]
    for refusal, given in cases:
        with pytest.raises(refusal):
            correct_by_hand(
                **{"actor": PERSON, "operation_id": effect, "evidence": "by phone"} | given
            )
    assert _said(run) == 0


def test_a_second_word_changes_nothing(start: Start, books: Books) -> None:
    run = _refused(start, books)
    effect = effect_of(run, "do_b").id
    correct_by_hand(actor=PERSON, operation_id=effect, evidence="by phone")
    with pytest.raises(EffectCorrected):
        correct_by_hand(actor=PERSON, operation_id=effect, evidence="by phone")
    compensated(run)
    with pytest.raises(EffectCorrected):
        correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_a").id, evidence="again")
    assert _said(run) == 1


def test_nobody_corrects_by_hand_what_a_worker_may_be_correcting(
    start: Start, books: Books
) -> None:
    run = _refused(start, books)
    change(
        "UPDATE runs_agentrun SET lease_owner = 'w', paused_at = NULL, wake_at = now(),"
        " lease_expires_at = now() + interval '1 min' WHERE id = %s",
        run.id,
    )
    with pytest.raises(RunHeld):
        correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_b").id, evidence="by phone")
    assert _said(run) == 0


# -- One effect, one compensation -----------------------------------------------------------------


def test_the_database_refuses_a_second_compensation_of_one_effect(
    start: Start, books: Books
) -> None:
    books.define("a")
    run = compensated(failing_run(start, "a"))
    (correction,) = compensations(run)
    row = ToolOperation.objects.filter(id=correction.id).values().get()
    again = operation_id(run_id=run.id, step_number=99, logical_action="undo_a#0")
    row |= {"id": again, "step_number": 99, "idempotency_key": again}
    with pytest.raises(IntegrityError, match="operation_unique_intent"), transaction.atomic():
        ToolOperation.objects.create(**row)


def test_of_two_connections_one_compensates(start: Start, books: Books) -> None:
    books.define("a")
    run = start(decider=do_all("a", then=FINISH), tools=("do_a",))
    drive(run)
    effect = effect_of(run, "do_a")
    statement = (
        "INSERT INTO runs_tooloperation SELECT (jsonb_populate_record(one, %s::jsonb)).*"
        " FROM runs_tooloperation one WHERE id = %s"
    )

    def fields(name: str, ordinal: int) -> str:
        changed = {"id": name, "ordinal": ordinal, "compensates_id": effect.id}
        return canonical_json(changed | {"holds_intent": name_correction(effect.id)}).decode()

    with another_connection(autocommit=False) as one, another_connection() as two:
        one.execute("ALTER TABLE runs_tooloperation DISABLE TRIGGER USER")
        one.commit()
        try:
            one.execute(statement, [fields("op_one", 8), effect.id])
            two.execute("SET lock_timeout = '200ms'")
            with pytest.raises(Exception, match="lock timeout"):
                two.execute(statement, [fields("op_two", 9), effect.id])
            one.commit()
            with pytest.raises(Exception, match="operation_unique_intent"):
                two.execute(statement, [fields("op_two", 9), effect.id])
        finally:
            one.rollback()
            one.execute("ALTER TABLE runs_tooloperation ENABLE TRIGGER USER")
            one.commit()
