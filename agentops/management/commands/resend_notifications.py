"""`resend_notifications`: send again what was given up, or what a receiver lost."""

from typing import Any

from django.core.management.base import CommandParser

from agentops.models import Delivery
from agentops.notifications.resending import resend
from runs.access import RUNS_WRITE
from runs.errors import InvalidInput
from runs.management.base import KernelCommand
from runs.queries import parse_run_id


class Command(KernelCommand):
    help = (
        "Send notifications again, under the same event ids: those that were given up, or with "
        "--run or --event also those that were taken. They leave with the next sweep."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--failed", action="store_true", help="all that were given up")
        parser.add_argument("--run", metavar="RUN_ID", help="all of this run")
        parser.add_argument("--event", metavar="EVENT_ID", help="all of this event")
        parser.add_argument(
            "--channel", choices=Delivery.Channel.values, help="only by this channel"
        )

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(RUNS_WRITE)
        if not (options["failed"] or options["run"] or options["event"]):
            raise InvalidInput(
                field="--failed", value="", fix="Say which: --failed, --run RUN_ID or --event ID."
            )
        chosen = Delivery.objects.all()
        if options["failed"]:
            chosen = chosen.filter(status=Delivery.Status.FAILED)
        if options["run"]:
            chosen = chosen.filter(notice__run_id=parse_run_id(options["run"]))
        if options["event"]:
            chosen = chosen.filter(notice__event_id=_storable(options["event"]))
        if options["channel"]:
            chosen = chosen.filter(channel=options["channel"])
        count = resend(chosen)
        if self.as_json:
            self.show_json({"resent": count})
            return
        self.say(f"{count} to be sent again." if count else "Nothing matches that has ended.")


def _storable(event: str) -> str:
    if "\0" in event:
        raise InvalidInput(field="--event", value=event, fix="Leave out the NUL.")
    return event
