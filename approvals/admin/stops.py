"""The page of the switches: what is stopped now, and the forms that stop and resume.

Guarantees: whoever may see policies sees what is stopped, by whom, since when and why; a GET
changes nothing; a POST is `stop_sending` or `resume_sending`, by those who may edit policies.
"""

from typing import TYPE_CHECKING, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from approvals.admin.policy_forms import actor_of, may_edit, posted
from approvals.policies import (
    AlreadyStopped,
    InvalidPolicy,
    NotStopped,
    current_stops,
    resume_sending,
    say_target,
    stop_sending,
)
from runs.access import Actor
from runs.admin.readonly import Notice
from runs.admin.show import line, visible, when
from runs.models import TEXT_LIMIT
from tools.models import ToolPolicy
from tools.registry import all_tools

if TYPE_CHECKING:
    from approvals.admin.policies import ToolPolicyAdmin

KINDS: Final = ("tool", "provider", "everything")


def stops_view(page: "ToolPolicyAdmin", request: HttpRequest) -> HttpResponse:
    """GET shows; POST stops or resumes, and leads back here."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    if request.method != "POST":
        return _show(page, request)
    actor = actor_of(request)
    try:
        told = _act(request, actor)
    except InvalidPolicy as error:
        told = " ".join(f"{one.field} {one.value}: {one.fix}" for one in error.problems)
        return _show(page, request, refused=visible(told), status=400)
    except (AlreadyStopped, NotStopped) as error:
        return _show(page, request, refused=visible(str(error)), status=409)
    messages.success(request, told)
    return HttpResponseRedirect(reverse("admin:tools_toolpolicy_stops"))


def stopped_notice() -> Notice | None:
    """What is stopped now, for whoever looks at policies; nothing where nothing is."""
    rows = current_stops()
    if not rows:
        return None
    return Notice(tone="danger", title="Sending is stopped", lines=[_told(row) for row in rows])


def _act(request: HttpRequest, actor: Actor) -> str:
    kind, reason = posted(request, "kind"), posted(request, "reason")
    tool = posted(request, "tool") if kind == "tool" else ""
    provider = posted(request, "provider") if kind == "provider" else ""
    everything = kind == "everything"
    if posted(request, "do") == "resume":
        resumed = resume_sending(
            actor=actor, tool=tool, provider=provider, everything=everything, reason=reason
        )
        return (
            f"Sending goes on for {say_target(resumed.row)}. "
            f"Runs that are looked at now: {resumed.woken}."
        )
    row = stop_sending(
        actor=actor, tool=tool, provider=provider, everything=everything, reason=reason
    )
    return f"Sending is stopped for {say_target(row)}."


def _show(
    page: "ToolPolicyAdmin", request: HttpRequest, *, refused: str = "", status: int = 200
) -> HttpResponse:
    rows = current_stops()
    specs = all_tools()
    context = page.page_context(request, title="Stop sending") | {
        "stops": [
            {
                "kind": "tool" if row.tool else "provider" if row.provider else "everything",
                "row": row,
                "target": line(say_target(row)),
                "author": line(row.author),
                "reason": line(row.reason, TEXT_LIMIT),
                "since": when(row.created_at),
            }
            for row in rows
        ],
        "may_edit": may_edit(request),
        "refused": refused,
        # What was typed comes back only to the form that sent it.
        "given": {name: posted(request, name) for name in ("do", "kind", *KINDS, "reason")},
        "tools": [spec.name for spec in specs],
        "providers": sorted({spec.provider_name for spec in specs} - {""}),
        "text_limit": TEXT_LIMIT,
        "back": reverse("admin:tools_toolpolicy_changelist"),
    }
    return TemplateResponse(request, "admin/approvals/stops.html", context, status=status)


def _told(row: ToolPolicy) -> str:
    return format_html(
        "{}: by {} {}: {}",
        line(say_target(row)),
        line(row.author, 60),
        when(row.created_at),
        line(row.reason, 300),
    )
