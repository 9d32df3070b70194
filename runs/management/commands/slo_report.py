"""`slo_report`: how well what was promised is kept, and what that leaves of the error budget."""

from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.management.base import KernelCommand
from runs.slo import windows
from runs.slo.report import build_report
from runs.slo.tables import counts_table, indicators_table, say_counted


class Command(KernelCommand):
    help = (
        "Show service levels over a window: objectives, error budgets and how fast they burn, "
        "and what was counted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--window",
            default=windows.DEFAULT,
            help=f"hours or days back: {', '.join(windows.OFFERED)} (default {windows.DEFAULT})",
        )
        parser.add_argument("--by", help="also by agent, version or tool")
        parser.add_argument("--agent", help="only this agent's runs")
        parser.add_argument("--tool", help="only this tool's operations")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        report = build_report(**{name: options[name] for name in ("window", "by", "agent", "tool")})
        self.show(report, indicators_table(report))
        if not self.as_json:
            self.show_table(counts_table(report))
            self.say(say_counted(report))
