"""What is counted of runs: how they ended, how long they worked, and whether a person had a say."""

from decimal import Decimal
from typing import Any

import pytest

from runs import Ask, Budget, CallTools, Context, Decision, Fail, Finish, ToolCall
from runs.access import operator
from runs.commands import (
    cancel_run,
    compensate_run,
    fork_run,
    pause_run,
    resume_run,
    retry_run,
)
from runs.models import AgentRun, Question
from runs.resolution import resolve_operation
from runs.resuming import Raise
from runs.slo.measures import Measure
from tests.database.asking import answerer
from tests.database.asking import say as answer
from tests.database.controlling import failed
from tests.database.gating import PAID, held, request_of, sign
from tests.database.kit import drive, operation_of, scripted_tool
from tests.database.sagas import Books, compensated, do_all
from tests.database.slo_sums import Start, buckets, counts, grow_older, total
from tests.database.stories import parked_run
from tools import Rejected

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS, WORKING = Measure.RUN_SECONDS, Measure.RUN_WORKING_SECONDS


def finish(context: Context) -> Decision:
    return Finish("done")


def test_each_end_is_one(start: Start) -> None:
    drive(start(decider=finish))
    drive(start(decider=lambda context: Fail("no")))
    cancelled = start(decider=finish)
    cancel_run(actor=operator(), run_id=cancelled.id)
    drive(cancelled)
    start(decider=finish)
    assert counts() == {
        "runs_completed": 1,
        "runs_failed": 1,
        "runs_cancelled": 1,
        "runs_touched": 1,
    }
    # Whoever is cut short has done nothing in any time.
    assert sum(buckets(SECONDS).values()) == sum(buckets(Measure.RUN_COST_USD).values()) == 2
    assert buckets(Measure.RUNS_STARTED) == {0: 4}


def test_one_that_is_let_go_on_after_a_failure_ends_again_and_its_time_is_that_of_its_new_life(
    start: Start,
) -> None:
    run, _ = failed(start, Rejected("no"), "shipped")
    grow_older(hours=2)
    retry_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == "COMPLETED"
    found = counts()
    assert (found["runs_failed"], found["runs_completed"], found["runs_touched"]) == (1, 1, 1)
    assert sum(buckets(SECONDS).values()) == 2
    assert max(buckets(SECONDS)) <= 60


def test_what_each_life_cost_is_counted_once_with_its_own_end(start: Start) -> None:
    run, _ = failed(start, Rejected("no"), Rejected("no"), "shipped")
    for spent in (2, 5):
        AgentRun.objects.filter(id=run.id).update(spent_cost_usd=spent, spent_tokens=100 * spent)
        assert (total(Measure.RUN_COST_USD), total(Measure.RUN_TOKENS)) == (spent, 100 * spent)
        retry_run(actor=operator(), run_id=run.id)
        drive(run)
    assert run.state == "COMPLETED"
    # Two, three more, and then nothing.
    assert buckets(Measure.RUN_COST_USD) == {2.5: 1, 5: 1, 0.01: 1}
    assert (total(Measure.RUN_COST_USD), total(Measure.RUN_TOKENS)) == (5, 500)


def test_the_end_of_a_correction_after_the_end_is_no_second_end(start: Start) -> None:
    books = Books()
    books.define("a")
    run = start(decider=do_all("a", then=Finish("done")), tools=("do_a",))
    drive(run)
    compensate_run(actor=operator(), run_id=run.id)
    compensated(run, "CANCELLED")  # type: ignore[arg-type]
    found = counts()
    assert (found["runs_completed"], found.get("runs_cancelled")) == (1, None)
    assert found["compensations_committed"] == 1


def test_the_time_in_which_a_signature_is_waited_for_is_a_persons(start: Start) -> None:
    run, _ = held(start)
    grow_older(minutes=50)
    sign(run)
    drive(run)
    assert run.state == "COMPLETED"
    assert buckets(SECONDS) == {3_600: 1}
    assert max(buckets(WORKING)) <= 60
    assert total(SECONDS) - total(WORKING) >= 50 * 60


