"""Fixtures of the crash tests: the fork server, providers, and runs of the fault agents."""

import dataclasses
import importlib
import itertools
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.shop.provider_process import ProviderProcess, provider_process
from runs.access import operator
from runs.agents import forget_agents
from runs.commands import start_run
from runs.errors import RunHeld
from runs.models import AgentRun, ToolOperation
from runs.resolution import Outcome, resolve_operation
from tests.crash.driving import Assignment
from tests.crash.faultapp.agents import AGENTS
from tests.crash.forked import (
    Child,
    end_children,
    fork_worker,
    start_fork_server,
    stop_fork_server,
)
from tests.crash.things import Things
from tests.database.kit import ON_DATABASE
from tests.processes import Celery, of_this_test, wait_until
from tools import registry

# Known to the tests of these directories alone, so that no other test sees them.
forget_agents(agent.name for agent in AGENTS)
with registry.isolated_registry():
    importlib.import_module("tests.crash.faultapp.tools")
    TOOLS = registry.all_tools()
_numbers = itertools.count(1)

StartRun = Callable[..., AgentRun]
NewLog = Callable[[], Path]
Work = Callable[..., Child]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After a test of this directory, too, only the kernel's own tables are emptied.

    Unless it says otherwise: with the kernel's tables alone there are no people, who sign.
    """
    here = Path(__file__).parent
    for item in items:
        is_ours = item.path.parent == here and item.get_closest_marker("django_db") is None
        if is_ours and "transactional_db" in getattr(item, "fixturenames", ()):
            item.add_marker(ON_DATABASE)


@pytest.fixture
def start_agent(transactional_db: None) -> StartRun:
    """Start a run of a fault agent: `start_agent("crash_sighted")`."""
    for agent in AGENTS:
        # A copy registers itself, as every new agent does.
        dataclasses.replace(agent)
    for spec in TOOLS:
        registry.register(spec)

    def start(name: str, **options: Any) -> AgentRun:
        return start_run(actor=operator(), agent=name, **options).run

    return start


def person_says(outcome: Outcome, operation: ToolOperation, *, evidence: str, **more: Any) -> None:
    """Settle the operation, as soon as no worker holds its run."""

    def is_said() -> bool:
        with suppress(RunHeld):
            resolve_operation(
                actor=operator(),
                operation_id=operation.id,
                outcome=outcome,
                evidence=evidence,
                **more,
            )
            return True
        return False

    wait_until(is_said, what="a person settles it")


@pytest.fixture
def forks(transactional_db: None, pytestconfig: pytest.Config) -> Iterator[None]:
    """A fork server on the test database."""
    if start_fork_server(of_this_test()):
        pytestconfig.add_cleanup(stop_fork_server)
    yield
    end_children()


class Providers:
    """Payment providers, each in its own process, lent to one test, or one run of it, at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running = ExitStack()
        self._free: dict[bool, deque[ProviderProcess]] = {True: deque(), False: deque()}
        self._turn = threading.Lock()

    @contextmanager
    def borrowed(self, *, honours_keys: bool = True) -> Iterator[ProviderProcess]:
        """A provider with empty books and without faults that nobody else asks meanwhile."""
        free = self._free[honours_keys]
        with self._turn:
            if not free:
                ledger = self._directory / f"ledger-{next(_numbers)}.sqlite3"
                new = provider_process(ledger, ignore_keys=not honours_keys)
                free.append(self._running.enter_context(new))
            provider = free.popleft()
        provider.clear_faults()
        _empty(provider.ledger)
        yield provider
        # Not given back after a failure, nor if a request was still held in it.
        if not provider.release():
            with self._turn:
                free.append(provider)

    def close(self) -> None:
        self._running.close()


def _empty(ledger: Path) -> None:
    with closing(sqlite3.connect(ledger, isolation_level=None)) as books:
        for table in ("effects", "bookings", "answers", "requests"):
            books.execute(f"DELETE FROM {table}")


_shared = pytest.StashKey[Providers]()


def _shared_providers(config: pytest.Config, directories: pytest.TempPathFactory) -> Providers:
    """Those of this test process, which end with it."""
    if _shared not in config.stash:
        config.stash[_shared] = Providers(directories.mktemp("providers"))
        config.add_cleanup(config.stash[_shared].close)
    return config.stash[_shared]


@pytest.fixture
def providers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Providers:
    return _shared_providers(pytestconfig, tmp_path_factory)


@pytest.fixture
def provider(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProviderProcess]:
    """One payment provider with empty books."""
    # Not by the fixture above: other directories take this one alone.
    with _shared_providers(pytestconfig, tmp_path_factory).borrowed() as running:
        yield running


@pytest.fixture
def keyless(providers: Providers) -> Iterator[ProviderProcess]:
    """The same for one that executes every refund, whatever its key."""
    with providers.borrowed(honours_keys=False) as running:
        yield running


@pytest.fixture
def new_log(tmp_path: Path) -> NewLog:
    """A file for what the next process says."""
    return lambda: tmp_path / f"process-{next(_numbers)}.log"


@pytest.fixture
def work(forks: None, provider: ProviderProcess, new_log: NewLog) -> Iterator[Work]:
    """Fork a worker on a run: `work(run, fault="commit_done:2:SIGKILL")`."""
    with ExitStack() as started:

        def fork(
            run: AgentRun,
            *,
            fault: str = "",
            lease_seconds: float = 1.0,
            stays: bool = False,
            at: ProviderProcess | Things = provider,
        ) -> Child:
            assignment = Assignment(
                run_id=run.id,
                provider_url=at.url,
                log=str(new_log()),
                fault=fault,
                lease_seconds=lease_seconds,
                stays=stays,
            )
            return started.enter_context(fork_worker(assignment))

        yield fork


@pytest.fixture
def celery(transactional_db: None, provider: ProviderProcess, tmp_path: Path) -> Iterator[Celery]:
    """Starts Celery's processes on the servers that all tests share, with short leases."""
    env = {"SHOP_PAYMENTS_URL": provider.url}
    with Celery(of_this_test(), log_dir=tmp_path, env=env) as started:
        yield started
