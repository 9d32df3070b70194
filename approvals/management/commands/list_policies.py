"""`list_policies`: what operators have written, and what is stopped now."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.policies import (
    UnknownPolicy,
    current_policies,
    current_stops,
    find_policy,
    history_of,
)
from approvals.policy_shapes import (
    history_table,
    policies_table,
    present_policy,
    present_stop,
    stops_table,
)
from runs.access import READ
from runs.management.base import KernelCommand, as_json


class Command(KernelCommand):
    help = "List the policies that count, and what sending is stopped for."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="retired ones too")
        parser.add_argument("--history", metavar="NAME", help="every version of one policy")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        if options["history"] is not None:
            self._show_history(options["history"])
            return
        rows, stops = current_policies(retired=options["all"]), current_stops()
        if self.as_json:
            self.show_json(
                {
                    "policies": [as_json(present_policy(row)) for row in rows],
                    "stopped": [as_json(present_stop(row)) for row in stops],
                }
            )
            return
        if stops:
            self.show_table(stops_table(stops))
            self.say("")
        self.show_table(policies_table(rows))
        if not rows:
            self.say("No policy: every tool's own approval_policy decides.")

    def _show_history(self, name: str) -> None:
        if find_policy(name) is None:
            raise UnknownPolicy(name=name)
        rows = history_of(name)
        self.show([present_policy(row) for row in rows], history_table(rows))
