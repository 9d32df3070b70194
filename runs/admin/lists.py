"""Long tables, paged without counting.

Guarantees: a list page reads one row more than it shows and never counts; it is
ordered by an index and by nothing a visitor sends; paging ends after `MAX_PAGES`,
so that no offset grows without bound. A filter that no index serves looks through
the newest `NEWEST` rows only, and the page says so.

Does not show how many rows there are.
"""

from typing import TYPE_CHECKING, Any, Final, cast

from django.contrib.admin.views.main import PAGE_VAR
from django.contrib.admin.views.main import ChangeList as DjangoChangeList
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:
    from runs.admin.readonly import ReadOnlyAdmin, Table

    AnyPage = Page[Any]
    AnyPaginator = Paginator[Any]
else:
    AnyPage, AnyPaginator = Page, Paginator

PER_PAGE: Final = 50
MAX_PAGES: Final = 200
NEWEST: Final = 50_000
# With one of these a list is already small, or what is looked for may be old.
NARROWING: Final = frozenset({"q", "run", "parent", "step", "operation"})


class NextPage(AnyPage):
    """A page that was told whether another one follows."""

    follows = False

    def has_next(self) -> bool:
        return self.follows


class NextPaginator(AnyPaginator):
    """Pages that know whether there is a next one, and nothing else."""

    @property
    def count(self) -> int:
        """As many rows as may be paged through, whether or not they exist."""
        return MAX_PAGES * self.per_page

    def page(self, number: int | str) -> NextPage:
        here = int(number)
        start = (here - 1) * self.per_page
        rows = list(self.object_list[start : start + self.per_page + 1])
        page = NextPage(rows[: self.per_page], here, self)
        page.follows = len(rows) > self.per_page and here < MAX_PAGES
        return page


class ChangeList(DjangoChangeList):
    """Django's list of rows, with the table that the page shows and links to its neighbours."""

    table: "Table"
    newer_url: str
    older_url: str

    def get_results(self, request: HttpRequest) -> None:
        """One query: the rows of this page and whether there is another."""
        self.page_num = min(max(self.page_num, 1), MAX_PAGES)
        self.paginator = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
        page = self.paginator.page(self.page_num)
        self.result_list = page.object_list
        self.result_count = self.full_result_count = len(page.object_list)
        self.show_full_result_count = self.show_admin_actions = False
        self.can_show_all = False
        self.multi_page = page.has_next() or self.page_num > 1
        self.newer_url = self._page_url(self.page_num - 1) if self.page_num > 1 else ""
        self.older_url = self._page_url(self.page_num + 1) if page.has_next() else ""
        admin = cast("ReadOnlyAdmin", self.model_admin)
        self.table = admin.table_of(request, page.object_list)

    def apply_select_related(self, qs: QuerySet[Any]) -> QuerySet[Any]:
        """Only what the list asks for; Django would join whatever a column is named after."""
        related = cast("tuple[str, ...]", self.list_select_related or ())
        return qs.select_related(*related) if related else qs

    @property
    def at_the_end(self) -> bool:
        """Whether rows may be left that paging does not reach."""
        return self.page_num == MAX_PAGES

    @property
    def searched_newest(self) -> int | None:
        """How many rows a filter looked through, or None where an index served."""
        scanning = any(getattr(spec, "scans", False) for spec in self.filter_specs)
        return NEWEST if scanning and not NARROWING & set(self.params) else None

    def _page_url(self, number: int) -> str:
        return self.get_query_string({PAGE_VAR: number})


def among_newest(queryset: QuerySet[Any], *, by: str) -> QuerySet[Any]:
    """Only the newest `NEWEST` rows; `by` is the indexed field that a list is ordered by."""
    model: type[Model] = queryset.model
    edge = model._default_manager.order_by(f"-{by}").values_list(by, flat=True)
    oldest = next(iter(edge[NEWEST : NEWEST + 1]), None)
    return queryset if oldest is None else queryset.filter(**{f"{by}__gt": oldest})
