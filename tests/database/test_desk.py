"""The figures of the desk are what the rows say, each through a small index."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from runs import Finish, desk
from runs.access import operator
from runs.commands import pause_run
from runs.desk import OfGroup, Waiting, What
from runs.models import AgentRun
from tests.database.approving import ask, held_run
from tests.database.asking import asked
from tests.database.deploying import serve
from tests.database.desk_rows import copy_unknown
from tests.database.gating import tamper
from tests.database.kit import change, let_pass
from tests.database.stories import parked_run, uncertain_run
from tools import registry

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., AgentRun]


def test_an_unknown_operation_is_told_against_its_tools_objective_and_its_key(start: Start) -> None:
    run = uncertain_run(start)
    [one] = desk.read_uncertain(most=5).oldest
    assert (one.run_id, one.tool, one.objective) == (run.id, "refund", timedelta(hours=1))
    assert not one.is_overdue
    assert not one.key_is_ending
    let_pass(minutes=61)
    [one] = desk.read_uncertain(most=5).oldest
    assert one.is_overdue
    assert timedelta(minutes=61) < one.age < timedelta(minutes=62)
    [of_tool] = desk.count_unknown()
    assert (of_tool.tool, of_tool.count, of_tool.overdue, of_tool.key_ending) == ("refund", 1, 1, 0)


@pytest.mark.parametrize(
    ("left", "is_ending"), [(timedelta(hours=2, minutes=30), False), (timedelta(hours=2), True)]
)
def test_a_key_is_ending_within_a_tenth_of_the_time_that_it_is_kept(
    start: Start, left: timedelta, is_ending: bool
) -> None:
    run = uncertain_run(start)
    tamper(
        "UPDATE runs_tooloperation SET key_expires_at = now() + %s WHERE run_id = %s", left, run.id
    )
    [one] = desk.read_uncertain(most=5).oldest
    assert one.key_is_ending is is_ending
    [of_tool] = desk.count_unknown()
    assert of_tool.key_ending == is_ending


def test_a_tool_that_is_not_registered_here_has_no_objective(start: Start) -> None:
    with registry.isolated_registry():
        uncertain_run(start)
    let_pass(days=2)
    [one] = desk.read_uncertain(most=5).oldest
    assert (one.objective, one.is_overdue, one.key_is_ending) == (None, False, True)


def test_runs_are_counted_once_however_many_of_their_operations_are_unknown(start: Start) -> None:
    run = uncertain_run(start)
    copy_unknown(run, 200)
    found = desk.read_uncertain(most=3)
    assert (found.runs, found.operations, len(found.oldest)) == (1, 201, 3)
    assert desk.count_uncertain() == 1
    assert desk.count_headlines(most=100).uncertain == 1


def test_what_waits_for_people_is_counted_by_kind_and_by_group(start: Start) -> None:
    nothing = {what: Waiting() for what in What}
    assert desk.count_waiting() == nothing
    ask(held_run(start), groups=["finance", "legal"])
    ask(held_run(start), groups=["finance"])
    question = asked(start, groups=[])
    with registry.isolated_registry():
        parked_run(start)
    paused = start(decider=lambda context: Finish(1))
    pause_run(actor=operator(), run_id=paused.id, reason="enough")
    let_pass(hours=1)
    waiting = desk.count_waiting()
    assert {what: one.count for what, one in waiting.items()} == {
        What.APPROVAL: 2,
        What.QUESTION: 1,
        What.OPERATION: 1,
        What.PAUSE: 1,
    }
    assert all(3600 < one.oldest_seconds < 3700 for one in waiting.values())
    groups = desk.count_by_group()
    assert {(one.what, one.group, one.count) for one in groups} == {
        (What.APPROVAL, "finance", 2),
        (What.APPROVAL, "legal", 1),
        (What.QUESTION, "", 1),
    }
    assert [one.until for one in groups if one.what is What.QUESTION] == [question.answer_by]
    [of_run] = desk.find_paused(most=5)
    assert (of_run.run_id, of_run.reason) == (paused.id, "enough")


def test_whom_a_question_was_escalated_to_is_asked_too(start: Start) -> None:
    asked(start, groups=["support"], escalate_to=["chiefs"], escalated_at=timezone.now())

    def of(one: OfGroup) -> tuple[str, int]:
        return one.group, one.count

    assert {of(one) for one in desk.count_by_group()} == {("support", 1), ("chiefs", 1)}


def test_a_run_that_ended_while_it_was_paused_waits_for_nobody(start: Start) -> None:
    run = start(decider=lambda context: Finish(1))
    pause_run(actor=operator(), run_id=run.id)
    tamper("UPDATE runs_agentrun SET finished_at = now(), wake_at = NULL WHERE id = %s", run.id)
    assert desk.count_waiting()[What.PAUSE].count == 0
    assert desk.find_paused(most=5) == []


def test_due_runs_are_those_that_nobody_holds(start: Start) -> None:
    serve("worker 1")
    serve("vanished", seen=timedelta(days=1))
    first, second = (start(decider=lambda context: Finish(1)) for _ in range(2))
    let_pass(minutes=2)
    change("UPDATE runs_worker SET last_seen_at = now() WHERE name = 'worker 1'")
    assert desk.count_due().count == 2
    change(
        "UPDATE runs_agentrun SET lease_owner = 'worker 1',"
        " lease_expires_at = now() + interval '1 min' WHERE id = %s",
        first.id,
    )
    due = desk.count_due()
    assert (due.count, due.alive, due.silent) == (1, 1, 1)
    assert 120 < due.oldest_seconds < 200
    assert second.wake_at is not None
