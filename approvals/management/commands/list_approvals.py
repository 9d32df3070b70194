"""`list_approvals`: what waits for a signature, and what became of what did."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.inbox import find_approvals, read_page
from approvals.management.base import find_user
from approvals.presenting import present_approval
from approvals.tables import approvals_table
from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit


class Command(KernelCommand):
    help = "List approvals: pending ones first, the nearest to its end on top."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--status", help="only approvals in this status, such as pending")
        parser.add_argument("--run", help="only approvals of this run")
        parser.add_argument("--tool", help="only approvals of this tool")
        parser.add_argument(
            "--mine-as", metavar="USERNAME", help="only what this user may sign now"
        )
        add_limit(parser, default=50, of="approvals")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        mine = options["mine_as"]
        found = find_approvals(
            status=options["status"],
            run=options["run"],
            tool=options["tool"],
            mine=find_user(mine, option="--mine-as") if mine is not None else None,
        )
        page = read_page(found, cursor=None, size=checked_limit(options["limit"]))
        approvals = [present_approval(one) for one in page.items]
        self.show(approvals, approvals_table(approvals))
        if not approvals:
            self.say("No approval matches.")
        if page.next:
            self.say(f"There are more; these are the first {len(approvals)}.")
