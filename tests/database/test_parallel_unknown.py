"""Calls that left together and whose outcomes are not all known."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs import events
from runs.access import operator
from runs.control import cancel_run
from runs.models import AgentRun, ToolObservation
from runs.queries import find_runs
from runs.resolution import resolve_operation
from runs.state import RunEvent, RunState
from runs.wake import make_due
from tests.database.gating import sign
from tests.database.kit import (
    LOST,
    PLAIN,
    change,
    dies_at,
    drive,
    drive_when_due,
    expire_lease,
    hear_late,
    pass_until_due,
    run_edges,
)
from tests.database.settling import end_worker
from tests.database.together import (
    Made,
    Start,
    operations,
    pays,
    start_together,
    statuses,
    together_tool,
)
from tools import Approve, Call, EffectType, NotSent, Reconciled

pytestmark = pytest.mark.django_db(transaction=True)

UNKNOWN, PERSON = RunState.TOOL_STATUS_UNKNOWN, RunState.WAITING_FOR_RESOLUTION


def lost(*numbers: int) -> Any:
    """The first answers to these are lost."""

    def act(call: Call, number: int) -> int:
        if number in numbers and call.attempt == 1:
            raise LOST
        return number

    return act


def found(call: Call, number: int) -> Reconciled[Any]:
    return Reconciled.committed(number, external_ref=f"re_{number}")


def not_found(call: Call, number: int) -> Reconciled[Any]:
    return Reconciled.not_found()


def stubborn(*numbers: int, **declared: Any) -> Made:
    """A tool of a provider that honours no key and cannot be asked."""
    return together_tool(
        lost(*numbers), provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE, **declared
    )


def is_uncertain(run: AgentRun) -> bool:
    return find_runs(uncertain=True).filter(id=run.id).exists()


def settle(run: AgentRun, place: int, outcome: str = "committed") -> None:
    resolve_operation(
        actor=operator("robin"),
        operation_id=operations(run)[place].id,
        outcome=outcome,  # type: ignore[arg-type]
        evidence="seen in the ledger",
    )
    run.refresh_from_db()


def test_one_unknown_among_five_is_settled_and_the_four_are_not_repeated(start: Start) -> None:
    made = together_tool(lost(3), look_up=found)
    run = start_together(start, *pays(1, 2, 3, 4, 5))
    drive(run)
    assert (run.state, is_uncertain(run)) == (UNKNOWN, True)
    assert statuses(run) == ["COMMITTED", "COMMITTED", "UNKNOWN", "COMMITTED", "COMMITTED"]
    drive_when_due(run)
    assert run.state == RunState.COMPLETED
    assert (made.counts, made.look_ups) == (dict.fromkeys(range(1, 6), 1), [3])
    assert [result for _, result, _ in run.result] == [1, 2, 3, 4, 5]


def test_the_run_is_uncertain_until_the_last_of_several_is_settled(start: Start) -> None:
    known: set[int] = set()

    def look_up(call: Call, number: int) -> Reconciled[Any]:
        return found(call, number) if number in known else Reconciled.indeterminate("later")

    made = together_tool(
        lost(1, 2), provider=PLAIN, effect=EffectType.NON_IDEMPOTENT_WRITE, look_up=look_up
    )
    run = start_together(start, *pays(1, 2))
    drive(run)
    known.add(2)
    drive_when_due(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["UNKNOWN", "COMMITTED"])
    known.add(1)
    drive_when_due(run)
    assert run.state == RunState.COMPLETED
    assert made.counts == {1: 1, 2: 1}
    moves = [edge for edge in run_edges(run) if edge in ("LOSE_OUTCOME", "COMMIT", "REJECT")]
    assert moves == ["LOSE_OUTCOME", "COMMIT"]


def test_who_is_due_first_is_asked_first_and_the_others_keep_their_dates(start: Start) -> None:
    made = together_tool(
        lost(1, 2, 3),
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        look_up=lambda call, number: Reconciled.indeterminate("later"),
    )
    run = start_together(start, *pays(1, 2, 3))
    drive(run)
    for place, seconds in enumerate((30, 10, 20)):
        change(
            "UPDATE runs_tooloperation SET next_reconcile_at = now() + make_interval(secs => %s)"
            " WHERE id = %s",
            seconds,
            operations(run)[place].id,
        )
    change("UPDATE runs_agentrun SET wake_at = now() + interval '10 s' WHERE id = %s", run.id)
    run.refresh_from_db()
    pass_until_due(run)
    drive(run)
    assert made.look_ups == [2]
    while set(made.look_ups) != {1, 2, 3}:
        pass_until_due(run)
        drive(run)
    assert list(dict.fromkeys(made.look_ups)) == [2, 3, 1]


def test_a_person_settles_one_while_another_is_still_asked_about(start: Start) -> None:
    ask = together_tool(
        lost(1),
        name="ask",
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        look_up=lambda call, number: Reconciled.indeterminate("later"),
    )
    pay = stubborn(2)
    run = start_together(start, ("ask", 1), ("pay", 2))
    drive(run)
    end_worker("worker 1")
    drive_when_due(run)
    first, second = operations(run)
    assert (run.state, first.needs_person_since, run.wake_at is not None) == (UNKNOWN, None, True)
    assert second.needs_person_since is not None
    settle(run, 1)
    assert (run.state, statuses(run)) == (UNKNOWN, ["UNKNOWN", "COMMITTED"])
    settle(run, 0)
    drive(run)
    assert (run.state, ask.counts, pay.counts) == (RunState.COMPLETED, {1: 1}, {2: 1})


def test_the_run_waits_for_a_person_only_once_all_that_is_unknown_does(start: Start) -> None:
    stubborn(1, 2)
    run = start_together(start, *pays(1, 2, 3))
    drive(run)
    end_worker("worker 1")
    drive_when_due(run)
    assert (run.state, run.wake_at, is_uncertain(run)) == (PERSON, None, True)
    assert run_edges(run).count("NEED_PERSON") == 1
    settle(run, 1, "rejected")
    drive(run)
    assert (run.state, statuses(run)) == (PERSON, ["UNKNOWN", "REJECTED", "COMMITTED"])
    settle(run, 0)
    drive(run)
    assert run.state == RunState.COMPLETED
    assert [status for status, _, _ in run.result] == ["COMMITTED", "REJECTED", "COMMITTED"]


def test_one_sent_again_by_a_persons_word_is_sent_beside_one_that_waits(start: Start) -> None:
    made = stubborn(1, 2)
    run = start_together(start, *pays(1, 2))
    drive(run)
    end_worker("worker 1")
    drive_when_due(run)
    settle(run, 0, "not_committed")
    drive(run, owner="worker 2")
    assert made.counts == {1: 2, 2: 1}
    assert (run.state, statuses(run)) == (PERSON, ["COMMITTED", "UNKNOWN"])


def test_one_that_gets_lost_beside_one_that_a_person_settles_is_asked_about(start: Start) -> None:
    pay = stubborn(1)
    ask = together_tool(_fail_first_then_lose, name="ask", look_up=found)
    run = start_together(start, ("pay", 1), ("ask", 2))
    drive(run)
    end_worker("worker 1")
    run.operations.filter(tool="pay").update(next_reconcile_at=Now())
    run.operations.filter(tool="ask").update(next_try_at=Now() + timedelta(hours=1))
    drive_when_due(run)
    assert (run.state, statuses(run)) == (PERSON, ["UNKNOWN", "PREPARED"])
    assert run.wake_at is not None
    drive_when_due(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["UNKNOWN", "UNKNOWN"])
    drive_when_due(run)
    assert (run.state, statuses(run)) == (PERSON, ["UNKNOWN", "COMMITTED"])
    assert (pay.counts, ask.counts) == ({1: 1}, {2: 2})
    lost_from = run.journal.filter(operation=None, event=RunEvent.LOSE_OUTCOME).order_by("id")
    assert list(lost_from.values_list("from_state", flat=True)) == [RunState.TOOL_RUNNING, PERSON]


def _fail_first_then_lose(call: Call, number: int) -> int:
    if call.attempt == 1:
        raise NotSent("no connection")
    raise LOST


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_all_that_a_vanished_worker_had_sent_is_unknown_by_one_take_over(
    start: Start, nth: int
) -> None:
    made = together_tool(look_up=found)
    run = start_together(start, *pays(1, 2, 3))
    with dies_at(events.Name.CALL_DONE, nth=nth):
        drive(run)
    expire_lease(run)
    drive(run, owner="worker 2")
    drive_when_due(run, owner="worker 2")
    assert run.state == RunState.COMPLETED
    assert made.counts == {1: 1, 2: 1, 3: 1}
    assert run_edges(run).count("TAKE_OVER") == 1
    takeovers = ToolObservation.objects.filter(run=run, source="take_over")
    assert takeovers.count() == 3


def test_a_person_who_finds_another_call_without_its_sender_takes_it_over(start: Start) -> None:
    stubborn(1)
    together_tool(lambda call, number: _fail_first(call, number), name="ask", look_up=found)
    run = start_together(start, ("pay", 1), ("ask", 2))
    drive(run)
    with dies_at(events.Name.CALL_DONE):
        drive_when_due(run, owner="worker 2")
    end_worker("worker 1")
    end_worker("worker 2")
    expire_lease(run)
    assert statuses(run) == ["UNKNOWN", "RUNNING"]
    settle(run, 0)
    assert (run.state, statuses(run)) == (UNKNOWN, ["COMMITTED", "UNKNOWN"])
    drive_when_due(run, owner="worker 3")
    assert run.state == RunState.COMPLETED


def _fail_first(call: Call, number: int) -> int:
    if call.attempt == 1:
        raise NotSent("no connection")
    return number


def test_a_cancel_waits_until_nothing_is_unknown_and_sends_nothing_meanwhile(
    start: Start,
) -> None:
    def act(call: Call, number: int) -> int:
        if number == 2:
            raise NotSent("no connection")
        return lost(1)(call, number)  # type: ignore[no-any-return]

    made = together_tool(
        act,
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        look_up=lambda call, number: Reconciled.indeterminate("later"),
    )
    run = start_together(start, *pays(1, 2))
    drive(run)
    cancel_run(actor=operator(), run_id=run.id)
    drive(run)
    drive_when_due(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["UNKNOWN", "PREPARED"])
    settle(run, 0)
    drive(run)
    assert (run.state, statuses(run)) == (RunState.CANCELLED, ["COMMITTED", "CANCELLED"])
    assert made.counts == {1: 1, 2: 1}


def test_a_held_call_waits_for_its_signature_alone(start: Start) -> None:
    read = together_tool(name="read", effect=EffectType.READ)
    pay = together_tool(lost(2), look_up=found, approval_policy=Approve())
    run = start_together(start, ("read", 1), ("pay", 2), ("read", 3))
    drive(run)
    assert (read.counts, pay.calls) == ({1: 1, 3: 1}, [])
    assert run.state == RunState.WAITING_FOR_APPROVAL
    assert statuses(run) == ["COMMITTED", "AWAITING_APPROVAL", "COMMITTED"]
    sign(run)
    drive(run)
    assert run.state == UNKNOWN
    drive_when_due(run)
    assert (run.state, read.counts, pay.counts) == (RunState.COMPLETED, {1: 1, 3: 1}, {2: 1})


def test_a_held_call_is_sent_while_another_is_unknown(start: Start) -> None:
    pay = together_tool(approval_policy=Approve())
    ship = stubborn(2, name="ship")
    run = start_together(start, ("pay", 1), ("ship", 2))
    drive(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["AWAITING_APPROVAL", "UNKNOWN"])
    sign(run)
    drive(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["COMMITTED", "UNKNOWN"])
    end_worker("worker 1")
    drive_when_due(run)
    settle(run, 1)
    drive(run)
    assert (run.state, pay.counts, ship.counts) == (RunState.COMPLETED, {1: 1}, {2: 1})


def test_late_evidence_is_read_although_another_is_due_later(start: Start) -> None:
    stubborn(1)
    together_tool(
        lost(2),
        name="ask",
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        look_up=lambda call, number: Reconciled.indeterminate("later"),
    )
    run = start_together(start, ("pay", 1), ("ask", 2))
    drive(run)
    end_worker("worker 1")
    drive_when_due(run)
    assert operations(run)[0].needs_person_since is not None
    hear_late(run, ToolObservation.Verdict.COMMITTED, result=1)
    drive(run)
    assert (run.state, statuses(run)) == (UNKNOWN, ["COMMITTED", "UNKNOWN"])


def test_who_asks_for_one_operation_now_has_it_asked_about(start: Start) -> None:
    made = together_tool(
        lost(1, 2),
        provider=PLAIN,
        effect=EffectType.NON_IDEMPOTENT_WRITE,
        look_up=lambda call, number: Reconciled.indeterminate("later"),
    )
    run = start_together(start, *pays(1, 2))
    drive(run)
    make_due(run.id, operation_id=operations(run)[1].id)
    drive(run)
    assert made.look_ups == [2]


def test_what_follows_the_batch_waits_for_all_of_it(start: Start) -> None:
    together_tool(lost(1), look_up=found)
    after = together_tool(name="close", parallel=False)
    run = start_together(start, ("pay", 1), ("pay", 2), ("close", 3))
    drive(run)
    assert (after.calls, statuses(run)) == ([], ["UNKNOWN", "COMMITTED", "PREPARED"])
    drive_when_due(run)
    assert (run.state, after.calls) == (RunState.COMPLETED, [3])


def test_nothing_new_is_sent_while_paused_and_what_is_unknown_is_settled(start: Start) -> None:
    def act(call: Call, number: int) -> int:
        if number == 2 and call.attempt == 1:
            raise NotSent("no connection")
        return lost(1)(call, number)  # type: ignore[no-any-return]

    made = together_tool(act, look_up=found)
    run = start_together(start, *pays(1, 2))
    drive(run)
    AgentRun.objects.filter(id=run.id).update(paused_at=Now())
    drive_when_due(run)
    assert statuses(run) == ["COMMITTED", "PREPARED"]
    assert (made.counts, run.wake_at) == ({1: 1, 2: 1}, None)
    AgentRun.objects.filter(id=run.id).update(paused_at=None, wake_at=Now())
    drive(run)
    assert (run.state, made.counts) == (RunState.COMPLETED, {1: 1, 2: 2})


def test_reads_whose_answers_were_lost_are_made_again_and_their_siblings_are_not(
    start: Start,
) -> None:
    made = together_tool(lost(1, 3), name="read", effect=EffectType.READ, provider=None)
    run = start_together(start, *(("read", number) for number in (1, 2, 3)))
    drive(run)
    drive_when_due(run)
    assert run.state == RunState.COMPLETED
    assert made.counts == {1: 2, 2: 1, 3: 2}
