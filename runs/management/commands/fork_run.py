"""`fork_run`: start another run from what one had reached."""

from typing import Any

from django.core.management.base import CommandParser

from runs.commands import fork_run
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_run
from runs.queries import parse_label, parse_run_id
from runs.requests import read_json_option


class Command(KernelCommand):
    help = "Start a run that inherits another's steps up to one, without doing them again."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")
        parser.add_argument(
            "--step", type=int, required=True, help="a closed step; 0 is the beginning"
        )
        parser.add_argument("--objective", help="the goal in words; the origin's if left out")
        parser.add_argument(
            "--input", metavar="JSON|@FILE", help="any JSON value; the origin's if left out"
        )
        parser.add_argument(
            "--label", action="append", metavar="NAME=VALUE", help="may be repeated"
        )
        parser.add_argument("--idempotency-key", help="sent again with it, it is the same run")

    def act(self, options: dict[str, Any]) -> None:
        labels = options["label"]
        started = fork_run(
            actor=self.actor,
            run_id=parse_run_id(options["run"]),
            step=options["step"],
            objective=options["objective"],
            input=read_json_option(options["input"], option="--input"),
            labels=labels and dict(parse_label(one, separator="=") for one in labels),
            idempotency_key=options["idempotency_key"],
        )
        run = started.run
        if self.as_json:
            self.show_json(as_json(present_run(run)))
            return
        again = " (it already existed under this key)" if started.replayed else ""
        self.say(
            f"Run {run.id} goes on from step {run.forked_at_step} of {run.forked_from_id}{again}."
        )
