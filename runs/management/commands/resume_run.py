"""`resume_run`: let a paused run go on, with more to spend if it needs that."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runs.commands import Raise, resume_run
from runs.management.base import RunCommand
from runs.models import AgentRun
from runs.shapes import Run


class Command(RunCommand):
    help = "Let a paused run go on from what is recorded."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        more = parser.add_argument_group("what it may spend beside its budget")
        more.add_argument("--add-steps", type=int, default=0, metavar="N")
        more.add_argument("--add-tokens", type=int, default=0, metavar="N")
        more.add_argument("--add-cost-usd", default="0", metavar="USD")
        more.add_argument(
            "--add-seconds",
            type=int,
            default=0,
            metavar="N",
            help="from now, if its time is over already",
        )

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        more = Raise(
            steps=options["add_steps"],
            tokens=options["add_tokens"],
            cost_usd=options["add_cost_usd"],
            seconds=options["add_seconds"],
        )
        return resume_run(actor=self.actor, run_id=run_id, add=more)

    def describe(self, run: Run) -> str:
        return f"Run {run.id} goes on; it is {run.state}."
