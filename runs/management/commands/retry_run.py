"""`retry_run`: let a failed run go on from its last checkpoint."""

from typing import Any
from uuid import UUID

from runs.commands import retry_run
from runs.management.base import RunCommand
from runs.models import AgentRun
from runs.shapes import Run


class Command(RunCommand):
    help = "Let a failed run go on; what it committed is not done again."

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        return retry_run(actor=self.actor, run_id=run_id)

    def describe(self, run: Run) -> str:
        return f"Run {run.id} goes on; it is {run.state}."
