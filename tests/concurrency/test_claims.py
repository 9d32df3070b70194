"""Many workers reach for one run; each law is about two or more real connections."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from runs import sweeps
from runs.lease import claim
from tests.concurrency.actions import try_to_claim
from tests.concurrency.gate import WAITING, gate, go_through_at_once
from tests.crash.conftest import NewLog, StartRun
from tests.crash.forked import Child
from tests.processes import of_this_test, wait_until

pytestmark = pytest.mark.timeout(60)

PROCESSES, THREADS = 4, 5
_BARRIER = 7_301_998


def test_of_twenty_workers_that_claim_a_run_at_once_one_gets_it(
    forks: None, start_agent: StartRun, new_log: NewLog
) -> None:
    run = start_agent("crash_sighted")
    with ExitStack() as started:
        logs = [new_log() for _ in range(PROCESSES)]
        with gate(expected=PROCESSES * THREADS):
            children = [_many_claims(run.id, log) for log in logs]
            for child in children:
                started.enter_context(child)
        assert [child.wait() for child in children] == [0] * PROCESSES
    said = Counter(line for log in logs for line in log.read_text().splitlines())
    assert said == {"claimed": 1, "nothing": PROCESSES * THREADS - 1}
    run.refresh_from_db()
    assert (run.fence_token, run.version) == (1, 2)


def test_a_claim_that_read_the_run_before_another_one_took_it_finds_that_out_under_the_lock(
    start_agent: StartRun,
) -> None:
    """Case L8: the claim's statement sees the run free, then waits, then locks it."""
    run = start_agent("crash_sighted")
    answers: list[object] = []
    with _statements_wait_after_their_snapshot() as (enter, leave, let_on):

        def claim_slowly() -> None:
            enter()
            answers.append(claim(run_id=run.id, owner="slow"))
            leave()

        slow = threading.Thread(target=claim_slowly)
        slow.start()
        _wait_for_barrier()
        taken = claim(run_id=run.id, owner="fast")
        let_on()
        slow.join()
    assert taken is not None
    assert answers == [None]
    run.refresh_from_db()
    assert (run.fence_token, run.lease_owner) == (1, "fast")


def test_a_sweep_that_read_a_run_before_it_was_claimed_leaves_its_date_alone(
    start_agent: StartRun,
) -> None:
    """Case L8: the sweep's statement sees the run due, then waits, then locks it."""
    run = start_agent("crash_sighted")
    swept: list[sweeps.Swept] = []
    with _statements_wait_after_their_snapshot() as (enter, leave, let_on):

        def sweep_slowly() -> None:
            enter()
            swept.append(sweeps.run_once())
            leave()

        slow = threading.Thread(target=sweep_slowly)
        slow.start()
        _wait_for_barrier()
        taken = claim(run_id=run.id, owner="fast")
        let_on()
        slow.join()
    assert taken is not None
    assert swept == [sweeps.Swept(found=0, hinted=0)]
    run.refresh_from_db()
    assert run.sweep_at == run.lease_expires_at


def _many_claims(run_id: UUID, log: Path) -> Child:
    action = partial(try_to_claim, run_id)
    return Child(partial(go_through_at_once, action, threads=THREADS, log=str(log)), log=log)


@contextmanager
def _statements_wait_after_their_snapshot() -> Iterator[
    tuple[Callable[[], None], Callable[[], None], Callable[[], None]]
]:
    """Give a thread's connection a `statement_timestamp` that waits for us.

    A statement takes its snapshot before it calls the function for the first row, and locks
    rows after: between the two, here, another connection may change the row.
    """
    with psycopg.connect(of_this_test().database_url, autocommit=True) as held:
        held.execute("SELECT pg_advisory_lock(%s)", [_BARRIER])
        held.execute(
            f"""CREATE SCHEMA slowly;
            CREATE FUNCTION slowly.statement_timestamp() RETURNS timestamptz
            LANGUAGE plpgsql VOLATILE AS $$
            BEGIN
                PERFORM pg_advisory_lock_shared({_BARRIER});
                PERFORM pg_advisory_unlock_shared({_BARRIER});
                RETURN pg_catalog.statement_timestamp();
            END $$"""
        )

        def enter() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET search_path = slowly, pg_catalog, public")

        def leave() -> None:
            with connection.cursor() as cursor:
                cursor.execute("RESET search_path")
            connection.close()

        def let_on() -> None:
            held.execute("SELECT pg_advisory_unlock(%s)", [_BARRIER])

        try:
            yield enter, leave, let_on
        finally:
            held.execute("SELECT pg_advisory_unlock_all()")
            held.execute("DROP SCHEMA slowly CASCADE")


def _wait_for_barrier() -> None:
    def somebody_waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(WAITING)
            return bool(cursor.fetchone()[0])

    wait_until(somebody_waits, what="the slow statement has read its rows")
