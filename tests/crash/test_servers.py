"""The servers below a run are restarted, or are other ones than the embedded."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from kombu import Connection

from agentops.embedded import Stack, running
from agentops.embedded.urls import DATABASE_NAME
from examples.shop.provider_process import ProviderProcess
from tests.processes import ROOT, Celery, Servers, environment, in_database, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(170)]

# The machine's own servers; the user must be allowed to create a database.
OWN_POSTGRES = os.environ.get("LANE_DATABASE_URL", "postgresql://127.0.0.1:5432/postgres")
OWN_BROKER = os.environ.get("LANE_BROKER_URL", "amqp://guest:guest@127.0.0.1:5672//")
FORCED = signal.SIGQUIT  # no goodbye to anybody; the next start replays the log
ORDERLY = signal.SIGINT  # open transactions are broken off


@dataclass(frozen=True)
class Lane:
    """Servers of a test's own: read by SQL, driven by commands."""

    servers: Servers

    def start_run(self, celery: Celery, agent: str) -> UUID:
        command = celery.manage("start_run", agent, "--json")
        assert command.wait() == 0, command.said
        return UUID(json.loads(command.said[command.said.index("{") :])["id"])

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.servers.database_url) as connection:
            return connection.execute(query.encode(), values).fetchall()

    def wait_until_completed(self, run_id: UUID) -> None:
        def is_completed() -> bool:
            try:
                found = self.rows("SELECT state FROM runs_agentrun WHERE id = %s", run_id)
            except psycopg.OperationalError:
                return False  # being restarted
            return found == [("COMPLETED",)]

        wait_until(is_completed, what="the run has completed", seconds=60)

    def assert_one_refund(self, run_id: UUID, provider: ProviderProcess, *, claims: int) -> None:
        ((operation_id, status),) = self.rows(
            "SELECT id, status FROM runs_tooloperation WHERE run_id = %s AND effect_type <> 'READ'",
            run_id,
        )
        assert status == "COMMITTED"
        assert len(provider.effects(operation_id)) == 1
        ((token,),) = self.rows("SELECT fence_token FROM runs_agentrun WHERE id = %s", run_id)
        assert token >= claims
        people = self.rows(
            "SELECT event FROM runs_transition WHERE run_id = %s AND to_state LIKE 'WAITING_FOR%%'",
            run_id,
        )
        assert people == []


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers that tests may restart, with a migrated database that is copied for each of them.

    What one test leaves at the broker names runs that the next one's database does not have.
    """
    with running(tmp_path_factory.mktemp("servers") / "data") as stack:
        _migrate(Servers(database_url=stack.database_url, broker_url=stack.broker_url))
        yield stack


@pytest.fixture
def lane(stack: Stack) -> Lane:
    name = f"lane_{uuid4().hex[:12]}"
    elsewhere = in_database(stack.database_url, "postgres")
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {DATABASE_NAME}".encode())
    url = in_database(stack.database_url, name)
    return Lane(Servers(database_url=url, broker_url=stack.broker_url))


def _migrate(servers: Servers) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=ROOT,
        env=environment(servers),
        check=True,
    )


@contextmanager
def celery_on(lane: Lane, *, log_dir: Path, provider: ProviderProcess) -> Iterator[Celery]:
    env = {"SHOP_PAYMENTS_URL": provider.url}
    with Celery(lane.servers, log_dir=log_dir, env=env) as celery:
        yield celery


def test_runs_go_on_after_postgresql_was_restarted_in_the_middle_of_a_call(
    stack: Stack, lane: Lane, provider: ProviderProcess, tmp_path: Path
) -> None:
    """Case L7: the database goes away under one run's call and another run's recovery.

    Forced, which is the worse: it goes away in order in the next test.
    """
    with celery_on(lane, log_dir=tmp_path, provider=provider) as celery:
        provider.fault("hold", path="/orders", method="GET")
        celery.beat()
        doomed = celery.worker("doomed", CRASH_AT="call_starting:1:SIGKILL")
        abandoned = lane.start_run(celery, "crash_sighted")
        assert doomed.wait(seconds=40) == -signal.SIGKILL
        celery.worker("worker")
        provider.wait_until_held(seconds=30)
        started = lane.start_run(celery, "crash_patient")
        _restart(stack, FORCED)
        provider.release()
        for run_id in (abandoned, started):
            lane.wait_until_completed(run_id)
        lane.assert_one_refund(abandoned, provider, claims=2)
        lane.assert_one_refund(started, provider, claims=1)


def _restart(stack: Stack, how: signal.Signals) -> None:
    before = stack.postgres_pid
    os.kill(before, how)
    wait_until(lambda: stack.postgres_pid != before, what="PostgreSQL was started again")


@pytest.mark.parametrize("arrived", [False, True], ids=["commit did not arrive", "commit arrived"])
def test_a_worker_whose_connection_breaks_at_its_commit_asks_the_row_before_it_concludes(
    arrived: bool, stack: Stack, lane: Lane, provider: ProviderProcess, tmp_path: Path
) -> None:
    """The answer to a refund is in hand; the connection breaks before or under its commit.

    The lease is longer than the test: only the worker itself can go on.
    """
    with celery_on(lane, log_dir=tmp_path, provider=provider) as celery:
        worker = celery.worker(
            "worker", CRASH_AT="commit_starting:5:SIGSTOP", AGENTOPS_LEASE_SECONDS="120"
        )
        run_id = lane.start_run(celery, "crash_sighted")
        worker.wait_until_stopped()
        if arrived:
            with _commits_that_nobody_confirms(lane):
                worker.go_on()
                _break_the_commit_under_way(lane)
        else:
            _restart(stack, ORDERLY)
            worker.go_on()
        lane.wait_until_completed(run_id)
        lane.assert_one_refund(run_id, provider, claims=1)
        assert lane.rows("SELECT fence_token FROM runs_agentrun") == [(1,)]
        assert len(provider.requests(method="POST")) == 1


@contextmanager
def _commits_that_nobody_confirms(lane: Lane) -> Iterator[None]:
    """Commits are durable here, but wait for a standby that does not exist."""
    _tell_server(lane, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    try:
        yield
    finally:
        _tell_server(lane, "ALTER SYSTEM RESET synchronous_standby_names")


def _break_the_commit_under_way(lane: Lane) -> None:
    def is_broken() -> bool:
        ended = lane.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event = 'SyncRep' AND query LIKE 'WITH held AS%%'"
        )
        return bool(ended)

    wait_until(is_broken, what="a commit waits to be confirmed")


def _tell_server(lane: Lane, statement: str) -> None:
    with psycopg.connect(lane.servers.database_url, autocommit=True) as connection:
        connection.execute(statement.encode())
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def own_lane() -> Iterator[Lane]:
    """A new database on the machine's PostgreSQL, and its RabbitMQ; or a skip that says why."""
    with ExitStack() as under:
        servers = _own_servers(under)
        _migrate(servers)
        yield Lane(servers)


