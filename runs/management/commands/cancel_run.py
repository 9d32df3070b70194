"""`cancel_run`: ask a run to end."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from runs.commands import cancel_run
from runs.management.base import RunCommand, add_reason
from runs.models import AgentRun
from runs.shapes import Run
from runs.state import RunState


class Command(RunCommand):
    help = "Ask for a run to be cancelled; an effect under way or unknown is settled first."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--compensate", action="store_true", help="correct what it did before it ends"
        )
        add_reason(parser)

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        return cancel_run(
            actor=self.actor,
            run_id=run_id,
            compensate=options["compensate"],
            reason=options["reason"],
        )

    def describe(self, run: Run) -> str:
        if run.state is RunState.CANCELLED:
            return f"Run {run.id} is cancelled."
        return f"Run {run.id} is {run.state}; it will be cancelled at its next commit."
