"""A real browser on a real web process: both are started once for the tests of this folder.

Without a chromium these tests are skipped, and say so; with CI=true they fail instead, since
CI installs one.
"""

import importlib
import os
import shutil
import socket
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from agentops import processes
from runs import CallTools, Context, Decision, Finish, ToolCall
from runs.engine import advance
from runs.models import AgentRun
from tests.database.approving import person
from tests.processes import Program, environment, of_this_test, wait_until
from tools import registry

# The shell is the same engine without the windows of a whole browser, which cost most of its time.
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, _PROGRAMS)), None)
WHY_SKIPPED = "no chromium: apt-get install --no-install-recommends chromium-headless-shell"
# How long anything on a page is waited for: a busy machine takes its time.
MILLISECONDS = 20_000
OBJECTIVE = "Settle the complaint about order 17: the parcel came broken."
CALL = {"order_id": "17", "amount": "900.00", "card": "4111-1111-1111-1111"}

# Known to these tests alone, so that no other test sees them.
with registry.isolated_registry():
    desk = importlib.import_module("tests.browser.desk.tools")
    TOOLS = registry.all_tools()

Hold = Callable[..., AgentRun]
SignIn = Callable[..., Page]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        terminalreporter.write_line(f"The browser tests were not run: {WHY_SKIPPED}")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI skips nothing: {WHY_SKIPPED}")
        pytest.skip(WHY_SKIPPED)
    with pytest.MonkeyPatch.context() as patched, sync_playwright() as playwright:
        # Playwright keeps a loop in this thread, and Django takes the thread for an asynchronous
        # one; nothing here runs beside anything else.
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        expect.set_options(timeout=MILLISECONDS)
        with playwright.chromium.launch(executable_path=CHROMIUM) as browser:
            yield browser


@pytest.fixture(scope="package")
def server(
    chromium: Browser, django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a web process on the test database."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = environment(
        of_this_test(),
        apps="tests.browser.desk",
        # The same, so that whoever is signed in here is signed in there.
        more={"AGENTOPS_SECRET_KEY": settings.SECRET_KEY, "PORT": str(port)},
    )
    log = tmp_path_factory.mktemp("web") / "web.log"
    address = f"http://127.0.0.1:{port}"
    arguments = processes.web(host="127.0.0.1", port=port)
    with Program("-m", "uvicorn", *arguments, env=env, log=log, name="web") as web:
        wait_until(lambda: _answers(f"{address}/healthz"), what="the web answers", seconds=60)
        yield address
        # Captured, and shown with a failure alone.
        print(web.said)


@pytest.fixture
def sign_in(server: str, chromium: Browser, transactional_db: None) -> Iterator[SignIn]:
    """A page of somebody who is signed in: `sign_in(user, viewport=…)`."""
    contexts, faults = [], []

    def open_page(user: User | None = None, **options: Any) -> Page:
        context = chromium.new_context(base_url=server, **options)
        contexts.append(context)
        context.set_default_timeout(MILLISECONDS)
        context.on("weberror", lambda fault: faults.append(str(fault.error)))
        context.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
        if user is not None:
            client = Client()
            client.force_login(user)
            name = settings.SESSION_COOKIE_NAME
            cookie = {"name": name, "value": client.cookies[name].value, "url": server}
            context.add_cookies([cookie])  # type: ignore[list-item]
        return context.new_page()

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def clerk(transactional_db: None) -> User:
    """Somebody who may enter the admin and decide, and no more."""
    return person("clara", is_staff=True)


@pytest.fixture
def hold(transactional_db: None, start: Callable[..., AgentRun]) -> Hold:
    """A run that looked an order up and waits for a signature on a refund: `hold(amount="5")`."""
    desk.SENT.clear()
    for spec in TOOLS:
        registry.register(spec)

    def hold_run(*, says: str = "", sure: float | None = None, **arguments: Any) -> AgentRun:
        def decide(context: Context) -> Decision:
            if context.step_number == 1:
                return CallTools(ToolCall("look_up_order", order_id="17"))
            if context.step_number == 2:
                refund = ToolCall("refund_order", **CALL | arguments)
                return CallTools(refund, rationale=says, confidence=sure)
            assert context.last is not None
            return Finish({"status": context.last.status, "error": context.last.error})

        names = ("look_up_order", "refund_order")
        run = start(decider=decide, tools=names, objective=OBJECTIVE)
        return go_on(run, until="WAITING_FOR_APPROVAL")

    return hold_run


def go_on(run: AgentRun, *, until: str) -> AgentRun:
    """What a worker does with the run when it is due."""
    advance(run_id=run.id, owner="worker 1")
    run.refresh_from_db()
    assert run.state == until, run.error
    return run


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
