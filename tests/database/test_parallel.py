"""Calls of one decision leave together, between the writes that are made alone."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from approvals.policies import resume_sending, stop_sending
from runs import events, parallel
from runs.access import operator
from runs.control import cancel_run
from runs.models import AgentRun
from runs.state import RunState
from tests.database.kit import drive, drive_when_due, listening, pass_until_due, run_edges
from tests.database.policy_rows import save_row
from tests.database.together import (
    Start,
    just_before,
    operations,
    pays,
    start_together,
    statuses,
    together_tool,
)
from tools import Call, EffectType, NotSent, Provider, Rate, Rejected
from tools.execution import wait_until_back

pytestmark = pytest.mark.django_db(transaction=True)

READ = EffectType.READ


def meet(parties: int) -> Callable[[Call, int], int]:
    """Come back only once so many calls are under way at one moment."""
    barrier = threading.Barrier(parties)

    def act(call: Call, number: int) -> int:
        barrier.wait(timeout=4)
        return number

    return act


def commits(run: AgentRun, start: Start) -> int:
    with listening() as heard:
        drive(run)
    assert run.state == RunState.COMPLETED
    return sum(event.name is events.Name.COMMIT_DONE for event in heard)


def test_twenty_reads_are_under_way_at_one_time_and_cost_the_commits_of_one(start: Start) -> None:
    together_tool(meet(20), name="read", effect=READ, parallel=False)
    together_tool(name="read_one", effect=READ, parallel=False)
    many = start_together(start, *(("read", number) for number in range(20)))
    one = start_together(start, ("read_one", 1))
    assert commits(many, start) == commits(one, start)
    assert statuses(many) == ["COMMITTED"] * 20
    assert run_edges(many) == run_edges(one)


def test_a_write_that_is_not_parallel_is_made_alone_in_its_place(start: Start) -> None:
    log: list[str] = []
    turn = threading.Lock()
    gates = {name: threading.Barrier(2) for name in ("before", "after")}

    def read(call: Call, number: int) -> None:
        with turn:
            log.append(f"read {number}")
        gates["before" if number < 3 else "after"].wait(timeout=4)
        with turn:
            log.append(f"end {number}")

    def write(call: Call, number: int) -> None:
        log.extend(["write", "written"])

    together_tool(read, name="read", effect=READ, parallel=False)
    together_tool(write, parallel=False)
    run = start_together(start, ("read", 1), ("read", 2), ("pay", 9), ("read", 3), ("read", 4))
    drive(run)
    assert set(log[:4]) == {"read 1", "read 2", "end 1", "end 2"}
    assert log[4:6] == ["write", "written"]
    assert set(log[6:]) == {"read 3", "read 4", "end 3", "end 4"}
    assert run.state == RunState.COMPLETED


def test_writes_that_say_so_leave_together_and_reads_beside_them(start: Start) -> None:
    both = meet(4)
    together_tool(both)
    together_tool(both, name="read", effect=READ, parallel=False)
    run = start_together(start, ("pay", 1), ("read", 2), ("pay", 3), ("read", 4))
    drive(run)
    assert run.state == RunState.COMPLETED


def test_the_decider_sees_them_in_the_order_of_its_decision(start: Start) -> None:
    ended = [threading.Event() for _ in range(5)]
    ended[4].set()

    def act(call: Call, number: int) -> int:
        """Each ends after the one behind it."""
        if number < 4:
            assert ended[number + 1].wait(timeout=4)
        ended[number].set()
        return number

    together_tool(act, name="read", effect=READ)
    run = start_together(start, *(("read", number) for number in range(5)))
    drive(run)
    assert [result for _, result, _ in run.result] == [0, 1, 2, 3, 4]


def test_one_that_fails_or_never_leaves_neither_loses_nor_repeats_the_others(start: Start) -> None:
    def act(call: Call, number: int) -> int:
        if number == 2:
            raise Rejected("no")
        if number == 3:
            raise NotSent("no connection")
        return number

    made = together_tool(act)
    run = start_together(start, *pays(1, 2, 3, 4))
    drive(run)
    assert statuses(run) == ["COMMITTED", "REJECTED", "PREPARED", "COMMITTED"]
    for _ in range(2):
        pass_until_due(run)
        drive(run)
    assert made.counts == {1: 1, 2: 1, 3: 3, 4: 1}
    assert statuses(run) == ["COMMITTED", "REJECTED", "CANCELLED", "COMMITTED"]
    assert [status for status, _, _ in run.result] == statuses(run)


def test_one_that_waits_for_its_next_try_is_not_tried_when_another_is_due(start: Start) -> None:
    def act(call: Call, number: int) -> int:
        if call.attempt <= 2 - number:
            raise NotSent("no connection")
        return number

    made = together_tool(act)
    run = start_together(start, *pays(0, 1))
    drive(run)
    assert statuses(run) == ["PREPARED", "PREPARED"]
    first, second = operations(run)
    run.operations.filter(id=first.id).update(next_try_at=Now() + timedelta(hours=1))
    run.operations.filter(id=second.id).update(next_try_at=Now() - timedelta(seconds=1))
    drive_when_due(run)
    assert made.counts == {0: 1, 1: 2}
    assert statuses(run) == ["PREPARED", "COMMITTED"]
    left = run.wake_at and (run.wake_at - run.updated_at).total_seconds()
    assert 3500 < (left or 0) <= 3600


@pytest.mark.parametrize("request_", ["cancel", "pause"])
def test_none_leaves_once_a_cancel_or_a_pause_was_asked_for(start: Start, request_: str) -> None:
    made = together_tool()
    run = start_together(start, *pays(1, 2, 3))

    def ask() -> None:
        if request_ == "cancel":
            cancel_run(actor=operator(), run_id=run.id)
        else:
            AgentRun.objects.filter(id=run.id).update(paused_at=Now())

    with just_before(events.Name.DECIDER_DONE, ask):
        drive(run)
    drive_when_due(run)
    assert made.calls == []
    if request_ == "cancel":
        assert (run.state, set(statuses(run))) == (RunState.CANCELLED, {"CANCELLED"})
        return
    assert (run.wake_at, run.lease_owner, set(statuses(run))) == (None, "", {"PREPARED"})
    AgentRun.objects.filter(id=run.id).update(paused_at=None, wake_at=Now())
    drive(run)
    assert (run.state, made.counts) == (RunState.COMPLETED, {1: 1, 2: 1, 3: 1})


def test_what_a_policy_counts_is_sent_one_by_one_so_that_each_sees_those_before(
    start: Start,
) -> None:
    save_row("few", tool="pay", when="window.count > 2", window_seconds=300, outcome="refuse")
    made = together_tool()
    run = start_together(start, *pays(1, 2, 3, 4))
    drive(run)
    assert (made.calls, run.state) == ([1, 2], RunState.COMPLETED)
    assert statuses(run) == ["COMMITTED", "COMMITTED", "CANCELLED", "CANCELLED"]


def test_those_beyond_the_providers_limits_wait_and_hold_up_nobody(start: Start) -> None:
    few = Provider(name="few", lookup="list", rate=Rate(calls=2, per=timedelta(minutes=1)))
    paid = together_tool(provider=few, effect=EffectType.NON_IDEMPOTENT_WRITE)
    read = together_tool(name="read", effect=READ)
    run = start_together(start, *pays(1, 2, 3), ("read", 4))
    drive(run)
    assert (sorted(paid.calls), read.calls) == ([1, 2], [4])
    assert statuses(run) == ["COMMITTED", "COMMITTED", "PREPARED", "COMMITTED"]
    waiting = operations(run)[2]
    assert (waiting.attempts, "limits" in waiting.error) == (0, True)
    assert run.wake_at is not None


def test_a_batch_leaves_in_parts_where_threads_are_few(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "MOST_BESIDE", 1)
    monkeypatch.setattr(parallel, "_places", parallel._Places())
    together_tool(meet(2))
    run = start_together(start, *pays(1, 2, 3, 4, 5, 6))
    drive(run)
    assert (run.state, run_edges(run).count("SEND")) == (RunState.COMPLETED, 3)


def test_a_repeat_in_the_batch_is_answered_and_not_sent(start: Start) -> None:
    made = together_tool()
    run = start_together(start, *pays(1, 1, 2))
    drive(run)
    assert sorted(made.calls) == [1, 2]
    assert [result for _, result, _ in run.result] == [1, 1, 2]


def test_a_call_that_ignores_its_deadline_is_unknown_and_its_late_answer_counts(
    start: Start,
) -> None:
    done = threading.Event()

    def act(call: Call, number: int) -> int:
        if number == 2:
            done.wait(timeout=10)
        return number

    made = together_tool(act, name="read", effect=READ, seconds=0.3)
    run = start_together(start, ("read", 1), ("read", 2), ("read", 3))
    drive(run)
    assert statuses(run) == ["COMMITTED", "UNKNOWN", "COMMITTED"]
    done.set()
    assert wait_until_back(seconds=5)
    drive(run)
    assert (run.state, made.counts) == (RunState.COMPLETED, {1: 1, 2: 1, 3: 1})


def test_sending_that_is_stopped_for_one_tool_leaves_the_others(start: Start) -> None:
    paid, read = together_tool(), together_tool(name="read", effect=READ)
    stop_sending(actor=operator(), reason="they charge twice", tool="pay")
    run = start_together(start, ("pay", 1), ("read", 2), ("read", 3))
    drive(run)
    assert (paid.calls, sorted(read.calls)) == ([], [2, 3])
    assert statuses(run) == ["PREPARED", "COMMITTED", "COMMITTED"]
    resume_sending(actor=operator(), reason="they mended it", tool="pay")
    drive(run)
    assert (run.state, paid.calls) == (RunState.COMPLETED, [1])
