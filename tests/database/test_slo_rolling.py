"""The sweep counts everything once, whatever happens to it, and what it counted stays."""

from datetime import datetime, timedelta
from itertools import count
from threading import Thread
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models import Sum as Total

from runs import ToolCall
from runs.models import AgentRun, Rollup, Sweep
from runs.slo.measures import Measure
from runs.slo.rolling import _LOCK, MARGIN, SWEEP, AlreadyFolded, Rolled, roll_up, run_once
from runs.slo.slices import SLICE, ceil, floor
from tests.database.gating import held, sign
from tests.database.kit import another_connection, call_once, change, drive, scripted_tool
from tests.database.slo_sums import Start, clock, counts, grow_older

pytestmark = pytest.mark.django_db(transaction=True)


_numbers = count(1)


def completed(start: Start) -> AgentRun:
    """A run that paid once."""
    name = f"pay{next(_numbers)}"
    scripted_tool("paid", name=name)
    run = start(decider=call_once(ToolCall(name)), tools=(name,))
    drive(run)
    assert run.state == "COMPLETED"
    return run


def purge(run: AgentRun) -> None:
    """The run, and what is evidence only while there is a run."""
    tables = ("transition", "toolobservation", "tooloperation", "modeldecision", "checkpoint")
    gone = "".join(f"DELETE FROM runs_{table};" for table in (*tables, "stepattempt", "step"))
    change(
        "SET session_replication_role = replica; DELETE FROM runs_notice;"
        f"DELETE FROM runs_agentrun WHERE id = '{run.id}'; {gone}"
        "SET session_replication_role = origin"
    )


def rows() -> list[tuple[Any, ...]]:
    """Everything that is counted, however it is stored."""
    fields = [one.name for one in Rollup._meta.fields if one.name != "id"]
    return sorted(Rollup.objects.values_list(*fields))


def total() -> dict[str, int]:
    """How often everything happened, over all slices."""
    found = Rollup.objects.values_list("measure").annotate(Total("count"))
    return {name: int(count) for name, count in found}


def watermark() -> datetime:
    done = Sweep.objects.get(name=SWEEP).done_until
    assert done is not None
    return done


def catch_up() -> None:
    while run_once(seconds=30).is_behind:
        pass


def test_it_begins_with_the_journal_and_puts_each_thing_into_its_slice(start: Start) -> None:
    completed(start)
    grow_older(hours=3)
    completed(start)
    catch_up()
    found = Rollup.objects.filter(measure=Measure.RUNS_COMPLETED).order_by("starts_at")
    ended = AgentRun.objects.order_by("created_at").values_list("finished_at", flat=True)
    for one, at in zip(found, ended, strict=True):
        assert (one.starts_at, one.seconds, one.count) == (floor(at), 300, 1)


def test_without_anything_to_count_it_is_done_at_once() -> None:
    rolled = run_once()
    assert (rolled.rows, rolled.is_behind) == (0, False)
    assert watermark() == rolled.until == floor(clock() - MARGIN)


def test_counting_again_changes_nothing(start: Start) -> None:
    completed(start)
    run_once()
    before = rows()
    run_once()
    now = clock()
    roll_up(since=floor(now - timedelta(hours=1)), until=ceil(now))
    assert rows() == before != []


def test_of_two_sweeps_at_one_time_one_counts(start: Start) -> None:
    completed(start)
    with another_connection(autocommit=False) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        assert run_once() == Rolled()
        assert rows() == []
        other.rollback()
    assert run_once().rows > 0