def _own_servers(under: ExitStack) -> Servers:
    name = f"agentops_lane_{uuid4().hex[:12]}"
    try:
        connection = psycopg.connect(OWN_POSTGRES, autocommit=True, connect_timeout=2)
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL of the machine's own: {str(error).strip()[:200]}")
    under.enter_context(connection)
    if connection.info.server_version < 140_000:
        pytest.skip(f"the machine's PostgreSQL is too old: {connection.info.server_version}")
    try:
        with Connection(OWN_BROKER, connect_timeout=2) as broker:
            broker.connect()
    except OSError as error:
        pytest.skip(f"no broker of the machine's own: {error}")
    connection.execute(f"CREATE DATABASE {name}".encode())
    under.callback(connection.execute, f"DROP DATABASE {name} WITH (FORCE)".encode())
    return Servers(database_url=in_database(OWN_POSTGRES, name), broker_url=OWN_BROKER)


def test_a_refund_survives_a_killed_celery_worker_on_servers_of_the_machines_own(
    own_lane: Lane, provider: ProviderProcess, tmp_path: Path
) -> None:
    with celery_on(own_lane, log_dir=tmp_path, provider=provider) as celery:
        provider.fault("lose_answer")
        celery.beat()
        doomed = celery.worker("doomed", CRASH_AT="call_done:2:SIGKILL")
        run_id = own_lane.start_run(celery, "crash_sighted")
        assert doomed.wait(seconds=40) == -signal.SIGKILL, doomed.said
        celery.worker("replacement")
        own_lane.wait_until_completed(run_id)
        own_lane.assert_one_refund(run_id, provider, claims=2)
