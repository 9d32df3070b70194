"""`finish_run`: end a run whose agent runs elsewhere."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runs.gateway.calling import finish_run
from runs.management.base import RunCommand
from runs.models import AgentRun
from runs.requests import read_json_option
from runs.shapes import Run


class Command(RunCommand):
    help = "Say that a run of an agent elsewhere has reached its goal, or why it will not."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--result", metavar="JSON|@FILE", help="any JSON value")
        parser.add_argument("--error", default="", help="why it will not reach its goal")

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        return finish_run(
            actor=self.actor,
            run_id=run_id,
            result=read_json_option(options["result"], option="--result"),
            error=options["error"],
        )

    def describe(self, run: Run) -> str:
        return f"Run {run.id} ends after what it was asked for before; it is {run.state}."
