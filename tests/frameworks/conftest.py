"""A shop behind the gateway, and agents of other frameworks that are killed and started again.

Guarantees: an agent dies after the provider has done what it asked for and before it has heard
of it, whatever the speed of the machine: the provider holds the answer back until the agent is
dead. The web process lives on its own database, and on the servers that all tests share.
"""

import importlib
import itertools
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from pytest_django import DjangoDbBlocker

from agentops import processes
from examples.shop.provider.ledger import Effect
from examples.shop.provider_process import ProviderDidNotSee, ProviderProcess, provider_process
from tests.copied import at_home_in, copied_database
from tests.processes import Program, Servers, environment, wait_until
from tools import registry

# Known to these tests' processes alone, so that no other test sees them.
with registry.isolated_registry():
    importlib.import_module("tests.frameworks.shop.tools")
    TOOLS = registry.all_tools()
BARE, GUARDED = "acct_bare", "acct_main"
SCOPES = {
    # What the how-to pages say that a token needs, and no more.
    "agents": "operations:call:refund_customer,operations:call:refund_order",
    # Who signs.
    "clara": "read,approvals:decide",
}
# What an agent's llm wants: calls in each of its answers.
Answers = list[list[dict[str, str]]]


@dataclass(frozen=True)
class Shop:
    """The gateway at `url`, tokens for it by name, and the provider behind both."""

    url: str
    tokens: Mapping[str, str]
    provider: ProviderProcess
    servers: Servers
    # What processes of the runtime are started with.
    env: Mapping[str, str]

    @property
    def token(self) -> str:
        """The agents'."""
        return self.tokens["agents"]

    def environment(self, directory: Path, answers: Answers | None) -> dict[str, str]:
        """What an agent's process is told; what it keeps lies in `directory` or the database."""
        return {
            **os.environ,
            "ANSWERS": json.dumps(answers) if answers else "",
            "AGENTOPS_URL": self.url,
            "AGENTOPS_TOKEN": self.token,
            "SHOP_PAYMENTS_URL": self.provider.url,
            "STATE_DIRECTORY": str(directory),
            "STATE_DATABASE_URL": self.servers.database_url,
            "PYTHONUNBUFFERED": "1",
        }


@dataclass(frozen=True)
class Refunds:
    """How often each order was refunded in one test: by an agent alone, and through the gateway."""

    bare: Mapping[str, int]
    guarded: Mapping[str, int]


@pytest.fixture(scope="package")
def shop(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Shop]:
    """A web process, whose provider ignores keys, on a database of its own."""
    directory = tmp_path_factory.mktemp("shop")
    with ExitStack() as under:
        servers = under.enter_context(copied_database(django_db_blocker))
        with at_home_in(servers, django_db_blocker):
            tokens = _create_tokens()
        provider = under.enter_context(
            provider_process(directory / "ledger.sqlite3", ignore_keys=True)
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        env = environment(
            servers,
            apps="tests.frameworks.shop",
            lease_seconds=30.0,
            more={"SHOP_PAYMENTS_URL": provider.url, "PORT": str(port)},
        )
        arguments = processes.web(host="127.0.0.1", port=port)
        log = directory / "web.log"
        web = under.enter_context(Program("-m", "uvicorn", *arguments, env=env, log=log))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(f"{url}/healthz"), what="the web answers", seconds=60)
        yield Shop(url=url, tokens=tokens, provider=provider, servers=servers, env=env)
        # Captured, and shown with a failure alone.
        print(web.said)


def _create_tokens() -> dict[str, str]:
    made = {}
    with registry.isolated_registry():
        for spec in TOOLS:
            registry.register(spec)
        for name, scopes in SCOPES.items():
            said = StringIO()
            call_command("create_token", name, scopes=scopes, as_json=True, stdout=said)
            made[name] = str(json.loads(said.getvalue())["token"])
    return made


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Killing:
    """Starts the same program twice: the first one dies in the middle of its refunds.

    `answers` are its llm's, instead of the usual ones.
    """

    answers: Answers | None = None

    def __init__(self, shop: Shop, directory: Path) -> None:
        self._shop, self._directory = shop, directory
        self._seen = len(shop.provider.effects())
        self._numbers = itertools.count(1)

    def start(self, program: str, *arguments: str) -> Program:
        return Program(
            "-m",
            f"tests.frameworks.programs.{program}",
            *arguments,
            env=self._shop.environment(self._directory, self.answers),
            log=self._directory / f"{program}-{next(self._numbers)}.log",
            name=program,
        )

    def kill_in_the_middle_of_its_refunds(
        self, program: str, *arguments: str, refunds: int = 2
    ) -> None:
        """SIGKILL once that many refunds are made and none of them is answered."""
        provider = self._shop.provider
        provider.fault("hold", after_commit=True, times=refunds)
        with self.start(program, *arguments) as doomed:
            wait_until(
                lambda: self._is_held(refunds) or not doomed.lives,
                what=f"{program} waits for {refunds} refunds",
                seconds=60,
            )
            assert doomed.lives, doomed.said
            # With what it has started itself.
            os.killpg(doomed.pid, signal.SIGKILL)
            assert doomed.wait() == -signal.SIGKILL
        provider.release()

    def run(self, program: str, *arguments: str) -> str:
        """What it says; it has to end by itself, and well."""
        with self.start(program, *arguments) as resumed:
            assert resumed.wait(seconds=60) == 0, resumed.said
            return resumed.said

    def _is_held(self, refunds: int) -> bool:
        try:
            self._shop.provider.wait_until_held(refunds, seconds=0.2)
        except ProviderDidNotSee:
            return False
        return True

    def effects(self) -> list[Effect]:
        """The money that moved in this test."""
        return self._shop.provider.effects()[self._seen :]

    def refunds(self) -> Refunds:
        made = self.effects()
        return Refunds(bare=_count(made, BARE), guarded=_count(made, GUARDED))


def _count(effects: list[Effect], account: str) -> dict[str, int]:
    orders = [one.order_id for one in effects if one.account == account]
    return {order: orders.count(order) for order in orders}


@pytest.fixture
def killing(shop: Shop, tmp_path: Path) -> Iterator[Killing]:
    yield Killing(shop, tmp_path)
    # What a test that failed has left.
    shop.provider.clear_faults()
    shop.provider.release()
