"""Worker processes: which live, and how the others are known to have ended."""

import shlex

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, Notice, Part, ReadOnlyAdmin, Record
from runs.admin.show import NOTHING, PARAGRAPH, Tone, badge, line, link, list_url, record_url, when
from runs.models import Release, ToolOperation, Worker
from runs.state import OperationStatus
from runs.worker_ends import Standing, standing, unknown_from

TONES: dict[Standing, Tone] = {"alive": "success", "silent": "warning", "ended": "neutral"}
MEANINGS: dict[Standing, str] = {
    "alive": "It was seen within the last lease.",
    "silent": "It was not seen for a lease: it has ended, stands still, or cannot reach us.",
    "ended": "It sends nothing any more.",
}


class Ended(filters.Choice):
    title = "end"
    parameter_name = "ended"
    by = "started_at"
    # Both are few: rows of workers that ended are removed after a month.
    indexed = {"no": Q(ended_at__isnull=True), "yes": Q(ended_at__isnull=False)}

    def options(self) -> filters.Choices:
        return [("no", "not known to have ended"), ("yes", "ended")]


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("worker", "standing", "host", "started", "seen", "ended", "known_by")
    list_filter = (Ended,)
    list_only = (
        "name",
        "host",
        "pid",
        "started_at",
        "last_seen_at",
        "ended_at",
        "ended_by",
    )
    empty = "No worker yet: nothing is done without one. Start everything: python manage.py up."
    empty_link = None

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-started_at", "name")

    @admin.display(description="worker")
    def worker(self, worker: Worker) -> Cell:
        return link(reverse("admin:runs_worker_change", args=[worker.pk]), line(worker.name, 100))

    @admin.display(description="standing")
    def standing(self, worker: Worker) -> Cell:
        now = standing(worker)
        return badge(now.capitalize(), TONES[now])

    @admin.display(description="host")
    def host(self, worker: Worker) -> Cell:
        return line(worker.host, 60)

    @admin.display(description="started")
    def started(self, worker: Worker) -> Cell:
        return when(worker.started_at)

    @admin.display(description="last seen")
    def seen(self, worker: Worker) -> Cell:
        return when(worker.last_seen_at)

    @admin.display(description="ended")
    def ended(self, worker: Worker) -> Cell:
        return when(worker.ended_at)

    @admin.display(description="known because")
    def known_by(self, worker: Worker) -> Cell:
        return worker.get_ended_by_display() if worker.ended_by else NOTHING

    def record(self, request: HttpRequest, worker: Worker) -> Record:
        return Record(
            title=f"Worker {worker.name}",
            state=self.standing(worker),
            meaning=MEANINGS[standing(worker)],
            facts=[
                Fact("Host", line(worker.host)),
                Fact("Process", str(worker.pid)),
                Fact("Started", when(worker.started_at)),
                Fact("Last seen", when(worker.last_seen_at)),
                Fact("Ended", when(worker.ended_at)),
                Fact("Known because", self.known_by(worker)),
                Fact("Evidence", line(worker.evidence, PARAGRAPH)),
                Fact("Release", _release_of(worker)),
                Fact("Kernel's boot", line(worker.boot_id)),
                Fact("Namespaces", line(worker.pid_namespace)),
                Fact("Started, in ticks after boot", str(worker.pid_started or NOTHING)),
            ],
            parts=[*_what_to_do(worker), *self._unknown(request, worker)],
        )

    def _unknown(self, request: HttpRequest, worker: Worker) -> list[Part]:
        return [
            *self.section(
                request,
                ToolOperation,
                unknown_from([worker.pk]).order_by("-created_at", "-id"),
                title="Unknown operations that it had in hand",
                more_url=list_url(ToolOperation, status=OperationStatus.UNKNOWN),
                empty="None.",
                without=(),
            )
        ]


def _release_of(worker: Worker) -> Cell:
    if worker.release_id is None:
        return NOTHING
    return link(record_url(Release, worker.release_id), line(worker.release_id, 64))


def _what_to_do(worker: Worker) -> list[Part]:
    if standing(worker) != "silent":
        return []
    return [
        Notice(
            tone="warning",
            title="Has it ended?",
            lines=[
                "If you know that it has, because its machine is off or its container is gone, "
                "say so on the command line:",
                f"python manage.py worker_ended {shlex.quote(line(worker.name, 100))} --evidence …",
                "What it sent, and nobody knows the outcome of, then goes on by itself.",
            ],
        )
    ]
