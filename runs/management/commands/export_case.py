"""`export_case`: write a run as a case that an agent can be tried against."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from runs.access import READ
from runs.cases.exporting import export_case
from runs.cases.files import render_case, write_case
from runs.cases.shapes import Case
from runs.management.base import KernelCommand
from runs.queries import parse_run_id


class Command(KernelCommand):
    help = (
        "Write what a run's agent was shown and decided as a case of Pydantic Evals. Without "
        "--output it is printed, as YAML. Sensitive values are left out; everything else is what "
        "the run holds: look at it before you hand it on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")
        parser.add_argument("--output", metavar="FILE", help="a new file: .yaml, .yml or .json")
        parser.add_argument(
            "--through", type=int, metavar="STEP", help="leave out what came after this step"
        )

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        case = export_case(run_id=parse_run_id(options["run"]), through=options["through"])
        if options["output"] is None:
            # Not for `say`, which bounds what it prints.
            self.stdout.write(render_case(case, "json" if self.as_json else "yaml"), ending="")
            return
        path = Path(options["output"])
        write_case(case, path)
        if self.as_json:
            self.show_json({"file": str(path), "name": case.name, "steps": len(case.inputs.steps)})
            return
        self.say(f"{path}: {_count(case)} of run {case.inputs.run}, agent {case.inputs.agent}.")
        for line in _say_left_out(case):
            self.say(line)
        self.say("Say under expected_output what is to be decided; replay_case compares.")


def _count(case: Case) -> str:
    steps = case.inputs.steps
    return f"step {steps[0].step}" if len(steps) == 1 else f"steps {steps[0].step}–{steps[-1].step}"


def _say_left_out(case: Case) -> list[str]:
    assert case.metadata is not None, "what was exported says where it comes from"
    left = case.metadata.left_out
    counted = {
        "earlier steps": left.steps,
        "earlier timeline entries": left.timeline,
        "parts of large values": left.values,
    }
    return [f"Left out: {count} {what}." for what, count in counted.items() if count]
