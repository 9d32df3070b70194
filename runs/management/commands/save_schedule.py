"""`save_schedule`: write a schedule, enable or disable it."""

from dataclasses import replace
from typing import Any

from django.core.management.base import CommandParser

from runs.errors import InvalidInput, UnknownSchedule
from runs.management.base import KernelCommand, as_json
from runs.models import Schedule
from runs.queries import parse_label
from runs.requests import read_json_option
from runs.schedule_commands import get_schedule, save_schedule
from runs.schedule_shapes import present_schedule
from runs.schedule_text import ScheduleText
from runs.tables import show_time


class Command(KernelCommand):
    help = "Write a schedule. Of one that exists, what is not given stays as it is."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="small letters, digits, - and _")
        parser.add_argument("--agent", help="a name that list_agents shows")
        parser.add_argument(
            "--cron", help="such as '30 2 * * *': minute, hour, day, month, weekday"
        )
        parser.add_argument("--time-zone", help="an IANA name, such as Europe/Berlin (UTC)")
        parser.add_argument(
            "--catch-up",
            choices=Schedule.CatchUp.values,
            help="which slots are started that were missed while nothing ran (latest)",
        )
        parser.add_argument("--objective", help="the goal in words")
        parser.add_argument("--input", metavar="JSON|@FILE", help="any JSON value; @FILE reads one")
        parser.add_argument(
            "--label", action="append", metavar="NAME=VALUE", help="may be repeated; replaces all"
        )
        parser.add_argument("--priority", help="-100 to 100, higher goes first; or agent: its own")
        switch = parser.add_mutually_exclusive_group()
        switch.add_argument("--enable", action="store_true", default=None, help="start runs")
        switch.add_argument("--disable", action="store_true", help="start none")

    def act(self, options: dict[str, Any]) -> None:
        name = options["name"]
        try:
            before = get_schedule(name)
        except UnknownSchedule:
            before = None
        row = save_schedule(
            actor=self.actor,
            name=name,
            text=_text_from(options, before),
            based_on=before.version if before else 0,
        )
        if self.as_json:
            self.show_json(as_json(present_schedule(row)))
        else:
            starts = f"it starts next at {show_time(row.next_at)}" if row.enabled else "disabled"
            self.say(f"Saved {row.name}: {starts}.")


def _text_from(options: dict[str, Any], before: Schedule | None) -> ScheduleText:
    if before is None:
        for option in ("agent", "cron"):
            if options[option] is None:
                raise InvalidInput(
                    field=f"--{option}", value="none", fix="A new schedule needs one."
                )
    text = (
        ScheduleText(agent=options["agent"], cron=options["cron"])
        if before is None
        else ScheduleText.of(before)
    )
    plain = ("agent", "cron", "time_zone", "catch_up", "objective")
    given = {name: options[name] for name in plain if options[name] is not None}
    if options["priority"] is not None:
        given["priority"] = _priority(options["priority"])
    if options["input"] is not None:
        given["input"] = read_json_option(options["input"], option="--input")
    if options["label"] is not None:
        given["labels"] = dict(parse_label(one, separator="=") for one in options["label"])
    if options["enable"] or options["disable"]:
        given["enabled"] = not options["disable"]
    return replace(text, **given)


def _priority(given: str) -> int | None:
    if given == "agent":
        return None
    try:
        return int(given)
    except ValueError as error:
        raise InvalidInput(
            field="--priority", value=ascii(given[:80]), fix="Give a whole number, or agent."
        ) from error
