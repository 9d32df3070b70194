"""`list_incidents`: what should not have happened, newest first, and every duplicate counted."""

from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.management.base import KernelCommand, add_limit, as_json, checked_limit
from runs.models import Incident
from runs.presenting import present_incident
from runs.queries import duplicate_counts, find_incidents
from runs.tables import incidents_table, say_counts


class Command(KernelCommand):
    help = (
        "List incidents, newest first, and count the duplicates that were prevented "
        "(replays, refused repeats) or that were not."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        kinds = ", ".join(Incident.Kind.values)
        parser.add_argument("--kind", help=f"only incidents of this kind: {kinds}")
        parser.add_argument("--run", help="only incidents of this run")
        add_limit(parser, default=50, of="incidents")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        limit = checked_limit(options["limit"])
        found = list(find_incidents(kind=options["kind"], run=options["run"])[: limit + 1])
        incidents = [present_incident(one) for one in found[:limit]]
        counts = duplicate_counts()
        if self.as_json:
            self.show_json(
                {"incidents": [as_json(one) for one in incidents], "counts": as_json(counts)}
            )
            return
        if incidents:
            self.show_table(incidents_table(incidents))
        else:
            self.say("No incident matches.")
        if len(found) > limit:
            self.say(f"There are more; these are the newest {limit}.")
        self.say(f"In all runs — {say_counts(counts)}")
