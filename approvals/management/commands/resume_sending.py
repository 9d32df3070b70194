"""`resume_sending`: lift a stop."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.management.commands.stop_sending import add_target
from approvals.policies import resume_sending, say_target
from runs.management.base import KernelCommand


class Command(KernelCommand):
    help = "Let sending go on that stop_sending stopped; runs that waited are looked at now."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_target(parser)

    def act(self, options: dict[str, Any]) -> None:
        resumed = resume_sending(
            actor=self.actor,
            tool=options["tool"],
            provider=options["provider"],
            everything=options["everything"],
            reason=options["reason"],
        )
        if self.as_json:
            self.show_json(
                {
                    "tool": resumed.row.tool or None,
                    "provider": resumed.row.provider or None,
                    "everything": options["everything"],
                    "runs_made_due": resumed.woken,
                }
            )
        else:
            self.say(
                f"Sending goes on for {say_target(resumed.row)}. "
                f"Runs that are looked at now: {resumed.woken}."
            )
