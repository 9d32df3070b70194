"""`cancel_run`: ask a run to end."""

from typing import Any

from django.core.management.base import CommandParser

from runs.commands import cancel_run
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_run
from runs.queries import parse_run_id
from runs.state import RunState


class Command(KernelCommand):
    help = "Ask for a run to be cancelled; an effect under way or unknown is settled first."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")

    def act(self, options: dict[str, Any]) -> None:
        run = present_run(cancel_run(actor=self.actor, run_id=parse_run_id(options["run"])))
        if self.as_json:
            self.show_json(as_json(run))
        elif run.state is RunState.CANCELLED:
            self.say(f"Run {run.id} is cancelled.")
        else:
            self.say(f"Run {run.id} is {run.state}; it will be cancelled at its next commit.")
