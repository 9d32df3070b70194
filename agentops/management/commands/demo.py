"""Run the demo: the stack, a shop's payment provider, and four stories told with them."""

import os
import secrets
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import httpx2
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from rich.console import Console
from rich.text import Text

from agentops.embedded import EmbeddedError
from agentops.exits import WorkerExits
from agentops.ports import PortUnusable, require_free_port, reserved_port
from agentops.processes import LOOPBACK, stack_processes
from agentops.stack import await_port, child_environment, migrate, start_servers
from agentops.supervisor import Supervisor
from agentops.tokens import issue_token
from runs.access import APPROVALS_DECIDE, READ, RUNS_WRITE
from runs.errors import LlmUnavailable
from runs.llm.providers import get_client

SHOP: Final = "examples.shop"
# Short, so that the story is: the longest wait in it is for a dead worker's lease.
DEMO_LEASE_SECONDS: Final = "5"
USER: Final = "demo"
APPROVER: Final = "approver"
APPROVER_MAY: Final = (
    "decide_approval",
    "view_approval",
    "view_agentrun",
    "view_tooloperation",
)
PIPE_WIDTH: Final = 118
SOME_LLM: Final = "openai:gpt-5-mini"


class Command(BaseCommand):
    help = "Show a refund that survives a crash between the effect and its record."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--exit",
            action="store_true",
            help="stop the stack at the end; exit 0 only if the story held",
        )
        parser.add_argument(
            "--llm",
            metavar="NAME",
            default=settings.AGENTOPS_LLM,
            help="have this llm decide the refunds, such as openai:gpt-5-mini; its provider's key "
            "is read from the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY)",
        )
        parser.add_argument(
            "--only",
            type=int,
            action="append",
            choices=range(1, 5),
            metavar="STORY",
            help="tell only this story, 1 to 4; may be given several times",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        _require_shop(llm=options["llm"])
        # A pipe has no width: wide enough for a line of the timeline.
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        console = Console(file=sys.stdout, highlight=False, width=width)
        try:
            with ExitStack() as ending:
                held = self._show(
                    console, ending, only=options["only"], leave_up=not options["exit"]
                )
        except (EmbeddedError, PortUnusable) as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            console.print("stopped")
            return
        if not held:
            raise CommandError("The story did not hold; the lines marked NO say where.")

    def _show(
        self, console: Console, ending: ExitStack, *, only: list[int] | None, leave_up: bool
    ) -> bool:
        from examples.shop.provider_process import provider_process
        from examples.shop.story import Story
        from examples.shop.telling import Teller
        from examples.shop.visitor import Visitor

        signal.signal(signal.SIGTERM, _interrupt)
        llm = _require_llm()
        port, flower_port = (
            ending.enter_context(_port(preferred, variable))
            for variable, preferred in (
                ("PORT", settings.PORT),
                ("FLOWER_PORT", settings.FLOWER_PORT),
            )
        )
        start_servers(ending, say=lambda text: console.print(Text(text), soft_wrap=True))
        migrate(say=console.print)
        password, token = _make_user()
        approver_password = _make_approver()
        provider = ending.enter_context(
            provider_process(settings.AGENTOPS_DATA_DIR / "demo" / f"ledger-{os.getpid()}.sqlite")
        )
        login = f"{USER}:{secrets.token_urlsafe(12)}"
        environment = {**child_environment(flower_login=login), "SHOP_PAYMENTS_URL": provider.url}
        log = _log_to(ending)
        exits = ending.enter_context(WorkerExits(on_trouble=partial(log, "demo")))
        supervisor = Supervisor(
            stack_processes(
                data_dir=settings.AGENTOPS_DATA_DIR,
                port=port,
                flower_port=flower_port,
                environment=environment,
            ),
            on_line=log,
            on_start=exits.note_start,
            on_end=exits.note_end,
        )
        console.print(Text(_say_who_decides(llm)), soft_wrap=True)
        console.print("starting web, worker, beat and Flower")
        supervisor.start()
        ending.callback(supervisor.stop)
        if not await_port(port):
            raise CommandError(f"The web process does not listen on port {port}.")
        web = f"http://{LOOPBACK}:{port}"
        api = ending.enter_context(
            httpx2.Client(base_url=web, headers={"Authorization": f"Token {token}"}, timeout=30)
        )
        approver = ending.enter_context(
            Visitor(web=web, username=APPROVER, password=approver_password)
        )
        held = Story(
            teller=Teller(console=console, api=api),
            supervisor=supervisor,
            provider=provider,
            approver=approver,
        ).tell(only)
        console.print(Text(f"\nadmin   {web}/admin/   user {USER}, password {password}"))
        console.print(Text(f"        to sign: user {APPROVER}, password {approver_password}"))
        api_line = f"API     {web}/api/v1/docs/   Authorization: Token {token}"
        console.print(Text(api_line), soft_wrap=True)
        console.print(Text(f"Flower  http://{LOOPBACK}:{flower_port}/   login {login}"))
        if leave_up:
            console.print("\nThe stack stays up; Ctrl-C stops it.")
            # The supervisor goes on restarting what dies until somebody interrupts.
            threading.Event().wait()
        return held


def _require_shop(*, llm: str) -> None:
    """Start over with the shop's app, a short lease and the llm, unless this process has them."""
    if SHOP in settings.AGENTOPS_APPS and llm == settings.AGENTOPS_LLM:
        return
    apps = ",".join(dict.fromkeys([*settings.AGENTOPS_APPS, SHOP]))
    environment = {"AGENTOPS_LEASE_SECONDS": DEMO_LEASE_SECONDS, **os.environ}
    environment |= {"AGENTOPS_APPS": apps, "AGENTOPS_LLM": llm}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def _require_llm() -> str:
    """The llm that decides; empty without one. Raises CommandError where it cannot be asked."""
    llm: str = settings.AGENTOPS_LLM
    if llm:
        try:
            get_client(llm)
        except LlmUnavailable as error:
            raise CommandError(str(error)) from error
    return llm


def _say_who_decides(llm: str) -> str:
    if llm:
        return f"the refunds are decided by an llm, {llm}: its provider bills for the tokens"
    return f"the refunds are decided by code; make demo LLM={SOME_LLM} has an llm decide"


@contextmanager
def _port(preferred: int, variable: str) -> Iterator[int]:
    """The port that was asked for; without a wish another one will do, for a second demo."""
    if os.environ.get(variable, "").strip():
        require_free_port(preferred, host=LOOPBACK, variable=variable)
        yield preferred
    else:
        with reserved_port(preferred, host=LOOPBACK, variable=variable) as port:
            yield port


def _make_user() -> tuple[str, str]:
    """The demo's administrator: a new password and token each time, shown once."""
    password = secrets.token_urlsafe(12)
    user, _ = User.objects.get_or_create(username=USER)
    user.is_staff = user.is_superuser = True
    user.set_password(password)
    user.save()
    # It may sign as far as its scopes go; what it started it may not sign all the same.
    scopes = [READ, RUNS_WRITE, APPROVALS_DECIDE]
    token = issue_token(user=user, name=f"demo {secrets.token_hex(4)}", scopes=scopes).secret
    connections.close_all()
    return password, token


def _make_approver() -> str:
    """Somebody of the finance group, who did not start the runs: a new password each time."""
    password = secrets.token_urlsafe(12)
    user, _ = User.objects.get_or_create(username=APPROVER)
    user.is_staff = True
    user.set_password(password)
    user.save()
    user.groups.add(Group.objects.get_or_create(name="finance")[0])
    user.user_permissions.set(Permission.objects.filter(codename__in=APPROVER_MAY))
    connections.close_all()
    return password


def _log_to(ending: ExitStack) -> Any:
    """The processes' own lines go to a file: the screen is for the story."""
    path = settings.AGENTOPS_DATA_DIR / "demo" / "stack.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    log = ending.enter_context(path.open("a", encoding="utf-8"))
    return lambda name, line: print(f"{name:<8} | {line}", file=log, flush=True)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