def test_the_time_in_which_an_unknown_outcome_waits_for_a_person_is_a_persons(start: Start) -> None:
    run = parked_run(start)
    grow_older(hours=3)
    resolve_operation(
        actor=operator(),
        operation_id=operation_of(run).id,
        outcome="committed",
        evidence="seen in the ledger",
        result={"refund": 2},
    )
    drive(run)
    assert run.state == "COMPLETED"
    assert buckets(SECONDS) == {14_400: 1}
    assert max(buckets(WORKING)) <= 60


def asking(start: Start) -> tuple[AgentRun, Question]:
    run = start(decider=lambda context: Finish() if context.last else Ask("Which?", ANY))
    drive(run)
    return run, Question.objects.get(run=run)


ANY: dict[str, Any] = {"type": "string"}


def test_the_time_in_which_an_answer_and_the_end_of_a_pause_are_waited_for_counts_once(
    start: Start,
) -> None:
    run, question = asking(start)
    grow_older(minutes=20)
    pause_run(actor=operator(), run_id=run.id)
    grow_older(minutes=20)
    answer(question, answerer(), "this one")
    grow_older(minutes=10)
    resume_run(actor=operator(), run_id=run.id)
    drive(run)
    assert run.state == "COMPLETED"
    assert counts()["questions_answered"] == 1
    assert 3_000 <= total(SECONDS) - total(WORKING) <= total(SECONDS) < 3_060
    assert max(buckets(WORKING)) <= 60


def test_work_between_two_waits_is_work(start: Start) -> None:
    run, question = asking(start)
    answer(question, answerer(), "this one")
    grow_older(minutes=30)
    pause_run(actor=operator(), run_id=run.id)
    grow_older(minutes=20)
    resume_run(actor=operator(), run_id=run.id)
    drive(run)
    # Nobody drove it for half an hour, which is nobody's but ours.
    assert buckets(SECONDS) == buckets(WORKING) | {3_600: 1}
    assert 1_800 <= total(WORKING) < 1_860


def test_a_pause_that_the_run_itself_took_is_a_persons_until_it_is_resumed(start: Start) -> None:
    def look_twice(context: Context) -> Decision:
        return Finish() if context.step_number > 2 else CallTools(ToolCall("pay"))

    scripted_tool("paid")
    run = start(decider=look_twice, tools=("pay",), budget=Budget(steps=1))
    drive(run)
    assert run.paused_at is not None
    grow_older(minutes=50)
    resume_run(actor=operator(), run_id=run.id, add=Raise(steps=9))
    drive(run)
    assert run.state == "COMPLETED"
    assert buckets(SECONDS) == {3_600: 1}
    assert max(buckets(WORKING)) <= 60


def test_a_person_had_a_say_who_signed_answered_settled_or_steered(start: Start) -> None:
    signed, _ = held(start)
    sign(signed)
    drive(signed)
    assert counts()["runs_touched"] == 1
    run, question = asking(start)
    answer(question, answerer(), "this one")
    drive(run)
    assert counts()["runs_touched"] == 2


def test_nobody_had_a_say_in_a_run_that_was_only_started_or_forked(start: Start) -> None:
    run = start(decider=finish)
    drive(run)
    assert counts().get("runs_touched") is None
    drive(fork_run(actor=operator(), run_id=run.id, step=1).run)
    found = counts()
    assert (found["runs_completed"], found.get("runs_touched")) == (2, None)


def test_what_a_run_has_cost_and_used_when_it_ended(start: Start) -> None:
    run, _ = held(start, PAID)
    AgentRun.objects.filter(id=run.id).update(spent_cost_usd=Decimal("0.3"), spent_tokens=1_200)
    sign(run)
    drive(run)
    assert request_of(run).status == "approved"
    assert buckets(Measure.RUN_COST_USD) == {0.5: 1}
    assert (total(Measure.RUN_COST_USD), total(Measure.RUN_TOKENS)) == (0.3, 1_200)
