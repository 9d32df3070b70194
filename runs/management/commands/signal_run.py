"""`signal_run`: tell a run something."""

from typing import Any
from uuid import uuid4

from django.core.management.base import CommandParser

from runs.commands import signal_run
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_signal
from runs.queries import parse_run_id
from runs.requests import read_json_option


class Command(KernelCommand):
    help = "Send a run a signal; it is kept until the run waits for it."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")
        parser.add_argument("name", help="what a `WaitFor` of the run names")
        parser.add_argument(
            "--payload", metavar="JSON|@FILE", help="any JSON value; @FILE reads one"
        )
        parser.add_argument(
            "--event-id", help="names the event: sent again, it counts once; a new one if left out"
        )

    def act(self, options: dict[str, Any]) -> None:
        event_id = options["event_id"]
        sent = signal_run(
            actor=self.actor,
            run_id=parse_run_id(options["run"]),
            name=options["name"],
            event_id=str(uuid4()) if event_id is None else event_id,
            payload=read_json_option(options["payload"], option="--payload"),
        )
        signal = sent.signal
        if self.as_json:
            self.show_json(as_json(present_signal(signal, agent=sent.run.agent)))
            return
        again = " (it was sent before, and counts once)" if sent.replayed else ""
        self.say(f"Run {sent.run.id} has the signal {signal.name} {signal.event_id}{again}.")
