"""Which handoff counts: after a retry took steps back, and for a fork."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelContextWindowExceededError

from runs.commands import fork_run, retry_run
from runs.models import Handoff
from tests.database.controlling import ANN
from tests.database.handing import (
    SMALL,
    Answer,
    Mind,
    Seen,
    handoffs,
    look_and_pay,
    look_on,
    right,
    start_llm,
    steps_seen,
)
from tests.database.kit import ON_DATABASE, drive, drive_when_due

pytestmark = ON_DATABASE


@pytest.fixture(autouse=True)
def tools() -> None:
    look_and_pay()


def look_and_give_up(at: int, *, pay_at: int = 0) -> Any:
    def decide(seen: Seen) -> Answer:
        step = seen.state["step"]
        if step == pay_at:
            return [("pay", {})]
        return [("look", {"n": step})] if step < at else [("give_up", {"reason": "no"})]

    return decide


def test_one_that_speaks_of_steps_that_were_taken_back_counts_no_more() -> None:
    mind = Mind(look_and_give_up(7))
    run = start_llm(mind, **SMALL)
    drive(run)
    assert (run.state, len(handoffs(run))) == ("FAILED", 1)
    # They only read: all of them are done again.
    mind.decide = lambda seen: "done"
    mind.seen.clear()
    retry_run(actor=ANN, run_id=run.id)
    drive(run)
    assert run.state == "COMPLETED"
    assert (mind.seen[0].handoff, mind.seen[0].results) == (None, [])


def test_one_that_covers_what_was_not_taken_back_still_counts() -> None:
    mind = Mind(look_and_give_up(12, pay_at=6))
    run = start_llm(mind, **SMALL)
    drive(run)
    standing, gone = (one.through_step for one in handoffs(run))
    assert standing <= 6 < gone
    mind.decide = lambda seen: "done"
    mind.seen.clear()
    retry_run(actor=ANN, run_id=run.id)
    drive(run)
    assert mind.seen[0].handoff["through_step"] == standing


def test_a_fork_begins_with_what_its_origin_knew_at_that_step_and_not_later() -> None:
    mind = Mind(look_on(12), lambda seen: right(seen, notes=f"at {seen.state['step']}"))
    run = start_llm(mind, **SMALL)
    drive(run)
    first, second, *_ = handoffs(run)
    mind.decide = lambda seen: "done"
    for at, known in (
        (first.through_step - 1, None),
        (first.through_step, first),
        (second.through_step - 1, first),
        (second.through_step, second),
    ):
        mind.seen.clear()
        drive(fork_run(actor=ANN, run_id=run.id, step=at).run)
        (seen,) = mind.seen
        assert (seen.handoff or {}).get("notes") == (known.body["notes"] if known else None)
        covered = known.body["covers_step"] if known else 0
        assert steps_seen(seen) == list(range(covered + 1, at + 1))


def test_a_fork_does_not_take_what_its_origin_wrote_after_it_was_made() -> None:
    mind = Mind(look_on(12))
    run = start_llm(mind, **SMALL)
    drive(run)
    first, *_ = handoffs(run)
    fork = fork_run(actor=ANN, run_id=run.id, step=first.through_step).run
    later = Handoff.objects.get(pk=first.pk)
    later.pk, later.number = None, 99
    later.created_at = fork.created_at + timedelta(seconds=1)
    later.save(force_insert=True)
    mind.decide = lambda seen: "done"
    mind.seen.clear()
    drive(fork)
    assert mind.seen[0].handoff["number"] == first.number


def test_a_fork_that_is_full_covers_what_it_inherits() -> None:
    mind = Mind(look_on(4))
    run = start_llm(mind, **SMALL)
    drive(run)
    mind.decide = look_on(4)
    fork = fork_run(actor=ANN, run_id=run.id, step=2).run
    drive(fork)
    assert (fork.state, [one.number for one in handoffs(fork)]) == ("COMPLETED", [1])
    assert handoffs(run) == []
    assert steps_seen(mind.seen[-1]) == [3]


def test_a_fork_that_inherits_too_much_covers_that_and_none_of_its_own_steps() -> None:
    mind = Mind(look_on(11))
    run = start_llm(mind, tools=("look",))
    drive(run)

    def decide(seen: Seen) -> Answer:
        if len(seen.results) > 3:
            raise ModelContextWindowExceededError(400, "mind")
        return look_on(4)(seen)

    mind.decide = decide
    fork = fork_run(actor=ANN, run_id=run.id, step=10).run
    for _ in range(3):
        drive_when_due(fork)
    (stored,) = handoffs(fork)
    assert (fork.state, stored.body["covers_step"], stored.through_step) == ("COMPLETED", 0, 0)
    assert steps_seen(mind.seen[-1]) == [1, 2, 3]
