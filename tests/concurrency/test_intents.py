"""One intent that is everybody's, in many processes at once: carried out once, told to all."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from django.db import connection

from runs.access import operator
from runs.commands import start_run
from runs.models import AgentRun, ToolOperation
from runs.state import RunState
from tests.concurrency.gate import WAITING, gate, go_through_at_once
from tests.concurrency.spending import BOOKS, register, see_through, spend_together
from tests.crash.conftest import NewLog
from tests.crash.forked import Child
from tests.database.kit import another_connection, ask, change
from tests.processes import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(120)]

PROCESSES, THREADS = 5, 10
_BARRIER = 7_301_997


@pytest.fixture(autouse=True)
def _books(transactional_db: None) -> Iterator[None]:
    change(BOOKS)
    yield
    change("DROP TABLE spent")


@pytest.mark.parametrize(("processes", "threads"), [(2, 1), (PROCESSES, THREADS)])
def test_of_many_runs_with_one_intent_at_once_one_carries_it_out_and_all_get_its_result(
    forks: None, new_log: NewLog, processes: int, threads: int
) -> None:
    logs = [new_log() for _ in range(processes)]
    with ExitStack() as started:
        with gate(expected=processes * threads):
            children = [
                started.enter_context(
                    Child(
                        partial(go_through_at_once, spend_together, threads=threads, log=str(log)),
                        log=log,
                    )
                )
                for log in logs
            ]
        assert [child.wait(seconds=90) for child in children] == [0] * processes
    runs = processes * threads
    spent = ask("SELECT string_agg(operation, ',') FROM spent")
    said = Counter(line for log in logs for line in log.read_text().splitlines())
    assert said == {str([spent]): runs}
    # Every repeat is a row that names the one that was sent.
    operations = ToolOperation.objects.all()
    assert operations.filter(attempts=1).count() == 1
    assert operations.filter(repeats_id=spent, attempts=0, status="COMMITTED").count() == runs - 1
    assert operations.filter(holds_intent__isnull=False).count() == 1


def test_two_runs_that_take_two_intents_in_opposite_order_both_end_and_each_is_spent_once() -> None:
    """Each holds what the other one wants next: the database ends one statement, not a run."""
    names = [register("tea", "cake"), register("cake", "tea")]
    runs = [start_run(actor=operator(), agent=name).run for name in names]
    with another_connection() as held:
        held.execute("SELECT pg_advisory_lock(%s)", [_BARRIER])
        _wait_before_the_second_insert()
        try:
            threads = [threading.Thread(target=_work, args=(run,)) for run in runs]
            for thread in threads:
                thread.start()
            wait_until(lambda: ask(WAITING) == 2, what="both hold one intent")
            held.execute("SELECT pg_advisory_unlock(%s)", [_BARRIER])
            for thread in threads:
                thread.join()
        finally:
            change("DROP TRIGGER slowly ON runs_tooloperation")
            change("DROP FUNCTION wait_at_the_second()")
    assert ask("SELECT string_agg(what, ',' ORDER BY what) FROM spent") == "cake,tea"
    assert set(AgentRun.objects.values_list("state", flat=True)) == {RunState.COMPLETED}
    assert ToolOperation.objects.filter(repeats__isnull=False).count() == 2


def _work(run: AgentRun) -> None:
    see_through(run.id)
    connection.close()


def _wait_before_the_second_insert() -> None:
    """Let a statement that inserts two operations stand still between them."""
    change(
        f"""CREATE FUNCTION wait_at_the_second() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('laws.inserted', true) = txid_current()::text THEN
                PERFORM pg_advisory_lock_shared({_BARRIER});
                PERFORM pg_advisory_unlock_shared({_BARRIER});
            END IF;
            PERFORM set_config('laws.inserted', txid_current()::text, true);
            RETURN NEW;
        END $$"""
    )
    change(
        "CREATE TRIGGER slowly BEFORE INSERT ON runs_tooloperation"
        " FOR EACH ROW EXECUTE FUNCTION wait_at_the_second()"
    )
