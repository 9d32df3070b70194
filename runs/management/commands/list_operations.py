"""`list_operations`: intended external effects, newest first."""

from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit
from runs.paging import read_newest_first
from runs.presenting import present_operation
from runs.queries import find_operations
from runs.tables import operations_table


class Command(KernelCommand):
    help = "List operations, newest first; `--status unknown` shows the uncertain ones."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--status", help="only operations in this status")
        parser.add_argument("--run", help="only operations of this run")
        parser.add_argument("--tool", help="only operations of this tool")
        add_limit(parser, default=50, of="operations")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        found = find_operations(status=options["status"], run=options["run"], tool=options["tool"])
        page = read_newest_first(found, cursor=None, size=checked_limit(options["limit"]))
        operations = [present_operation(one) for one in page.items]
        self.show(operations, operations_table(operations))
        if not operations:
            self.say("No operation matches.")
        if page.next:
            self.say(f"There are more; these are the newest {len(operations)}.")
