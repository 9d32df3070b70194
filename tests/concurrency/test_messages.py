"""A message is a hint: lost, doubled, late or impossible to send, the run goes on.

The broker of these tests is one of their own, so that it can be emptied and stopped.
`start_agent` hints at the broker that all tests share, where nobody listens: for the workers here
every such hint is lost.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote
from uuid import UUID, uuid4

import pytest
import redis

from agentops.celery import app
from agentops.embedded import start
from examples.shop.provider_process import ProviderProcess
from runs.models import AgentRun
from tests.crash.conftest import StartRun
from tests.crash.laws import assert_recovered, wait_until_finished
from tests.processes import Celery, Servers, of_this_test, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

# Longer than a test, so that nothing but a message brings another worker to a run.
LONG_LEASE = {"AGENTOPS_LEASE_SECONDS": "60"}


class Broker:
    """A Valkey of the test's own."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.start()

    def start(self) -> None:
        """Start it, at the address and with the messages that it had."""
        self._stack = start(self._data_dir, postgres=False, broker=True)
        self.url = self._stack.broker_url

    def stop(self) -> None:
        self._stack.stop()

    def flush(self) -> None:
        self._client.flushall()

    def send(self, run_id: UUID, *, times: int = 1) -> None:
        """The same message, `times` times: that is what a redelivery is."""
        with app.connection_for_write(url=self.url) as connection:
            task_id = str(uuid4())
            for _ in range(times):
                app.send_task(
                    "runs.advance_run", [str(run_id)], task_id=task_id, connection=connection
                )

    @property
    def waiting(self) -> int:
        """Messages that no worker has taken yet."""
        return int(self._client.llen("celery"))

    @property
    def is_done(self) -> bool:
        """Whether none waits, and none that was taken is still worked on."""
        return self.waiting == 0 and int(self._client.hlen("unacked")) == 0

    @property
    def _client(self) -> "redis.Redis":
        return redis.Redis(unix_socket_path=unquote(self.url.removeprefix("redis+socket://")))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = Broker(tmp_path / "broker")
    yield started
    started.stop()


@pytest.fixture
def celery(
    transactional_db: None, broker: Broker, provider: ProviderProcess, tmp_path: Path
) -> Iterator[Celery]:
    servers = Servers(database_url=of_this_test().database_url, broker_url=broker.url)
    env = {"SHOP_PAYMENTS_URL": provider.url}
    with Celery(servers, log_dir=tmp_path, env=env) as started:
        yield started


def test_a_message_redelivered_while_its_run_goes_on_and_after_it_ended_is_one_effect(
    celery: Celery, broker: Broker, provider: ProviderProcess, start_agent: StartRun
) -> None:
    """Case L4: to the worker that has the run, and to another one."""
    run = start_agent("crash_patient")
    provider.fault("hold")
    for number in range(2):
        celery.worker(f"worker-{number}", AGENTOPS_WORKER_CONCURRENCY="2", **LONG_LEASE)
    broker.send(run.id)
    provider.wait_until_held(seconds=20)
    broker.send(run.id, times=30)
    wait_until(lambda: broker.waiting == 0, what="every copy of the message was taken")
    provider.release()
    wait_until_finished(run.id)
    asked = len(provider.requests())
    broker.send(run.id, times=5)
    wait_until(lambda: broker.is_done, what="every message was worked on")
    assert_recovered(run.id, provider, claims_at_least=1)
    run.refresh_from_db()
    assert run.fence_token == 1
    assert len(provider.requests(method="POST")) == 1
    assert len(provider.requests()) == asked


def test_runs_go_on_after_the_broker_was_flushed_in_the_middle_of_work(
    celery: Celery, broker: Broker, provider: ProviderProcess, start_agent: StartRun
) -> None:
    """The run under way, those whose messages were waiting, and one whose message never came."""
    provider.fault("hold")
    under_way = start_agent("crash_patient")
    celery.worker("worker", AGENTOPS_WORKER_CONCURRENCY="1")
    broker.send(under_way.id)
    provider.wait_until_held(seconds=20)
    waiting = [start_agent("crash_sighted") for _ in range(3)]
    for run in waiting:
        broker.send(run.id)
    wait_until(lambda: broker.waiting == 3, what="three messages wait")
    broker.flush()
    provider.release()
    celery.beat()
    started_after = start_agent("crash_sighted")
    runs = [under_way, *waiting, started_after]
    wait_until_finished(*(run.id for run in runs))
    for run in runs:
        assert_recovered(run.id, provider, claims_at_least=1)


def test_a_stack_that_outlives_its_broker_accepts_runs_and_goes_on_when_it_is_back(
    celery: Celery, broker: Broker, provider: ProviderProcess, start_agent: StartRun
) -> None:
    """Case L6. The broker goes away under a call, and comes back.

    Celery may end the worker over that (an acknowledgement on a closed connection); then
    the supervisor starts another one.
    """
    provider.fault("hold")
    run = start_agent("crash_patient")
    with celery.supervised():
        provider.wait_until_held(seconds=20)
        broker.stop()
        provider.release()
        # No broker is needed to record the answer and to go on.
        wait_until_finished(run.id)
        # Ends in spite of it: a caller is not made to wait until a broker comes back.
        command = celery.manage("start_run", "crash_sighted", "--json")
        assert command.wait() == 0
        later = UUID(json.loads(command.said[command.said.index("{\n") :])["id"])
        assert AgentRun.objects.get(id=later).state == "READY"
        broker.start()
        wait_until_finished(later, seconds=60)
    for one in (run.id, later):
        assert_recovered(one, provider, claims_at_least=1)
    assert len(provider.requests(method="POST")) == 2
