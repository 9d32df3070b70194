"""The timeline of a run, or of one of its operations, as one page.

Guarantees: what is uncertain, and what to do about it, stands first; a page has a bounded number of
entries and costs the same number of queries however long the run is; only those see it who may see
the kinds of rows that every run is made of, and of other kinds nothing that they may not see
(`timeline_sight.py`). It reads, and changes nothing.

Asked with `since`, it answers 204 as long as nothing is new: that is what live refresh asks.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from runs.admin.readonly import ReadOnlyAdmin
from runs.admin.show import line, operation_badge, operation_link, record_url, run_badge
from runs.admin.timeline_export import export_timeline
from runs.admin.timeline_lanes import lanes_of, show_family, show_lanes
from runs.admin.timeline_lines import show_story
from runs.admin.timeline_sight import Sight
from runs.admin.timeline_verdict import judge
from runs.errors import InvalidInput
from runs.models import AgentRun, ToolOperation
from runs.paging import Page
from runs.shapes import TimelineEntry
from runs.state import FINAL_STATES
from runs.timeline import read_newest, read_timeline
from runs.timeline_family import find_family
from runs.timeline_story import tell, turn
from runs.timeline_subject import Subject

PAGE: Final = 100
REFRESHED_SECONDS: Final = 15
# The kinds of rows that a timeline is of. What else it tells is left out for who may not see it.
PERMISSIONS: Final = tuple(
    f"runs.view_{kind}"
    for kind in (
        "agentrun",
        "transition",
        "tooloperation",
        "toolobservation",
        "modeldecision",
        "llmrequest",
        "handoff",
        "incident",
    )
)


def may_see_timelines(request: HttpRequest) -> bool:
    return request.user.has_perms(PERMISSIONS)


def timeline_url(row: AgentRun | ToolOperation) -> str:
    """The address of its timeline."""
    return reverse(f"admin:runs_{row._meta.model_name}_timeline", args=[row.pk])


def timeline_link(request: HttpRequest, row: AgentRun | ToolOperation) -> list[tuple[str, str]]:
    """What leads there from the row's page, for those who may go."""
    return [(timeline_url(row), "Timeline")] if may_see_timelines(request) else []


def timeline_urls(page: ReadOnlyAdmin) -> list[URLPattern]:
    """The addresses below a row's own: its timeline, and the same as a file."""
    name = f"runs_{page.opts.model_name}_timeline"

    def view(request: HttpRequest, key: str, *, export: bool = False) -> HttpResponseBase:
        return timeline_view(page, request, key, export=export)

    guarded = page.admin_site.admin_view(view)
    return [
        path("<str:key>/timeline/", guarded, name=name),
        path("<str:key>/timeline/export/", guarded, {"export": True}, name=f"{name}_export"),
    ]


