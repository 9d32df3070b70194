"""Signatures on compensations: one that policy holds waits like any call, and a no is no."""

import pytest

from approvals.commands import propose
from approvals.errors import OwnRequest
from runs import Finish, Script, ToolCall
from runs.access import Actor, operator
from runs.commands import compensate_run, resume_run
from runs.corrections import correct_by_hand
from runs.errors import BeingCorrected
from runs.models import AgentRun
from runs.state import RunState
from tests.database.approving import acting, person, say
from tests.database.gating import request_of, sign
from tests.database.kit import drive, scripted_tool
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
from tools import Approve

# Signatures need the whole stack.
pytestmark = pytest.mark.django_db(transaction=True)

PERSON = operator("a person")


@pytest.fixture
def books() -> Books:
    return Books()


def _held(start: Start, books: Books) -> AgentRun:
    """The compensation of the only effect waits for a signature."""
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler="undo_a")
    books.define_undo("a", approval_policy=Approve())
    run = failing_run(start, "a")
    drive(run)
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    return run


def test_a_compensation_that_policy_holds_is_sent_once_signed(start: Start, books: Books) -> None:
    run = _held(start, books)
    assert books.names == ["do_a"]
    effect = effect_of(run, "do_a")
    assert request_of(run).asked_because == f"corrects operation {effect.id} (do_a)"
    with pytest.raises(BeingCorrected):
        correct_by_hand(actor=PERSON, operation_id=effect_of(run, "do_a").id, evidence="by phone")
    sign(run)
    compensated(run)
    assert books.names == ["do_a", "undo_a"]


def test_a_denied_compensation_waits_for_a_person_and_is_asked_about_anew(
    start: Start, books: Books
) -> None:
    run = _held(start, books)
    first = request_of(run)
    say(first, person(), verdict="deny", reason="not this one")
    stuck(run)
    assert "denied" in run.pause_reason
    resume_run(actor=PERSON, run_id=run.id)
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    assert request_of(run).operation_id != first.operation_id
    sign(run)
    compensated(run)
    assert books.names == ["do_a", "undo_a"]
    assert statuses(run) == [("undo_a", "CANCELLED"), ("undo_a", "COMMITTED")]


def test_what_a_person_proposes_in_its_place_corrects_the_same_effect(
    start: Start, books: Books
) -> None:
    run = _held(start, books)
    asked, somebody = request_of(run), person()
    propose(
        actor=acting(somebody),
        user=somebody,
        approval_id=asked.id,
        arguments={"amount": 6},
        fingerprint=asked.fingerprint,
        reason="the fee stays",
    )
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    sign(run)
    compensated(run)
    assert books.names == ["do_a", "undo_a"]
    first, second = compensations(run)
    assert (first.status, second.status) == ("CANCELLED", "COMMITTED")
    assert first.compensates_id == second.compensates_id
    assert second.arguments == {"amount": 6}
    assert books.calls[-1].compensates is not None


def test_who_had_it_corrected_does_not_sign_the_correction(start: Start, books: Books) -> None:
    scripted_tool(books.entry("do_a"), name="do_a", compensation_handler="undo_a")
    books.define_undo("a", approval_policy=Approve())
    run = start(decider=Script(ToolCall("do_a"), Finish()), tools=("do_a",))
    drive(run)
    asker = person("asker")
    actor = Actor(name="asker", scopes=frozenset({"runs:write"}), user_id=asker.pk)
    compensate_run(actor=actor, run_id=run.id)
    drive(run)
    assert run.state == RunState.WAITING_FOR_APPROVAL
    with pytest.raises(OwnRequest):
        say(request_of(run), asker, verdict="approve")
    sign(run)
    drive(run)
    assert run.state == RunState.CANCELLED
