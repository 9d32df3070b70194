"""The server that plays the llm, and clients that are pointed at it."""

from collections.abc import Iterator

import pytest

from runs.llm import providers, resting
from tests.llms.server import LlmServer


@pytest.fixture(scope="session")
def _server() -> Iterator[LlmServer]:
    providers.forget_clients()
    with LlmServer() as server:
        yield server
        providers.forget_clients()


@pytest.fixture
def llm_server(_server: LlmServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    """With an empty script and journal; the clients of this process ask it and nobody else."""
    _server.clear()
    for name, value in _server.env().items():
        monkeypatch.setenv(name, value)
    resting.forget()
    yield _server
    resting.forget()
