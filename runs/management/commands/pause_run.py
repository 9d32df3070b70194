"""`pause_run`: ask a run to stand still."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runs.commands import pause_run
from runs.management.base import RunCommand, add_reason
from runs.models import AgentRun
from runs.shapes import Run


class Command(RunCommand):
    help = "Ask for no further step and no new call; what may be under way is still settled."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_reason(parser)

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        return pause_run(actor=self.actor, run_id=run_id, reason=options["reason"])

    def describe(self, run: Run) -> str:
        return f"Run {run.id} is {run.state}, and paused; `resume_run {run.id}` lets it go on."
