"""The inbox: what waits for a signature, the nearest to its end on top.

Guarantees: what the person may sign comes first and is what the page opens with; a page costs
the same few queries however many rows there are, reads on by place and counts nothing. Several
requests are chosen here, and approved only on the page that lists them (`batch.py`).

Does not decide anything: `request.py` and `batch.py` do, on a POST.
"""

from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals.admin.batch import batch_view
from approvals.admin.proposing import propose_view
from approvals.admin.request import request_view, verdict_view
from approvals.admin.showing import (
    has_run_out,
    request_url,
    say_action,
    say_signatures,
    status_badge,
    until,
)
from approvals.admin.words import may_decide
from approvals.inbox import find_approvals, read_page
from runs.admin.lists import NEWEST, PER_PAGE, among_newest
from runs.admin.readonly import Cell, ReadOnlyAdmin, Table
from runs.admin.show import NOTHING, line, visible, when
from runs.errors import InvalidInput
from runs.models import Approval
from tools.registry import all_tools

MINE, PENDING, ALL = "mine", "pending", "all"
TABS: Final = {MINE: "For me", PENDING: "Pending", ALL: "All"}
# Long JSON that no row of the list shows.
UNSHOWN: Final = (
    *("covered", "proposed_arguments", "run__input", "run__result", "operation__result"),
    "operation__error",
)


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    list_template = "admin/approvals/inbox.html"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_decide(request) or super().has_view_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        name = "runs_approval"
        return [
            path("batch/", view(self.batch_view), name=f"{name}_batch"),
            path("<str:key>/verdict/", view(self.verdict_view), name=f"{name}_verdict"),
            path("<str:key>/propose/", view(self.propose_view), name=f"{name}_propose"),
            *super().get_urls(),
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        self.require_view(request)
        return request_view(self, request, object_id)

    def verdict_view(self, request: HttpRequest, key: str) -> HttpResponse:
        self.require_view(request)
        return verdict_view(self, request, key)

    def propose_view(self, request: HttpRequest, key: str) -> HttpResponse:
        self.require_view(request)
        return propose_view(self, request, key)

    def batch_view(self, request: HttpRequest) -> HttpResponse:
        self.require_view(request)
        return batch_view(self, request)

    def require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One page of requests, narrowed to a tab, a status and a tool."""
        self.require_view(request)
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        may = may_decide(request)
        tab = request.GET.get("show", "")
        tab = tab if tab in TABS else MINE if may else PENDING
        status = request.GET.get("status", "") if tab == ALL else ""
        tool = request.GET.get("tool", "")
        cursor = request.GET.get("cursor") or None
        try:
            found = _find(request, tab=tab, status=status, tool=tool)
            page = read_page(found, cursor=cursor, size=PER_PAGE)
        except InvalidInput as error:
            messages.warning(request, visible(f"{error.field}: {error.fix}"))
            return HttpResponseRedirect(reverse("admin:runs_approval_changelist"))
        here = {"show": tab, "status": status, "tool": tool}
        context = self.page_context(request, title="Approvals") | {
            "tabs": [(_address(show=name), title, name == tab) for name, title in TABS.items()],
            "tab": tab,
            "now": timezone.now().isoformat(),
            "statuses": [(one.value, one.value.capitalize()) for one in Approval.Status],
            "status": status,
            "tools": sorted({spec.name for spec in all_tools()} | ({tool} if tool else set())),
            "tool": tool,
            "table": _table(page.items, choosing=tab == MINE, with_status=tab == ALL),
            "choosing": tab == MINE and bool(page.items),
            "narrowed": bool(status or tool),
            "may_decide": may,
            "earlier_url": _address(**here, cursor=page.previous) if page.previous else "",
            "later_url": _address(**here, cursor=page.next) if page.next else "",
            "searched_newest": NEWEST if tab == ALL and tool else None,
            "clear_url": _address(show=tab),
            "pending_url": _address(show=PENDING),
            "all_url": _address(show=ALL),
            "batch_url": reverse("admin:runs_approval_batch"),
            "may_see_policies": request.user.has_perm("tools.view_toolpolicy"),
            "policies_url": reverse("admin:tools_toolpolicy_changelist"),
        }
        return TemplateResponse(request, self.list_template, context)


def _find(request: HttpRequest, *, tab: str, status: str, tool: str) -> QuerySet[Approval]:
    found = find_approvals(
        status=Approval.Status.PENDING if tab == PENDING else status or None,
        tool=tool or None,
        mine=request.user if tab == MINE else None,
    ).defer(*UNSHOWN)
    # Which tool it was stands on another table, and no index leads from there to here.
    return among_newest(found, by="requested_at") if tab == ALL and tool else found


def _address(**query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return reverse("admin:runs_approval_changelist", query=given)


def _table(rows: Any, *, choosing: bool, with_status: bool) -> Table:
    headers = [
        *(["choose"] if choosing else []),
        *("action", "asked for by", "asked", "time left", "signatures"),
        *(["status"] if with_status else []),
    ]
    return Table(
        headers=headers,
        rows=[_row(row, choosing=choosing, with_status=with_status) for row in rows],
        title="Requests",
    )


def _row(row: Approval, *, choosing: bool, with_status: bool) -> list[Cell]:
    said = say_action(row.operation)
    cells: list[Cell] = [_box(row, said)] if choosing else []
    cells += [
        format_html(
            '<a class="ao-link" href="{}">{}</a> <small>{}</small>',
            request_url(row.pk),
            said,
            line(row.operation.tool, 60),
        ),
        line(row.requester, 60),
        when(row.requested_at),
        _left(row),
        line(say_signatures(row), 200),
    ]
    return [*cells, status_badge(row)] if with_status else cells


def _box(row: Approval, said: str) -> SafeString:
    return format_html(
        '<input type="checkbox" class="ao-pick" name="pick" value="{}" aria-label="Choose: {}">',
        row.pk,
        said,
    )


def _left(row: Approval) -> Cell:
    if row.status != Approval.Status.PENDING:
        return NOTHING
    return "over" if has_run_out(row) else until(row.approve_by)
