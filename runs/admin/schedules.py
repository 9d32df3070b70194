"""Schedules: when each starts next and what came of its last start, and what may be asked.

Guarantees: a GET changes nothing; what is written goes through `schedule_commands.py`, by those
who may change schedules; "start now" sent twice from one page is one run.

The form that writes a schedule is on a page of its own: `schedule_forms.py`.
"""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html

from runs.admin.readonly import Action, Cell, Fact, Notice, Part, ReadOnlyAdmin, Record, Table
from runs.admin.schedule_forms import PREVIEWED, actor_of, may_edit, starts_table, write_view
from runs.admin.schedule_requests import REQUESTS, ScheduleRequest, posted_key
from runs.admin.show import (
    NOTHING,
    PARAGRAPH,
    badge,
    json_block,
    line,
    link,
    run_badge,
    run_link,
    text_block,
    when,
)
from runs.cron import next_slots
from runs.errors import RunsError
from runs.models import Schedule
from runs.sensitive import names_of_agent
from tools.errors import ToolError


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    list_display = ("schedule", "agent", "times", "state", "next_start", "last_run", "last_state")
    list_select_related = ("last_run",)
    change_list_template = "admin/runs/schedules.html"
    empty = (
        "No schedule yet. One starts runs of an agent at fixed times: python manage.py "
        "save_schedule NAME, or the button above for those who may."
    )
    empty_link = None
    list_only = (
        *("name", "agent", "cron", "time_zone", "enabled", "next_at", "last_error"),
        *("last_run__id", "last_run__state", "last_run__created_at"),
    )
    record_related = ("last_run",)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_edit(request) or super().has_view_permission(request, obj)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("name",)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        name = "runs_schedule"
        return [
            path("write/", view(self.write_view), name=f"{name}_write"),
            path("<int:pk>/write/", view(self.write_view), name=f"{name}_rewrite"),
            *(
                path(
                    f"<int:pk>/{asked.name}/",
                    view(self.request_view),
                    {"asked": asked},
                    name=f"{name}_{asked.name}",
                )
                for asked in REQUESTS
            ),
            *super().get_urls(),
        ]

    def write_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        return write_view(self, request, pk)

    def request_view(self, request: HttpRequest, pk: int, asked: ScheduleRequest) -> HttpResponse:
        """GET asks for confirmation; POST does it and leads back."""
        actor = actor_of(request)
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        row = self.find(str(pk))
        if row is None:
            return self.not_found(request, str(pk))
        if request.method == "POST":
            try:
                said = asked.do(actor, row.name, posted_key(request))
            except (RunsError, ToolError) as error:
                messages.error(request, line(str(error), PARAGRAPH))
            else:
                messages.success(request, said)
            # Of one that is deleted now there is no page.
            where = "changelist" if asked.ends_it else "change"
            args = [] if asked.ends_it else [row.pk]
            return HttpResponseRedirect(reverse(f"admin:runs_schedule_{where}", args=args))
        context = self.page_context(request, title=f"{asked.title}: {row.name}") | {
            "schedule": row,
            "state": self.state(row),
            "asked": asked,
            "key": uuid4().hex,
            "back": reverse("admin:runs_schedule_change", args=[row.pk]),
        }
        return TemplateResponse(request, "admin/runs/schedule_request.html", context)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {
            "may_edit": may_edit(request),
            "write_url": reverse("admin:runs_schedule_write"),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    @admin.display(description="schedule")
    def schedule(self, row: Schedule) -> Cell:
        return link(reverse("admin:runs_schedule_change", args=[row.pk]), line(row.name, 60))

    @admin.display(description="agent")
    def agent(self, row: Schedule) -> Cell:
        return line(row.agent, 60)

    @admin.display(description="times")
    def times(self, row: Schedule) -> Cell:
        return format_html(
            '<code class="ao-code">{}</code> <small>{}</small>',
            line(row.cron, 100),
            line(row.time_zone, 60),
        )

    @admin.display(description="state")
    def state(self, row: Schedule) -> Cell:
        shown = badge("Enabled", "success") if row.enabled else badge("Disabled", "neutral")
        failed = badge("started nothing", "danger") if row.last_error else ""
        return format_html("{} {}", shown, failed)

    @admin.display(description="next start")
    def next_start(self, row: Schedule) -> Cell:
        return when(row.next_at)

    @admin.display(description="last run")
    def last_run(self, row: Schedule) -> Cell:
        if row.last_run is None:
            return NOTHING
        return format_html("{} {}", run_link(row.last_run.pk), when(row.last_run.created_at))

    @admin.display(description="its state")
    def last_state(self, row: Schedule) -> Cell:
        return run_badge(row.last_run.state) if row.last_run else NOTHING

    def record(self, request: HttpRequest, row: Schedule) -> Record:
        action, links = None, []
        if may_edit(request):
            action = Action(reverse("admin:runs_schedule_rewrite", args=[row.pk]), "Edit")
            links = [
                (reverse(f"admin:runs_schedule_{asked.name}", args=[row.pk]), f"{asked.title}…")
                for asked in REQUESTS
                if asked.is_offered(row)
            ]
        return Record(
            title=f"Schedule {row.name}",
            state=self.state(row),
            meaning=_meaning(row),
            facts=self._facts(row),
            parts=[
                *_notices(row),
                *_next_starts(row),
                text_block("Objective", row.objective),
                json_block("Input", row.input, names_of_agent(row.agent)),
                json_block("Labels", row.labels, ()),
            ],
            action=action,
            links=links,
        )

    def _facts(self, row: Schedule) -> list[Fact]:
        priority = "the agent's" if row.priority is None else str(row.priority)
        return [
            Fact("Agent", self.agent(row)),
            Fact("Times", self.times(row)),
            Fact("Next start", when(row.next_at)),
            Fact("Missed starts", row.get_catch_up_display()),
            Fact("Last run", self.last_run(row)),
            Fact("Its state", self.last_state(row)),
            Fact("Last slot", when(row.last_slot)),
            Fact("Last slot without a start", when(row.last_missed)),
            Fact("Priority", priority),
            Fact("Saved", when(row.saved_at)),
            Fact("Saved by", line(row.saved_by, 100)),
            Fact("Created by", line(row.created_by, 100)),
        ]


def _meaning(row: Schedule) -> str:
    if not row.enabled:
        return "It starts nothing until it is enabled."
    return "It starts a run at each of its times."


def _notices(row: Schedule) -> list[Part]:
    if not row.last_error:
        return []
    again = "It is tried again at the next slot." if row.enabled else "Save it anew, or enable it."
    return [
        Notice(
            tone="danger",
            title="The last slot started nothing",
            lines=[line(row.last_error, PARAGRAPH), again],
        )
    ]


def _next_starts(row: Schedule) -> Sequence[Table]:
    if row.next_at is None:
        return []
    try:
        zone = ZoneInfo(row.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return []
    # One that is due already is still the first.
    later = next_slots(row.cron, zone, row.next_at, count=PREVIEWED - 1)
    return [starts_table([row.next_at, *later], zone, now=timezone.now())]
