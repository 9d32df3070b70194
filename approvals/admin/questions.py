"""What agents ask people: the list of questions, beside the inbox of signatures.

Guarantees: what the person may answer comes first and is what the page opens with; a page costs
the same few queries however many rows there are, reads on by place and counts nothing. A question
is shown as the words of an agent: escaped, bounded and in quotation marks.

Does not answer anything: `question.py` does, on a POST.
"""

from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html

from approvals.admin.question import (
    answer_view,
    question_url,
    question_view,
    status_badge,
    time_left,
)
from approvals.answerers import asked_groups
from approvals.errors import ANSWERING
from approvals.question_inbox import find_questions, read_page
from approvals.question_shapes import present_questions
from runs.admin.lists import PER_PAGE
from runs.admin.readonly import Cell, ReadOnlyAdmin, Table
from runs.admin.show import NOTHING, line, quote, visible, when
from runs.errors import InvalidInput
from runs.models import Question

MINE, OPEN, ALL = "mine", "open", "all"
TABS: Final = {MINE: "For me", OPEN: "Open", ALL: "All"}
SENTENCE: Final = 200


@admin.register(Question)
class QuestionAdmin(ReadOnlyAdmin):
    list_template = "admin/approvals/questions.html"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(ANSWERING) or super().has_view_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        answer = path(
            "<str:key>/answer/",
            self.admin_site.admin_view(self.answer_view),
            name="runs_question_answer",
        )
        return [answer, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        self.require_view(request)
        return question_view(self, request, object_id)

    def answer_view(self, request: HttpRequest, key: str) -> HttpResponse:
        self.require_view(request)
        return answer_view(self, request, key)

    def require_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One page of questions, narrowed to a tab and a status."""
        self.require_view(request)
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        may = request.user.has_perm(ANSWERING)
        tab = request.GET.get("show", "")
        tab = tab if tab in TABS else MINE if may else OPEN
        status = request.GET.get("status", "") if tab == ALL else ""
        try:
            found = find_questions(
                status=Question.Status.OPEN if tab == OPEN else status or None,
                mine=request.user if tab == MINE else None,
            )
            page = read_page(found, cursor=request.GET.get("cursor") or None, size=PER_PAGE)
        except InvalidInput as error:
            messages.warning(request, visible(f"{error.field}: {error.fix}"))
            return HttpResponseRedirect(reverse("admin:runs_question_changelist"))
        here = {"show": tab, "status": status}
        context = self.page_context(request, title="Questions") | {
            "tabs": [(_address(show=name), title, name == tab) for name, title in TABS.items()],
            "tab": tab,
            "now": timezone.now().isoformat(),
            "statuses": [(one.value, one.value.capitalize()) for one in Question.Status],
            "status": status,
            "table": _table(page.items, with_end=tab == ALL),
            "may_answer": may,
            "earlier_url": _address(**here, cursor=page.previous) if page.previous else "",
            "later_url": _address(**here, cursor=page.next) if page.next else "",
            "clear_url": _address(show=tab),
            "open_url": _address(show=OPEN),
            "all_url": _address(show=ALL),
        }
        return TemplateResponse(request, self.list_template, context)


def _address(**query: str) -> str:
    given = {name: value for name, value in query.items() if value}
    return reverse("admin:runs_question_changelist", query=given)


def _table(rows: Any, *, with_end: bool) -> Table:
    headers = ["question", "agent", "asked", "time left", "who may answer"]
    texts = [one.question for one in present_questions(rows)]
    return Table(
        headers=[*headers, *(["status"] if with_end else [])],
        rows=[_row(row, text, with_end=with_end) for row, text in zip(rows, texts, strict=True)],
        title="Questions",
    )


def _row(row: Question, text: str, *, with_end: bool) -> list[Cell]:
    is_open = row.status == Question.Status.OPEN
    cells: list[Cell] = [
        format_html(
            '<a class="ao-link" href="{}">{}</a>', question_url(row.pk), quote(text, SENTENCE)
        ),
        line(row.run.agent, 60),
        when(row.asked_at),
        time_left(row) if is_open else NOTHING,
        line(", ".join(asked_groups(row)) or "anybody", 200),
    ]
    if with_end:
        by = format_html(" <small>{}</small>", line(row.answered_by)) if row.answered_by else ""
        cells.append(format_html("{}{}", status_badge(row), by))
    return cells
