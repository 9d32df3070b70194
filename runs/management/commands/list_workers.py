"""`list_workers`: which worker processes there are, and which are known to have ended."""

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser
from rich.table import Table
from rich.text import Text

from runs.access import READ
from runs.management.base import KernelCommand, add_limit, checked_limit
from runs.models import Worker
from runs.shapes import Shape
from runs.tables import printable, show_time
from runs.worker_ends import Standing, standing

_MOODS: dict[Standing, str] = {"alive": "green", "silent": "yellow", "ended": "dim"}


class WorkerShape(Shape):
    """One worker process. Silent: not known to have ended, and not seen for a lease."""

    name: str
    standing: Standing
    host: str
    pid: int
    started_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    evidence: str | None


class Command(KernelCommand):
    help = (
        "List worker processes, newest first. A silent one may be dead or stand still: "
        "worker_ended says which."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--alive", action="store_true", help="only workers that are not known to have ended"
        )
        add_limit(parser, default=50, of="workers")

    def act(self, options: dict[str, Any]) -> None:
        self.actor.require(READ)
        limit = checked_limit(options["limit"])
        rows = Worker.objects.order_by("-started_at", "name")
        if options["alive"]:
            rows = rows.filter(ended_at__isnull=True)
        found = list(rows[: limit + 1])
        workers = [_present(row) for row in found[:limit]]
        self.show(workers, _table(workers))
        if not workers:
            self.say("No worker; `manage.py up` starts some.")
        if len(found) > limit:
            self.say(f"There are more; these are the newest {limit}.")


def _present(row: Worker) -> WorkerShape:
    return WorkerShape(
        name=row.name,
        standing=standing(row),
        host=row.host,
        pid=row.pid,
        started_at=row.started_at,
        last_seen_at=row.last_seen_at,
        ended_at=row.ended_at,
        ended_by=row.ended_by or None,
        evidence=row.evidence or None,
    )


def _table(workers: list[WorkerShape]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("worker", "standing", "started", "last seen", "ended", "how it is known"):
        table.add_column(title, overflow="fold")
    for worker in workers:
        known = f"{worker.ended_by}: {worker.evidence or ''}" if worker.ended_by else ""
        table.add_row(
            Text(printable(worker.name)),
            Text(worker.standing, style=_MOODS[worker.standing]),
            Text(show_time(worker.started_at)),
            Text(show_time(worker.last_seen_at)),
            Text(show_time(worker.ended_at)),
            Text(printable(known)),
        )
    return table
