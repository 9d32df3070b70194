"""What the commands of this app share.

Guarantees: `--json` prints one JSON document and nothing else on standard output; a
condition that the kernel knows ends with its one sentence on standard error and exit
code 1, and never with a traceback.

Does not check who sits at the keyboard: a shell on the server may do everything.
"""

import json
import sys
from collections.abc import Sequence
from io import StringIO
from typing import Any, Final
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError
from pydantic import BaseModel
from rich.console import Console, RenderableType

from runs.access import Actor, operator
from runs.errors import InvalidInput, RunsError
from runs.models import AgentRun
from runs.presenting import present_run
from runs.queries import parse_run_id
from runs.shapes import Run
from runs.tables import printable
from tools.errors import ToolError
from tools.redaction import bound_text

LARGEST_LIST: Final = 500
WIDTH_WITHOUT_TERMINAL: Final = 200


class KernelCommand(BaseCommand):
    """A command that asks the kernel for something. Subclasses define `act`."""

    actor: Actor

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="print JSON for programs"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it; a known condition becomes a CommandError."""
        self.actor = operator()
        self.as_json = options.pop("as_json")
        try:
            self.act(options)
        except (RunsError, ToolError) as error:
            raise CommandError(bound_text(str(error))) from error
        except (OperationalError, InterfaceError) as error:
            raise CommandError(
                "database: it does not answer; is the stack up, or DATABASE_URL right? "
                f"({printable(str(error).strip())})"
            ) from error
        except ProgrammingError as error:
            raise CommandError(
                f"database: run `manage.py migrate` first ({printable(str(error).strip())})"
            ) from error

    def act(self, options: dict[str, Any]) -> None:
        """What the command does."""
        raise NotImplementedError

    def show(self, shape: BaseModel | Sequence[BaseModel], table: RenderableType) -> None:
        """Print `shape` as JSON if that was asked for, else `table`."""
        if self.as_json:
            self.show_json(
                as_json(shape) if isinstance(shape, BaseModel) else [as_json(one) for one in shape]
            )
        else:
            self.show_table(table)

    def show_json(self, value: Any) -> None:
        """Print one JSON document."""
        self.stdout.write(json.dumps(value, indent=2))

    def show_table(self, *tables: RenderableType) -> None:
        """Print tables, in colour on a terminal."""
        live = self.stdout.isatty()
        text = StringIO()
        console = Console(
            file=text, force_terminal=live, width=None if live else WIDTH_WITHOUT_TERMINAL
        )
        for table in tables:
            console.print(table)
        lines = (line.rstrip() for line in text.getvalue().splitlines())
        self.stdout.write("\n".join(lines))

    def say(self, text: str) -> None:
        """Print one line for people; nothing with `--json`."""
        if not self.as_json:
            self.stdout.write(printable(text))


class RunCommand(KernelCommand):
    """A command that asks something of one run. Subclasses define `ask` and `describe`."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("run", help="the run's id")

    def act(self, options: dict[str, Any]) -> None:
        run = present_run(self.ask(parse_run_id(options["run"]), options))
        if self.as_json:
            self.show_json(as_json(run))
        else:
            self.say(self.describe(run))

    def ask(self, run_id: UUID, options: dict[str, Any]) -> AgentRun:
        """Call the command."""
        raise NotImplementedError

    def describe(self, run: Run) -> str:
        """What came of it, in one line for people."""
        raise NotImplementedError


def as_json(shape: BaseModel) -> Any:
    """A shape as plain JSON values."""
    return shape.model_dump(mode="json", by_alias=True)


def add_limit(parser: CommandParser, *, default: int, of: str) -> None:
    """Add `--limit`."""
    parser.add_argument(
        "--limit", type=int, default=default, help=f"how many {of} to show (default {default})"
    )


def add_reason(parser: CommandParser) -> None:
    """Add `--reason`."""
    parser.add_argument("--reason", default="", help="stands in the run's timeline")


def checked_limit(limit: int) -> int:
    """`limit` itself. Raises InvalidInput where it is not a usable number."""
    if not 1 <= limit <= LARGEST_LIST:
        raise InvalidInput(
            field="--limit", value=str(limit), fix=f"Give a number from 1 to {LARGEST_LIST}."
        )
    return limit


def progress(text: str) -> None:
    """Print one line about what goes on, where it does not disturb the answer."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()
