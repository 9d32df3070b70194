"""Run the whole stack in the foreground until Ctrl-C.

Guarantees that one Ctrl-C or SIGTERM ends everything in order (workers first), a second
one at once, and that nothing keeps running when this process is killed.
"""

import json
import os
import secrets
import signal
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TextIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from agentops.embedded import EmbeddedError, Stack
from agentops.exits import WorkerExits
from agentops.ports import PortUnusable
from agentops.processes import LOOPBACK, stack_processes
from agentops.stack import await_port, child_environment, migrate, require_ports, start_servers
from agentops.supervisor import Ended, Supervisor

_LOOK_SECONDS = 2.0
# Bright enough on light and dark grounds; red is left for trouble.
_COLOURS = (36, 32, 35, 34, 33)


class Command(BaseCommand):
    help = "Start servers (unless yours are given), migrate, run web, workers, beat and Flower."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--workers", type=int, default=1, help="worker processes (default 1)")
        parser.add_argument("--host", default=LOOPBACK, help="address of the web process")
        parser.add_argument("--no-flower", action="store_true", help="leave Flower out")
        parser.add_argument("--json", action="store_true", help="one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        host, workers, flower = options["host"], options["workers"], not options["no_flower"]
        if workers < 0:
            raise CommandError(f"--workers must not be negative, got {workers}.")
        show = _Lines(sys.stdout, as_json=options["json"])
        try:
            require_ports(host=host, flower=flower)
            with ExitStack() as ending:
                interrupt = ending.enter_context(_interrupts())
                stack = start_servers(ending, say=partial(show, "up"))
                migrate(say=partial(show, "up"))
                given = os.environ.get("FLOWER_BASIC_AUTH")
                login = given or f"operator:{secrets.token_urlsafe(12)}"
                exits = ending.enter_context(WorkerExits(on_trouble=partial(show, "up")))

                def settle(ended: Ended) -> None:
                    exits.note_end(ended)
                    _report(ended, show=show)

                supervisor = Supervisor(
                    stack_processes(
                        data_dir=settings.AGENTOPS_DATA_DIR,
                        port=settings.PORT,
                        flower_port=settings.FLOWER_PORT,
                        host=host,
                        workers=workers,
                        flower=flower,
                        environment=child_environment(flower_login=login),
                    ),
                    on_line=show,
                    on_start=exits.note_start,
                    on_end=settle,
                )
                supervisor.start()
                ending.callback(supervisor.stop)
                interrupt.supervise(supervisor)
                await_port(settings.PORT, host=host, stop=interrupt.asked.is_set)
                show("up", f"web: http://{_name(host)}:{settings.PORT}/admin/")
                if flower:
                    known = "the login of FLOWER_BASIC_AUTH" if given else f"login {login}"
                    show("up", f"Flower: http://{LOOPBACK}:{settings.FLOWER_PORT}/, {known}")
                show("up", "Ctrl-C stops everything")
                _watch(interrupt, supervisor=supervisor, stack=stack, show=show)
        except KeyboardInterrupt:
            show("up", "interrupted while starting")
        except (EmbeddedError, PortUnusable) as error:
            raise CommandError(str(error)) from error
        show("up", "stopped")


class _Interrupts:
    """What signals mean: before `supervise()` an exception, then a request, then impatience."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._supervisor: Supervisor | None = None

    def supervise(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def handle(self, number: int, frame: object) -> None:
        if self._supervisor is None:
            raise KeyboardInterrupt
        if self.asked.is_set():
            self._supervisor.kill()
        self.asked.set()


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    interrupts = _Interrupts()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupts.handle) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(
    interrupt: _Interrupts, *, supervisor: Supervisor, stack: Stack | None, show: "_Lines"
) -> None:
    while not interrupt.asked.wait(_LOOK_SECONDS):
        if supervisor.wait(0):
            # Only its own failure ends it; wait() has raised that.
            return
        if stack is not None and stack.revive():
            show("up", "an embedded server was killed with its keeper; it runs again")
    show("up", "stopping, workers first; Ctrl-C again ends everything at once")


def _report(ended: Ended, *, show: "_Lines") -> None:
    if ended.restart_in is None:
        show("up", f"{ended.name} has stopped")
    else:
        show("up", str(ended), trouble=True)


def _name(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Lines:
    """Prints lines with the name of the process that said them; safe for hostile text."""

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json
        self._coloured = out.isatty() and "NO_COLOR" not in os.environ
        self._names: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, name: str, line: str, *, trouble: bool = False) -> None:
        if not line.strip():
            return
        with self._lock:
            text = self._json(name, line) if self._as_json else self._text(name, line, trouble)
            print(text, file=self._out, flush=True)

    def _json(self, name: str, line: str) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return json.dumps({"at": at, "process": name, "line": line})

    def _text(self, name: str, line: str, trouble: bool) -> str:
        if name not in self._names:
            self._names.append(name)
        prefix = f"{name:<8} |"
        if self._coloured:
            shade = 31 if trouble else _COLOURS[self._names.index(name) % len(_COLOURS)]
            prefix = f"\x1b[{shade}m{prefix}\x1b[0m"
        return f"{prefix} {_harmless(line)}"


def _harmless(line: str) -> str:
    """The line with everything that could drive a terminal made visible."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
