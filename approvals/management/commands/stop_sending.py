"""`stop_sending`: have nothing sent by a tool, a provider, or at all."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.policies import say_target, stop_sending
from approvals.policy_shapes import present_stop
from runs.management.base import KernelCommand, as_json


class Command(KernelCommand):
    help = (
        "Stop sending now: calls of one tool, of one provider, or all of them wait until "
        "resume_sending. What was sent before is sent; looking up goes on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_target(parser)

    def act(self, options: dict[str, Any]) -> None:
        row = stop_sending(
            actor=self.actor,
            tool=options["tool"],
            provider=options["provider"],
            everything=options["everything"],
            reason=options["reason"],
        )
        if self.as_json:
            self.show_json(as_json(present_stop(row)))
        else:
            self.say(f"Sending is stopped for {say_target(row)}.")


def add_target(parser: CommandParser) -> None:
    """What is stopped or resumed, and why."""
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--tool", default="", help="calls of this tool")
    target.add_argument("--provider", default="", help="calls of this provider's tools")
    target.add_argument("--everything", action="store_true", help="every call of every tool")
    parser.add_argument("--reason", required=True, help="why; it is kept")
