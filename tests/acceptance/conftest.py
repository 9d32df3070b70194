"""The demo's payment provider for a whole module of tests, left as it was after each one; and
where whole stacks have their servers.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from examples.shop.provider_process import ProviderProcess, provider_process
from tests.acceptance.soon import SOON


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path_factory.mktemp("provider") / "ledger.sqlite3") as provider:
        yield provider


@pytest.fixture
def provider(running: ProviderProcess) -> Iterator[ProviderProcess]:
    yield running
    running.clear_faults()
    running.release()


@pytest.fixture
def name() -> str:
    """An operation id that is this test's own: one provider serves the whole module."""
    return uuid.uuid4().hex


@pytest.fixture(scope="module")
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(transport=httpx2.HTTPTransport(), timeout=SOON) as client:
        yield client


@pytest.fixture(scope="session")
def stack_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all whole stacks, one after the other: the first one makes the database for all."""
    return tmp_path_factory.mktemp("stack") / ".agentops"