def timeline_view(
    page: ReadOnlyAdmin, request: HttpRequest, key: str, *, export: bool = False
) -> HttpResponseBase:
    """The page of the row that `key` names, its news, or the whole as a file."""
    if not may_see_timelines(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD"}:
        return HttpResponseNotAllowed(["GET", "HEAD"])
    row = page.find(key)
    if row is None:
        return page.not_found(request, key)
    operation = row if isinstance(row, ToolOperation) else None
    run: AgentRun = row if operation is None else operation.run
    if export:
        return export_timeline(request, run, operation, sight=Sight.of(request))
    mark = _mark(run, now=timezone.now())
    if request.GET.get("since") == mark:
        return HttpResponse(status=204)
    try:
        context = _context(request, run, operation)
    except InvalidInput:
        messages.warning(request, "That place in the timeline is not known; this is its end.")
        return HttpResponseRedirect(timeline_url(operation or run))
    title = f"Timeline of {row}"
    context |= page.page_context(request, title=title) | {"mark": mark}
    return TemplateResponse(request, "admin/runs/timeline.html", context)


def _mark(run: AgentRun, *, now: datetime) -> str:
    """A text that is another one when the page would be.

    What leaves no trace in the run's own row (an answer that comes late, an incident, the state of
    a child) is seen a quarter of a minute later at the latest, since that is part of the mark.
    """
    dates = (run.updated_at, run.paused_at)
    parts = (
        run.version,
        run.fence_token,
        *(int(at.timestamp() * 1_000) if at else 0 for at in dates),
    )
    return ".".join(map(str, (*parts, int(now.timestamp()) // REFRESHED_SECONDS)))


def _context(
    request: HttpRequest, run: AgentRun, operation: ToolOperation | None
) -> dict[str, Any]:
    now, sight = timezone.now(), Sight.of(request)
    subject = Subject(run.pk, operation=operation, run=run)
    found = _read(request.GET, subject)
    family = find_family(run)
    lanes = lanes_of(subject, found.items)
    story = tell(sight.see(found.items), start=run.created_at, lanes=lanes)
    newest_first = request.GET.get("order") == "newest"
    return {
        "verdict": judge(
            request,
            run,
            operation=operation,
            uncertain_below=family.uncertain,
            sight=sight,
            has_incidents="incident" not in subject.absent,
            now=now,
        ),
        "lanes": show_lanes(lanes, run, now=now),
        "chapters": show_story(turn(story) if newest_first else story),
        "family": show_family(run, family.around),
        "family_left_out": family.left_out,
        "left_out": sight.left_out,
        "pages": _pages(request, run, operation, found),
        "newest_first": newest_first,
        "entries": len(found.items),
        "started": run.created_at,
        "now": now,
        "live": run.state not in FINAL_STATES,
        **_heading(run, operation),
    }


def _heading(run: AgentRun, operation: ToolOperation | None) -> dict[str, Any]:
    shared = {
        "run_timeline": timeline_url(run),
        "export": f"{timeline_url(operation or run)}export/",
    }
    if operation is None:
        return shared | {
            "back": record_url(AgentRun, run.pk),
            "state": run_badge(run.state),
            "what": line(run.agent, 100),
        }
    corrected_by = operation.compensated_by.values_list("pk", flat=True)
    return shared | {
        "back": record_url(ToolOperation, operation.pk),
        "state": operation_badge(operation.status),
        "what": line(operation.tool, 100),
        "is_operation": True,
        "corrects": operation_link(operation.compensates_id) if operation.compensates_id else "",
        "corrected_by": [operation_link(one) for one in corrected_by],
    }


def _read(asked: Mapping[str, Any], subject: Subject) -> Page[TimelineEntry]:
    cursor = asked.get("cursor")
    if cursor or asked.get("place") == "start":
        return read_timeline(
            run_id=subject.run_id, cursor=cursor or None, size=PAGE, subject=subject
        )
    return read_newest(run_id=subject.run_id, size=PAGE, subject=subject)


def _pages(
    request: HttpRequest, run: AgentRun, operation: ToolOperation | None, found: Page[TimelineEntry]
) -> dict[str, str]:
    """The addresses of the pages around this one; "" where there is none."""
    base = timeline_url(operation or run)
    order = {"order": "newest"} if request.GET.get("order") == "newest" else {}
    place = {name: request.GET[name] for name in ("cursor", "place") if request.GET.get(name)}
    first = found.items[0].seq if found.items else 0

    def address(**more: str) -> str:
        asked = {**order, **more}
        return f"{base}?{urlencode(asked)}" if asked else base

    turned = {} if order else {"order": "newest"}
    return {
        "older": address(cursor=found.previous) if found.previous else "",
        "newer": address(cursor=found.next) if found.next else "",
        "start": address(place="start") if first > 1 else "",
        "newest": address() if found.next else "",
        "turned": f"{base}?{urlencode(place | turned)}" if place | turned else base,
        "this": f"{base}?{urlencode(order | place)}" if order | place else base,
        "first": str(first),
        "last": str(found.items[-1].seq if found.items else 0),
    }
