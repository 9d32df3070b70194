"""The lease: one holder, a token that only grows, and the database's clock."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from runs import Finish
from runs.errors import InsideTransaction
from runs.lease import Claimed, Heartbeat, Lease, claim, margin_seconds
from runs.models import AgentRun
from tests.database.kit import ON_DATABASE, another_connection, ask, change, drive

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]
LEASE = 30.0


@pytest.fixture(autouse=True)
def _lease(settings: Settings) -> None:
    settings.AGENTOPS_LEASE_SECONDS = LEASE


@pytest.fixture
def run(start: Start) -> AgentRun:
    """A run that is due and that nobody holds."""
    return start(decider=lambda context: Finish(1))


def _claim(run: AgentRun, owner: str = "worker 1") -> Claimed:
    taken = claim(run_id=run.id, owner=owner)
    assert taken is not None
    return taken


# -- Claiming -----------------------------------------------------------------------------------


def test_a_claim_makes_the_next_token_and_the_next_version(run: AgentRun) -> None:
    taken = _claim(run)
    assert (taken.lease.fence_token, taken.row["version"]) == (1, 2)
    run.refresh_from_db()
    assert (run.fence_token, run.version, run.lease_owner) == (1, 2, "worker 1")


def test_a_held_run_is_not_claimed_not_even_by_its_holder(run: AgentRun) -> None:
    _claim(run)
    assert claim(run_id=run.id, owner="worker 2") is None
    assert claim(run_id=run.id, owner="worker 1") is None
    run.refresh_from_db()
    assert run.fence_token == 1


def test_a_run_that_is_not_due_is_not_claimed(run: AgentRun) -> None:
    change("UPDATE runs_agentrun SET wake_at = now() + interval '1 s'")
    assert claim(run_id=run.id, owner="worker 1") is None
    change("UPDATE runs_agentrun SET wake_at = now()")
    _claim(run)


def test_a_run_for_which_nobody_is_due_is_not_claimed(run: AgentRun) -> None:
    drive(run)
    assert run.wake_at is None
    assert claim(run_id=run.id, owner="worker 1") is None


def test_a_run_that_does_not_exist_is_not_claimed() -> None:
    assert claim(run_id=uuid4(), owner="worker 1") is None


def test_an_expired_lease_is_claimed_under_a_larger_token(run: AgentRun) -> None:
    first = _claim(run)
    change("UPDATE runs_agentrun SET lease_expires_at = statement_timestamp()")
    second = _claim(run, "worker 2")
    assert second.lease.fence_token == first.lease.fence_token + 1
    assert second.row["version"] == first.row["version"] + 1


def test_a_released_run_is_claimed_at_once(run: AgentRun) -> None:
    _claim(run)
    change("UPDATE runs_agentrun SET lease_owner = '', lease_expires_at = NULL")
    assert _claim(run, "worker 2").lease.fence_token == 2


def test_the_lease_ends_by_the_databases_clock(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 1e6)
    _claim(run)
    left = ask("SELECT EXTRACT(EPOCH FROM lease_expires_at - now())::float8 FROM runs_agentrun")
    assert LEASE - 5 < left <= LEASE
    assert claim(run_id=run.id, owner="worker 2") is None


def test_the_sweep_looks_again_when_the_lease_ends(run: AgentRun) -> None:
    _claim(run)
    run.refresh_from_db()
    assert run.sweep_at == run.lease_expires_at


def test_a_row_that_somebody_is_claiming_is_skipped_and_not_waited_for(run: AgentRun) -> None:
    with another_connection(autocommit=False) as other:
        other.execute("SELECT 1 FROM runs_agentrun WHERE id = %s FOR NO KEY UPDATE", [run.id])
        change("SET lock_timeout = '50ms'")
        assert claim(run_id=run.id, owner="worker 1") is None
        other.rollback()
    _claim(run)


def test_of_many_workers_one_claims(run: AgentRun) -> None:
    workers = 8
    taken: list[Claimed | None] = []
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        try:
            connection.ensure_connection()
            together.wait(timeout=10)
            taken.append(claim(run_id=run.id, owner=f"worker {number}"))
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [one for one in taken if one is not None]
    assert (len(taken), len(winners)) == (workers, 1)
    run.refresh_from_db()
    assert (run.fence_token, run.lease_owner) == (1, winners[0].lease.owner)


def test_a_claim_inside_a_transaction_is_refused(run: AgentRun) -> None:
    with transaction.atomic(), pytest.raises(InsideTransaction):
        claim(run_id=run.id, owner="worker 1")


def test_what_was_claimed_is_the_row_as_it_stood(start: Start) -> None:
    run = start(decider=lambda context: Finish(1), input={"deep": [1, {"x": None}]})
    row = _claim(run).row
    assert row["id"] == run.id
    assert row["state"] == "READY"
    assert row["input"] == {"deep": [1, {"x": None}]}


# -- What a holder knows ------------------------------------------------------------------------


def test_the_known_end_counts_from_before_the_question(run: AgentRun) -> None:
    with _noting_when_asked() as asked:
        lease = _claim(run).lease
    assert lease.known_end <= asked[0] + LEASE
    assert lease.left() > LEASE - 5
    _nearly_over(run)
    lease.known_end = 0.0
    heart = Heartbeat()
    with heart.keeping(lease), _noting_when_asked() as asked:
        heart.run_once()
    assert 0 < lease.known_end <= asked[0] + LEASE


def test_a_lease_that_has_run_out_has_nothing_left(run: AgentRun) -> None:
    lease = Lease(run_id=run.id, fence_token=1, owner="w", known_end=time.monotonic() - 1)
    assert lease.left() < 0


def test_the_known_end_never_moves_back(run: AgentRun) -> None:
    lease = _claim(run).lease
    before = lease.known_end
    lease.extend(asked_at=time.monotonic(), left=1.0)
    assert lease.known_end == before


def test_the_margin_is_a_part_of_the_lease(settings: Settings) -> None:
    assert 0 < margin_seconds() < LEASE / 2
    settings.AGENTOPS_LEASE_SECONDS = LEASE * 2
    assert margin_seconds() < LEASE


# -- Renewal ------------------------------------------------------------------------------------


@pytest.fixture
def heart() -> Heartbeat:
    return Heartbeat()


def test_a_held_lease_is_renewed(run: AgentRun, heart: Heartbeat) -> None:
    lease = _claim(run).lease
    _nearly_over(run)
    lease.known_end = time.monotonic() + 1
    with heart.keeping(lease):
        assert heart.run_once() == 1
    assert _left(run) > LEASE - 5
    really_left = _left(run)
    assert LEASE - 5 < lease.left() <= really_left
    run.refresh_from_db()
    assert run.sweep_at is not None
    assert run.lease_expires_at is not None
    assert run.sweep_at >= run.lease_expires_at


def test_a_renewal_changes_neither_version_nor_token(run: AgentRun, heart: Heartbeat) -> None:
    taken = _claim(run)
    with heart.keeping(taken.lease):
        heart.run_once()
    run.refresh_from_db()
    assert (run.version, run.fence_token) == (taken.row["version"], taken.lease.fence_token)


def test_a_renewal_never_shortens_a_lease(run: AgentRun, heart: Heartbeat) -> None:
    lease = _claim(run).lease
    change("UPDATE runs_agentrun SET lease_expires_at = now() + interval '500 s'")
    with heart.keeping(lease):
        assert heart.run_once() == 1
    assert _left(run) > 490


def test_a_renewal_after_a_take_over_changes_nothing(run: AgentRun, heart: Heartbeat) -> None:
    stale = _claim(run).lease
    change("UPDATE runs_agentrun SET lease_expires_at = statement_timestamp()")
    _claim(run, "worker 2")
    _nearly_over(run)
    known = stale.known_end
    with heart.keeping(stale):
        assert heart.run_once() == 0
    assert stale.known_end == known
    assert _left(run) <= 2


def test_a_take_over_inside_one_process_does_not_lengthen_the_stale_lease(
    run: AgentRun, heart: Heartbeat
) -> None:
    stale = _claim(run).lease
    change("UPDATE runs_agentrun SET lease_expires_at = statement_timestamp()")
    with heart.keeping(stale):
        # Every thread of a worker process has the same owner's name: only the token tells.
        fresh = _claim(run, stale.owner).lease
        known = stale.known_end
        assert heart.run_once() == 0
        with heart.keeping(fresh):
            assert heart.run_once() == 1
    assert stale.known_end == known


def test_a_renewal_after_the_release_changes_nothing(run: AgentRun, heart: Heartbeat) -> None:
    lease = _claim(run).lease
    change("UPDATE runs_agentrun SET lease_owner = '', lease_expires_at = NULL")
    known = lease.known_end
    with heart.keeping(lease):
        assert heart.run_once() == 0
    run.refresh_from_db()
    assert (run.lease_owner, run.lease_expires_at) == ("", None)
    assert lease.known_end == known


def test_a_renewal_that_fails_leaves_the_known_end(run: AgentRun, heart: Heartbeat) -> None:
    lease = _claim(run).lease
    known = lease.known_end
    with another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [ask("SELECT pg_backend_pid()")])
    with heart.keeping(lease), pytest.raises(Exception, match=r"connection|terminat"):
        heart.run_once()
    connection.close()
    assert lease.known_end == known


def test_work_that_takes_longer_than_it_said_is_no_longer_renewed(
    run: AgentRun, heart: Heartbeat
) -> None:
    lease = _claim(run).lease
    lease.expect(-1)
    _nearly_over(run)
    with heart.keeping(lease):
        assert heart.run_once() == 0
    assert _left(run) <= 2
    lease.expect(60)
    with heart.keeping(lease):
        assert heart.run_once() == 1


def test_renewal_ends_with_the_work(run: AgentRun, heart: Heartbeat) -> None:
    lease = _claim(run).lease
    with heart.keeping(lease):
        pass
    assert heart.run_once() == 0
    with pytest.raises(ZeroDivisionError), heart.keeping(lease):
        raise ZeroDivisionError
    assert heart.run_once() == 0


def test_one_statement_renews_all_leases_of_the_process(start: Start, heart: Heartbeat) -> None:
    leases = [_claim(start(decider=lambda context: Finish(1))).lease for _ in range(3)]
    change("UPDATE runs_agentrun SET lease_expires_at = now() + interval '1 s'")
    statements: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with ExitStack() as kept:
        for lease in leases:
            kept.enter_context(heart.keeping(lease))
        kept.enter_context(connection.execute_wrapper(note))
        assert heart.run_once() == 3
    assert len(statements) == 1
    assert ask("SELECT min(EXTRACT(EPOCH FROM lease_expires_at - now())) FROM runs_agentrun") > 25


@contextmanager
def _noting_when_asked() -> Iterator[list[float]]:
    """The moment at which each statement is sent."""
    asked: list[float] = []

    def note(execute: Any, *statement: Any) -> Any:
        asked.append(time.monotonic())
        return execute(*statement)

    with connection.execute_wrapper(note):
        yield asked


def _left(run: AgentRun) -> float:
    return float(
        ask(
            "SELECT EXTRACT(EPOCH FROM lease_expires_at - clock_timestamp())"
            " FROM runs_agentrun WHERE id = %s",
            run.id,
        )
    )


def _nearly_over(run: AgentRun) -> None:
    change(
        "UPDATE runs_agentrun SET lease_expires_at = now() + interval '2 s' WHERE id = %s", run.id
    )