def test_two_sweeps_that_wait_for_each_other_count_once(start: Start) -> None:
    completed(start)
    until = ceil(clock())

    def count_it() -> None:
        try:
            roll_up(since=until - 4 * SLICE, until=until)
        finally:
            connection.close()

    threads = [Thread(target=count_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total()["runs_completed"] == 1


def test_a_crash_in_the_middle_leaves_what_was_there(start: Start) -> None:
    completed(start)
    run_once()
    before, done = rows(), watermark()
    completed(start)

    def die(execute: Any, sql: str, *others: Any) -> Any:
        if "INSERT INTO runs_rollup" in sql and "runs_incident" in sql:
            raise DatabaseError("killed")
        return execute(sql, *others)

    with connection.execute_wrapper(die), pytest.raises(DatabaseError, match="killed"):
        run_once()
    assert (rows(), watermark()) == (before, done)
    assert counts()["runs_completed"] == 2


def test_whoever_reads_while_a_slice_is_replaced_sees_it_whole(start: Start) -> None:
    completed(start)
    run_once()
    before = total()
    seen: list[int] = []
    with another_connection() as other:

        def look(execute: Any, sql: str, *others: Any) -> Any:
            done = execute(sql, *others)
            if "runs_rollup" in sql:
                found = other.execute("SELECT sum(count) FROM runs_rollup").fetchone()
                seen.append(int(found[0]) if found else 0)
            return done

        with connection.execute_wrapper(look):
            run_once()
    assert len(seen) > 4
    assert set(seen) == {sum(before.values())}


def test_what_is_final_stays_also_when_its_runs_are_purged(start: Start) -> None:
    run = completed(start)
    grow_older(minutes=20)
    catch_up()
    before = total()
    purge(run)
    assert not AgentRun.objects.exists()
    catch_up()
    assert total() == before
    assert before["runs_completed"] == 1


def test_after_a_pause_it_goes_on_where_it_ended_and_a_little_at_a_time(start: Start) -> None:
    completed(start)
    grow_older(hours=1)
    completed(start)
    # Too little time for more than one slice.
    done = [run_once(seconds=0).until]
    while run_once(seconds=0).is_behind:
        done.append(watermark())
    assert len(done) == len(set(done)) >= 10
    assert done == sorted(done)
    assert total()["runs_completed"] == 2


def test_where_there_is_nothing_it_goes_through_months_in_a_few_steps(start: Start) -> None:
    completed(start)
    grow_older(days=60)
    completed(start)
    steps = 0

    def note(execute: Any, sql: str, *others: Any) -> Any:
        nonlocal steps
        steps += "DELETE FROM runs_rollup WHERE seconds = 300\n" in sql
        return execute(sql, *others)

    with connection.execute_wrapper(note):
        assert not run_once(seconds=60).is_behind
    assert 15 < steps < 40
    assert total()["runs_completed"] == 2


@pytest.mark.parametrize(("old", "seconds"), [(25, 300), (30, 3_600), (24 * 10, 86_400)])
def test_what_is_old_is_folded_into_longer_slices_and_every_sum_is_kept(
    start: Start, old: int, seconds: int
) -> None:
    for _ in range(2):
        completed(start)
        grow_older(minutes=6)
    grow_older(hours=old)
    beginning = floor(clock() - timedelta(hours=old + 1))
    roll_up(since=beginning, until=beginning + timedelta(hours=2))
    before = total()
    money = Rollup.objects.aggregate(Total("total"))
    catch_up()
    assert set(Rollup.objects.values_list("seconds", flat=True)) == {seconds}
    assert (total(), Rollup.objects.aggregate(Total("total"))) == (before, money)
    assert before["runs_completed"] == 2


def test_what_is_folded_later_is_added_to_what_was_folded_before() -> None:
    day = floor(clock(), timedelta(days=1)) - timedelta(days=20)
    for hour, seconds in ((0, 86_400), (3, 3_600), (5, 3_600), (5, 300)):
        Rollup.objects.create(
            starts_at=day + timedelta(hours=hour),
            seconds=seconds,
            agent="a",
            agent_version="1",
            measure=Measure.RUNS_FAILED,
            count=hour + 1,
            total=2,
        )
    run_once()
    found = Rollup.objects.get()
    assert (found.starts_at, found.seconds, found.count, found.total) == (day, 86_400, 17, 8)


def test_what_is_folded_cannot_be_counted_again(start: Start) -> None:
    completed(start)
    grow_older(hours=40)
    catch_up()
    before = rows()
    since = floor(clock() - timedelta(hours=41))
    with pytest.raises(AlreadyFolded):
        roll_up(since=since, until=since + timedelta(hours=2))
    assert rows() == before


def test_a_clock_that_was_set_back_takes_nothing_back(start: Start) -> None:
    completed(start)
    run_once()
    ahead = floor(clock()) + timedelta(hours=1)
    Sweep.objects.update(done_until=ahead)
    before = rows()
    run_once()
    assert (rows(), watermark()) == (before, ahead)


def test_a_clock_that_was_set_back_between_two_edges_does_not_stop_it(start: Start) -> None:
    run, _ = held(start)
    sign(run)
    drive(run)
    change(
        "SET session_replication_role = replica; UPDATE runs_transition SET"
        " at = at + interval '1 hour' WHERE event = 'HOLD';"
        " SET session_replication_role = origin"
    )
    assert counts()["runs_completed"] == 1
