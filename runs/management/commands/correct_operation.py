"""`correct_operation`: say that an effect was corrected by hand."""

from typing import Any

from django.core.management.base import CommandParser

from runs.corrections import correct_by_hand
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_operation
from runs.queries import get_operation


class Command(KernelCommand):
    help = (
        "Say that what an operation did was corrected outside of its run, so that no compensation "
        "is sent for it. A run that waits for this goes on. Look at the provider first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "operation",
            metavar="OPERATION_ID",
            help="what had the effect, or its compensation that came to nothing",
        )
        parser.add_argument(
            "--evidence", required=True, help="how it was corrected; it stands in the timeline"
        )

    def act(self, options: dict[str, Any]) -> None:
        target = correct_by_hand(
            actor=self.actor, operation_id=options["operation"], evidence=options["evidence"]
        )
        corrected = present_operation(get_operation(target.pk))
        if self.as_json:
            self.show_json(as_json(corrected))
            return
        self.say(f"Operation {corrected.operation_id} is corrected, by your word.")
        self.say(f"`inspect_run {corrected.run}` tells the story.")
