"""`list_schedules`: what is started by the clock, and what came of it last."""

from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.management.base import LARGEST_LIST, KernelCommand, add_limit, checked_limit
from runs.models import Schedule
from runs.schedule_shapes import present_schedule, schedules_table


class Command(KernelCommand):
    help = "List schedules by name."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_limit(parser, default=LARGEST_LIST, of="schedules")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        limit = checked_limit(options["limit"])
        rows = Schedule.objects.select_related("last_run").order_by("name")[: limit + 1]
        schedules = [present_schedule(row) for row in rows]
        self.show(schedules[:limit], schedules_table(schedules[:limit]))
        if not schedules:
            self.say("No schedule yet; save_schedule writes one.")
        if len(schedules) > limit:
            self.say(f"There are more; these are the first {limit}.")
