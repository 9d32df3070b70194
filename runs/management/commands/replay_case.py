"""`replay_case`: have today's agent decide a case again, and compare."""

from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from pydantic_core import to_jsonable_python

from runs.access import READ
from runs.agents import get_agent
from runs.cases import Replay, load_case, replay
from runs.cases.effects import reading_only
from runs.cases.shapes import Case
from runs.cases.telling import say_count, tell
from runs.deciders import Llm
from runs.errors import RunsError
from runs.management.base import KernelCommand, progress
from tools.redaction import bound_text

# As `diff` does it.
DIFFERENT: Final = 1
NOT_COMPARED: Final = 2


class Command(KernelCommand):
    help = (
        "Have today's agent decide each step of a case again and compare: exit 0 if all is as "
        "expected, 1 if not, 2 if that cannot be said. No tool is called and nothing is written. "
        "An agent that decides by an llm asks it, which costs money."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", help="what export_case wrote")
        parser.add_argument("--step", type=int, metavar="N", help="only this step")
        parser.add_argument("--llm", metavar="NAME", help="ask this llm in place of the agent's")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        try:
            case = load_case(options["file"])
            _warn_of_costs(case, step=options["step"], llm=options["llm"])
            # Also of threads that a decider leaves behind.
            with reading_only():
                replayed = replay(case, step=options["step"], llm=options["llm"])
        except RunsError as error:
            raise CommandError(bound_text(str(error)), returncode=NOT_COMPARED) from error
        if self.as_json:
            self.show_json(_to_json(replayed))
        else:
            self.stdout.write(tell(replayed))
        if not replayed.matches:
            raise CommandError(say_count(replayed), returncode=DIFFERENT)


def _warn_of_costs(case: Case, *, step: int | None, llm: str | None) -> None:
    decider = get_agent(case.inputs.agent).decider
    if isinstance(decider, Llm):
        count = len(case.inputs.steps) if step is None else 1
        name = llm or decider.name
        progress(f"asking {name} for {count} decision{'s' if count > 1 else ''}; this costs money")


def _to_json(replayed: Replay) -> dict[str, Any]:
    steps = [{**asdict(one), "verdict": one.verdict} for one in replayed.steps]
    plain = {**asdict(replayed), "steps": steps, "matches": replayed.matches}
    shown: dict[str, Any] = to_jsonable_python(plain)
    return shown
