"""`worker_ended`: say that worker processes have ended, which nobody here could see."""

from typing import Any

from django.core.management.base import CommandParser

from runs.management.base import KernelCommand
from runs.worker_ends import end_workers


class Command(KernelCommand):
    help = (
        "Say that workers have ended: their machine is off, their container is gone. A call that "
        "they sent may then be sent again, so be sure: one that only stands still would still act."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("worker", nargs="*", help="names, as list_workers shows them")
        parser.add_argument("--host", help="also every worker of this host without an end")
        parser.add_argument("--evidence", required=True, help="how you know; it is kept")
        parser.add_argument(
            "--even-if-alive",
            action="store_true",
            help="also if it was seen within the last lease (AGENTOPS_LEASE_SECONDS)",
        )

    def act(self, options: dict[str, Any]) -> None:
        said = end_workers(
            actor=self.actor,
            names=options["worker"],
            host=options["host"],
            evidence=options["evidence"],
            even_if_alive=options["even_if_alive"],
        )
        if self.as_json:
            self.show_json(
                {"ended": said.ended, "already_ended": said.already_ended, "due": said.due}
            )
            return
        for name in said.ended:
            self.say(f"{name} has ended.")
        for name in said.already_ended:
            self.say(f"{name} had ended already; nothing is changed.")
        if not said.ended and not said.already_ended:
            self.say("Every worker of that host is known to have ended.")
        if said.due:
            self.say(f"Unknown operations of theirs, due to be looked up now: {len(said.due)}")
            for operation_id in said.due:
                self.say(operation_id)
