"""`/metrics`: events that leave no row are counted once, over all processes."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, get_args

import pytest
from celery.signals import worker_shutdown
from django.db import IntegrityError, connection

from agentops.metrics import flushing
from agentops.metrics.counting import Counts, tally
from agentops.metrics.events import COUNTED
from agentops.metrics.flushing import Flusher, flush
from agentops.models import EventCount
from runs import events
from runs.events import Name
from tests.database.kit import (
    LOST,
    Script,
    another_connection,
    call_once,
    change,
    drive,
    drive_when_due,
    found,
    scripted_tool,
)
from tests.database.scraping import scrape
from tests.processes import wait_until
from tools.outcome import Committed, Refused, Unknown, Unsent, name_of
from tools.reconciled import Verdict

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_counted() -> Iterator[None]:
    tally.take()
    yield
    tally.take()


def _written() -> Counts:
    rows = EventCount.objects.values_list("name", "label", "count")
    return {(name, label): count for name, label, count in rows}


@contextmanager
def _refusing() -> Iterator[None]:
    """A database that takes no counts."""
    change("ALTER TABLE agentops_eventcount ADD CONSTRAINT refused CHECK (count < 0) NOT VALID")
    try:
        yield
    finally:
        change("ALTER TABLE agentops_eventcount DROP CONSTRAINT refused")


# -- What is counted -----------------------------------------------------------


def test_what_a_run_did_is_counted(start: Any) -> None:
    scripted_tool(LOST, look_up=Script(found("paid")))
    run = start(decider=call_once(), tools=("pay",))
    drive(run)
    drive_when_due(run)
    assert run.state == "COMPLETED"
    flush()
    scraped = scrape()
    assert scraped("claims_total") == 2
    assert scraped("deciders_asked_total") == 2
    assert scraped("calls_total", outcome="unknown") == 1
    assert scraped("calls_total", outcome="committed") == 0
    assert scraped("look_ups_total", verdict="committed") == 1
    assert scraped("commits_total") >= 4


def test_every_series_is_there_before_anything_was_counted() -> None:
    families = scrape().families
    for counted in COUNTED.values():
        samples = families[f"agentops_{counted.name}"].samples
        assert [sample.value for sample in samples] == [0] * len(counted.values)


def test_a_value_that_is_not_one_of_a_closed_set_is_no_label() -> None:
    events.emit(Name.HINT_LOST, task="runs.advance_run")
    events.emit(Name.HINT_LOST, task='x"} 1')
    events.emit(Name.LOOK_UP_DONE, verdict=None)
    events.emit(Name.CALL_DONE)
    flush()
    assert _written() == {
        ("hints_lost", "runs.advance_run"): 1,
        ("hints_lost", ""): 1,
        ("look_ups", ""): 1,
        ("calls", ""): 1,
    }
    assert scrape()("hints_lost_total", task="") == 1


def test_every_outcome_of_a_call_and_of_a_look_up_is_one_of_their_sets() -> None:
    outcomes = (Committed(None), Refused("no"), Unsent("no"), Unknown("no"))
    assert {name_of(one) for one in outcomes} == set(COUNTED[Name.CALL_DONE].values)
    assert set(get_args(Verdict)) == set(COUNTED[Name.LOOK_UP_DONE].values)


def test_events_that_nobody_counts_are_not_counted() -> None:
    events.emit(Name.COMMIT_STARTING, run_id="1")
    assert flush() == 0


def test_threads_that_count_at_once_lose_nothing() -> None:
    def count(_: int) -> None:
        for _ in range(500):
            events.emit(Name.RUN_CLAIMED)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    flush()
    assert _written() == {("claims", ""): 4000}


# -- What is written -----------------------------------------------------------


def test_what_was_counted_is_added_once_to_what_is_there() -> None:
    EventCount.objects.create(name="claims", count=40)
    tally.add({("claims", ""): 2, ("hints_lost", "runs.advance_run"): 1})
    assert flush() == 2
    assert flush() == 0
    assert _written() == {("claims", ""): 42, ("hints_lost", "runs.advance_run"): 1}


def test_all_of_it_is_one_statement(django_assert_num_queries: Any) -> None:
    tally.add({(counted.name, ""): 1 for counted in COUNTED.values()})
    with django_assert_num_queries(1):
        flush()


def test_processes_that_write_at_once_do_not_lock_each_other_out() -> None:
    EventCount.objects.bulk_create([EventCount(name="a", count=1), EventCount(name="z", count=1)])
    free = "SELECT name FROM agentops_eventcount WHERE name = 'a' FOR UPDATE SKIP LOCKED"
    holder, looker = another_connection(autocommit=False), another_connection()
    with closing(holder), closing(looker), ThreadPoolExecutor(1) as pool:
        holder.execute("UPDATE agentops_eventcount SET count = 2 WHERE name = 'z'")
        writing = pool.submit(_write_here, {("z", ""): 1, ("a", ""): 1})
        # In the order of names, it has one by the time it waits for the other.
        wait_until(lambda: looker.execute(free).fetchone() is None, what="it waits in order")
        holder.rollback()
        writing.result()
    assert _written() == {("a", ""): 2, ("z", ""): 2}


def _write_here(counts: Counts) -> None:
    tally.add(counts)
    try:
        flush()
    finally:
        connection.close()


def test_what_could_not_be_written_is_kept_and_written_later() -> None:
    tally.add({("claims", ""): 2})
    with _refusing():
        with pytest.raises(IntegrityError):
            flush()
        # The work goes on, and is counted.
        events.emit(Name.RUN_CLAIMED)
    flush()
    assert _written() == {("claims", ""): 3}


# -- The thread ----------------------------------------------------------------


def test_a_process_that_ends_writes_what_is_left() -> None:
    flusher = Flusher()
    flusher.start()
    flusher.start()
    assert [thread.name for thread in threading.enumerate()].count("event-counts") == 1
    events.emit(Name.RUN_CLAIMED)
    flusher.stop()
    assert _written() == {("claims", ""): 1}
    flusher.stop()


def test_a_process_that_cannot_write_at_its_end_ends_all_the_same() -> None:
    flusher = Flusher()
    tally.add({("claims", ""): 2})
    with _refusing():
        flusher.start()
        flusher.stop()
    assert _written() == {}
    flusher.start()
    flusher.stop()
    assert _written() == {("claims", ""): 2}


def test_a_forked_child_leaves_to_its_parent_what_that_one_counted() -> None:
    tally.add({("claims", ""): 2})
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            events.emit(Name.RUN_CLAIMED)
            os.write(writing, repr(tally.take()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == "{('claims', ''): 1}"
    os.close(reading)
    os.close(writing)
    assert tally.take() == {("claims", ""): 2}


def test_a_worker_is_heard_to_the_end_before_its_last_counts_are_written() -> None:
    def end_work(**_: Any) -> None:
        events.emit(Name.LATE_EVIDENCE)

    worker_shutdown.connect(end_work)
    try:
        flushing._start()
        worker_shutdown.send(sender=None)
    finally:
        worker_shutdown.disconnect(end_work)
        worker_shutdown.disconnect(flushing._stop)
    assert _written() == {("late_evidence", ""): 1}
