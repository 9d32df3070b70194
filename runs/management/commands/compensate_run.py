"""`compensate_run`: have what a run did corrected."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runs.commands import compensate_run
from runs.management.base import RunCommand, add_reason
from runs.models import AgentRun
from runs.shapes import Run
from runs.state import RunState


class Command(RunCommand):
    help = "Have a run's committed effects corrected, newest first; an active run ends with that."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_reason(parser)

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        return compensate_run(actor=self.actor, run_id=run_id, reason=options["reason"])

    def describe(self, run: Run) -> str:
        if run.state is RunState.COMPENSATING:
            return f"Run {run.id} corrects what it did; `inspect_run {run.id}` tells how it goes."
        return f"Run {run.id} is {run.state}; it corrects what it did from its next commit on."
