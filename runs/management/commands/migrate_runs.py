"""`migrate_runs`: what a deployment of this code would do to every active run."""

import sys
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError, CommandParser
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from runs.access import READ, RUNS_WRITE
from runs.management.base import KernelCommand, as_json
from runs.migration_plan import Group, Move, Planned, active_runs, group, make_due, plan_runs
from runs.tables import printable
from runs.versions import identify_release, is_served_now

_MOODS = {Move.STRANDED: "red", Move.STAYS: "yellow", Move.SIGNED_ANEW: "cyan"}


class Command(KernelCommand):
    help = (
        "Show what would become of every active run if this code were deployed. Run it with the "
        "new code before its workers start; exits 1 if a run would be stranded."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--agent", help="only runs of this agent")
        parser.add_argument(
            "--apply",
            action="store_true",
            help="once workers serve this code: have those runs looked at now that it asks "
            "signatures of anew, or whose stored arguments it has to bring up to date",
        )

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(RUNS_WRITE if options["apply"] else READ)
        release = identify_release()
        if options["apply"] and not is_served_now(release):
            raise CommandError(
                f"--apply: no living worker serves this code (release {release}), so the old ones "
                "would only put the runs back. Start its workers first."
            )
        plans: list[Planned] = []
        due = 0
        for chunk in self._shown(plan_runs(agent=options["agent"]), agent=options["agent"]):
            plans += chunk
            due += make_due(chunk) if options["apply"] else 0
        groups = group(plans)
        stranded = sum(one.runs for one in groups if one.move is Move.STRANDED)
        if self.as_json:
            self.show_json(
                {
                    "release": release,
                    "stranded": stranded,
                    "made_due": due,
                    "groups": [as_json(one) for one in groups],
                    "runs": [as_json(one) for one in plans],
                }
            )
        else:
            self._say_groups(groups, stranded=stranded)
            if options["apply"]:
                self.say(f"{due} made due now.")
        if stranded:
            sys.exit(1)

    def _shown(
        self, chunks: Iterator[list[Planned]], *, agent: str | None
    ) -> Iterator[list[Planned]]:
        """The same chunks, with a bar of how far it is where somebody watches."""
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("active runs", total=active_runs(agent=agent).count())
            for chunk in chunks:
                yield chunk
                bar.advance(task, len(chunk))

    def _say_groups(self, groups: list[Group], *, stranded: int) -> None:
        if not groups:
            return self.say("No active runs.")
        self.show_table(_table(groups))
        runs = sum(one.runs for one in groups)
        if stranded:
            return self.say(f"{stranded} of {runs} active runs would be stranded.")
        return self.say(f"None of {runs} active runs would be stranded.")


def _table(groups: list[Group]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("agent", "pinned", "this code", "runs", "what becomes of them"):
        table.add_column(name, overflow="fold")
    for one in groups:
        table.add_row(
            Text(printable(one.agent)),
            Text(printable(one.pinned)),
            Text(printable(one.serves or "–")),
            Text(str(one.runs)),
            Text(printable(_describe(one)), style=_MOODS.get(one.move, "")),
        )
    return table


def _describe(one: Group) -> str:
    counted = (
        (one.signatures, "signatures"),
        (one.arguments_migrated, "calls with arguments to migrate"),
        (one.arguments_to_person, "calls whose arguments wait for a person"),
    )
    named = [f"{what}: {number}" for number, what in counted if number]
    why = f"{one.move}: {one.why}" if one.move is Move.STRANDED else one.why
    return f"{why} ({', '.join(named)})" if named else why
