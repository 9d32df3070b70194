"""`list_runs`: what runs there are, newest first."""

from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit
from runs.paging import read_newest_first
from runs.presenting import present_runs
from runs.queries import find_runs, parse_label
from runs.tables import runs_table


class Command(KernelCommand):
    help = "List runs, newest first."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--state", help="only runs in this state")
        parser.add_argument("--agent", help="only runs of this agent")
        parser.add_argument(
            "--label", action="append", default=[], metavar="NAME=VALUE", help="may be repeated"
        )
        parser.add_argument(
            "--uncertain",
            action="store_true",
            help="only runs with an effect that may or may not have happened",
        )
        parser.add_argument("--parent", metavar="RUN", help="only runs that this one started")
        add_limit(parser, default=50, of="runs")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        found = find_runs(
            state=options["state"],
            agent=options["agent"],
            labels=dict(parse_label(one, separator="=") for one in options["label"]),
            uncertain=True if options["uncertain"] else None,
            parent=options["parent"],
        )
        page = read_newest_first(found, cursor=None, size=checked_limit(options["limit"]))
        runs = present_runs(page.items)
        self.show(runs, runs_table(runs))
        if not runs:
            self.say("No run matches; start_run starts one.")
        if page.next:
            self.say(f"There are more; these are the newest {len(runs)}.")
