"""`reconcile`: ask now what happened to unknown operations."""

from typing import Any

from django.core.management.base import CommandParser

from runs.commands import reconcile_now
from runs.management.base import KernelCommand
from runs.queries import get_operation


class Command(KernelCommand):
    help = (
        "Make one unknown operation, or all of them, due for reconciliation now. "
        "Workers do the asking; list_operations shows what they found, and resolve_operation "
        "settles what cannot be found out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "operation", nargs="?", metavar="OPERATION_ID", help="all unknown ones if left out"
        )

    def act(self, options: dict[str, Any]) -> None:
        given = options["operation"]
        operation_id = get_operation(given).id if given is not None else None
        asked = reconcile_now(actor=self.actor, operation_id=operation_id)
        if self.as_json:
            self.show_json({"operations": asked})
        elif asked:
            self.say(f"Due for reconciliation now: {len(asked)}")
            for operation_id in asked:
                self.say(operation_id)
        else:
            self.say("No operation is unknown.")
