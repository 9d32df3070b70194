"""`resolve_operation`: settle an unknown operation by a person's word."""

from typing import Any, get_args

from django.core.management.base import CommandParser

from runs.management.base import KernelCommand, as_json
from runs.presenting import present_operation
from runs.queries import get_operation
from runs.requests import read_json_option
from runs.resolution import Outcome, resolve_operation


class Command(KernelCommand):
    help = (
        "Say what became of an unknown operation. `committed`: it happened; `not_committed`: it "
        "did not, and is sent again with the same id; `rejected`: it did not and must not. "
        "Look at inspect_run and at the provider first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("operation", metavar="OPERATION_ID", help="as list_operations shows it")
        parser.add_argument("--outcome", required=True, help=" or ".join(get_args(Outcome)))
        parser.add_argument(
            "--evidence", required=True, help="how you know; it stands in the journal"
        )
        parser.add_argument(
            "--external-ref", default="", metavar="REF", help="the provider's name of the effect"
        )
        parser.add_argument(
            "--result", metavar="JSON|@FILE", help="what the tool would have returned"
        )

    def act(self, options: dict[str, Any]) -> None:
        resolve_operation(
            actor=self.actor,
            operation_id=options["operation"],
            outcome=options["outcome"],
            evidence=options["evidence"],
            external_ref=options["external_ref"],
            result=read_json_option(options["result"], option="--result"),
        )
        settled = present_operation(get_operation(options["operation"]))
        if self.as_json:
            self.show_json(as_json(settled))
            return
        self.say(f"Operation {settled.operation_id} is {settled.status}.")
        self.say(f"Run {settled.run} goes on; `inspect_run {settled.run}` tells the story.")
