"""`start_run`: start a run, and wait for it if asked to."""

import time
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from runs.commands import start_run
from runs.errors import InvalidInput
from runs.management.base import KernelCommand, as_json, progress
from runs.models import AgentRun
from runs.presenting import present_run
from runs.queries import parse_label
from runs.requests import read_json
from runs.state import PERSON_STATES, RunState

POLL_SECONDS: Final = 0.2


class Command(KernelCommand):
    help = "Start a run. With --wait, exit 0 only if it completed."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("agent", help="a name that list_agents shows")
        parser.add_argument("--objective", default="", help="the goal in words")
        parser.add_argument("--input", metavar="JSON|@FILE", help="any JSON value; @FILE reads one")
        parser.add_argument(
            "--label", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
        )
        parser.add_argument(
            "--priority", type=int, help="-100 to 100, higher goes first; the agent's if left out"
        )
        parser.add_argument("--idempotency-key", help="sent again with it, it is the same run")
        parser.add_argument("--wait", action="store_true", help="until the run has ended")
        parser.add_argument(
            "--timeout", type=float, metavar="SECONDS", help="how long --wait waits at most"
        )

    def act(self, options: dict[str, Any]) -> None:
        started = start_run(
            actor=self.actor,
            agent=options["agent"],
            objective=options["objective"],
            input=_read_input(options["input"]),
            labels=dict(parse_label(one, separator="=") for one in options["label"]),
            priority=options["priority"],
            idempotency_key=options["idempotency_key"],
        )
        run = started.run
        if options["wait"]:
            progress(f"run {run.id} of {run.agent}")
            run = _wait_for_end(run.id, timeout=options["timeout"])
        shown = present_run(run)
        if self.as_json:
            self.show_json(as_json(shown))
        else:
            again = " (it already existed under this key)" if started.replayed else ""
            self.say(f"Run {run.id} is {run.state}{again}.")
            if run.state == RunState.COMPLETED:
                self.say(f"Result: {shown.result}")
        if options["wait"] and run.state != RunState.COMPLETED:
            why = f": {shown.error}" if shown.error else ""
            raise CommandError(
                f"Run {run.id} is {run.state}{why}; `inspect_run {run.id}` tells the story."
            )


def _read_input(given: str | None) -> Any:
    if given is None:
        return None
    if not given.startswith("@"):
        return read_json(given, field="--input")
    try:
        text = Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(
            field="--input",
            value=ascii(given[:80]),
            fix=f"It cannot be read: {error.strerror}.",
        ) from error
    return read_json(text, field="--input")


def _wait_for_end(run_id: UUID, *, timeout: float | None) -> AgentRun:
    """The run once it is final, or as it stands when the time is over."""
    ends = None if timeout is None else time.monotonic() + timeout
    shown = ""
    while True:
        run = AgentRun.objects.get(id=run_id)
        now = f"step {run.step_number}: {run.state}"
        if run.state in PERSON_STATES:
            now += " (a person has to act)"
        if now != shown:
            progress(now)
            shown = now
        if run.finished_at is not None or (ends is not None and time.monotonic() >= ends):
            return run
        time.sleep(POLL_SECONDS)
