"""Two web processes on the test database, the provider that their tools call, and tokens."""

import importlib
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentops import processes
from agentops.tokens import issue_token
from runs.access import CALL_EVERY_TOOL
from tests.gateway import mcp_client
from tests.gateway.provider import StoreProvider, store_provider
from tests.processes import Program, environment, of_this_test, wait_until
from tools import registry

# Known to these tests alone, so that no other test sees them.
with registry.isolated_registry():
    importlib.import_module("tests.gateway.store.tools")
    TOOLS = registry.all_tools()
_numbers = count(1)

Call = Callable[..., Any]


@dataclass(frozen=True)
class Gateway:
    """Two web processes, `one` and `two`, which share their database and nothing else."""

    one: str
    two: str


@pytest.fixture(scope="package")
def package_provider() -> Iterator[StoreProvider]:
    with store_provider() as provider:
        yield provider


@pytest.fixture(scope="package")
def gateway(
    package_provider: StoreProvider,
    django_db_setup: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    logs = tmp_path_factory.mktemp("web")
    more = {"STORE_URL": package_provider.url}
    # A call that is held up must not be taken for one whose worker died.
    env = environment(of_this_test(), apps="tests.gateway.store", lease_seconds=30, more=more)
    with ExitStack() as webs:
        started = [_start(webs, f"web{number}", env, logs) for number in (1, 2)]
        for web, url in started:
            _wait_for(web, url)
        yield Gateway(*(url for _, url in started))
        for web, _ in started:
            print(web.said)


@pytest.fixture
def provider(
    package_provider: StoreProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreProvider]:
    # For what this process sends in a worker's place.
    monkeypatch.setenv("STORE_URL", package_provider.url)
    package_provider.effects.clear()
    package_provider.goes_on.clear()
    package_provider.holds.clear()
    package_provider.is_broken = True
    yield package_provider
    package_provider.goes_on.set()


@pytest.fixture
def new_token(transactional_db: None) -> Callable[..., str]:
    """A token of a new user: `new_token("operations:call:refund", …)`; without scopes, every tool.

    The tools are known in this process too, for what it does in a worker's place.
    """
    for spec in TOOLS:
        registry.register(spec)

    def issue(*scopes: str) -> str:
        user = User.objects.create(username=f"agent{next(_numbers)}")
        given = scopes or (CALL_EVERY_TOOL,)
        return issue_token(user=user, name="agent", scopes=given).secret

    return issue


@pytest.fixture
def call(gateway: Gateway, new_token: Callable[..., str], provider: StoreProvider) -> Call:
    """Call a tool by the first web process, all with one token: `call("ring", order_id="1")`."""
    token = new_token()

    def call_tool(name: str, /, **more: Any) -> Any:
        url = more.pop("url", gateway.one)
        return mcp_client.call(url, more.pop("token", token), name, **more)

    return call_tool


def _start(webs: ExitStack, name: str, env: dict[str, str], logs: Path) -> tuple[Program, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = processes.web(host="127.0.0.1", port=port)
    web = Program("-m", "uvicorn", *arguments, env=env, log=logs / f"{name}.log", name=name)
    return webs.enter_context(web), f"http://127.0.0.1:{port}"


def _wait_for(web: Program, url: str) -> None:
    wait_until(lambda: not web.lives or _answers(url), what=f"{web.name} answers", seconds=60)
    assert web.lives, web.said


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
