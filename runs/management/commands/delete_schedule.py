"""`delete_schedule`: forget a schedule."""

from typing import Any

from django.core.management.base import CommandParser

from runs.management.base import KernelCommand, as_json
from runs.schedule_commands import delete_schedule, get_schedule
from runs.schedule_shapes import present_schedule


class Command(KernelCommand):
    help = "Delete a schedule. Its runs stay. To keep it for later, disable it: save_schedule."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="as list_schedules shows it")

    def act(self, options: dict[str, Any]) -> None:
        shown = present_schedule(get_schedule(options["name"]))
        delete_schedule(actor=self.actor, name=options["name"])
        if self.as_json:
            self.show_json(as_json(shown))
        else:
            self.say(f"Deleted {shown.name}; its runs stay.")
