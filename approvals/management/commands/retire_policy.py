"""`retire_policy`: have a policy not count any more."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.policies import retire_policy
from approvals.policy_shapes import present_policy
from runs.management.base import KernelCommand, as_json


class Command(KernelCommand):
    help = "Retire a policy. Its versions stay; saving it again brings it back."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="as list_policies shows it")
        parser.add_argument("--reason", required=True, help="why; it is kept with the version")

    def act(self, options: dict[str, Any]) -> None:
        row = retire_policy(actor=self.actor, name=options["name"], reason=options["reason"])
        if self.as_json:
            self.show_json(as_json(present_policy(row)))
        else:
            self.say(f"Retired {row.name}; it counts no more.")
