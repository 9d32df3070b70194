"""`call_operation`: have a tool called once, as an agent that runs elsewhere does."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.errors import InvalidInput
from runs.gateway.accepting import Asked
from runs.gateway.calling import (
    LONGEST_WAIT,
    Called,
    call_operation,
    raise_if_unanswerable,
)
from runs.management.base import KernelCommand, as_json
from runs.presenting import present_call, present_operation
from runs.queries import parse_run_id
from runs.requests import read_json_option
from runs.shapes import Operation
from runs.state import OperationStatus


class Command(KernelCommand):
    help = (
        "Have a tool called once, however often this is repeated with the same --key. A worker "
        "carries it out. Exit 0 only if it is committed, or without --wait accepted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tool", help="a name that list_tools shows")
        parser.add_argument(
            "--arguments", metavar="JSON|@FILE", help="a JSON object; @FILE reads one"
        )
        parser.add_argument(
            "--key", required=True, help="names the call: with it, it is answered and not repeated"
        )
        parser.add_argument("--run", metavar="ID", help="a run of an external agent to be part of")
        parser.add_argument("--thread", metavar="NAME", help="your own name for such a run")
        parser.add_argument("--step", type=int, help="with --action, names the call in its run")
        parser.add_argument("--action", help="with --step, names the call in its run")
        parser.add_argument("--agent", help="in whose name a run is started; external if left out")
        parser.add_argument(
            "--wait",
            type=float,
            metavar="SECONDS",
            default=0.0,
            help=f"wait so long, {LONGEST_WAIT:g} at most, until it is settled",
        )

    def act(self, options: dict[str, Any]) -> None:
        wait = options["wait"]
        if not 0 <= wait <= LONGEST_WAIT:
            raise InvalidInput(
                field="--wait", value=str(wait), fix=f"Give seconds from 0 to {LONGEST_WAIT:g}."
            )
        given = options["arguments"]
        asked = Asked(
            tool=options["tool"],
            arguments=read_json_option(given, option="--arguments") if given is not None else {},
            key=options["key"],
            run=parse_run_id(options["run"]) if options["run"] is not None else None,
            thread=options["thread"],
            step=options["step"],
            action=options["action"],
            agent=options["agent"],
        )
        called = call_operation(actor=self.actor, asked=asked, wait_seconds=wait)
        raise_if_unanswerable(called)
        shown = _present(called)
        if self.as_json:
            self.show_json(as_json(shown))
        else:
            again = " (this key was used before)" if called.replayed else ""
            self.say(f"Operation {shown.operation_id} of run {shown.run} is {shown.status}{again}.")
            if shown.status == OperationStatus.COMMITTED:
                self.say(f"Result: {shown.result}")
        is_over = called.is_settled or wait > 0
        if is_over and shown.status != OperationStatus.COMMITTED:
            why = f": {shown.error}" if shown.error else ""
            raise CommandError(
                f"Operation {shown.operation_id} is {shown.status}{why}; "
                f"`inspect_run {shown.run}` tells the story."
            )


def _present(called: Called) -> Operation:
    if called.operation is not None:
        return present_operation(called.operation)
    return present_call(called.call)
