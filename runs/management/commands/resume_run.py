"""`resume_run`: let a paused run go on."""

from typing import Any

from django.core.management.base import CommandParser

from runs.commands import resume_run
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_run
from runs.queries import parse_run_id


class Command(KernelCommand):
    help = "Let a paused run go on from what is recorded."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")

    def act(self, options: dict[str, Any]) -> None:
        run = present_run(resume_run(actor=self.actor, run_id=parse_run_id(options["run"])))
        if self.as_json:
            self.show_json(as_json(run))
        else:
            self.say(f"Run {run.id} goes on; it is {run.state}.")
