"""The base of every page here: a list and a record, and nothing that writes.

Guarantees: adding, changing and deleting are refused to everybody; a record is shown
from values that its admin prepared, so a page sends the queries named there and no
more; a table of other rows appears only for those who may see that kind of row.

Does not choose what is shown; the modules beside this one do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.contrib import messages
from django.contrib.admin import ShowFacets
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from runs.admin.lists import PER_PAGE, ChangeList, NextPaginator
from runs.admin.show import Block, Row, Tone, line

if TYPE_CHECKING:
    # The same class with another look, and untyped.
    from django.contrib.admin import ModelAdmin

    BaseAdmin = ModelAdmin[Any]
else:
    from unfold.admin import ModelAdmin as BaseAdmin

Cell = SafeString | str
BIGGEST_ID = 2**63 - 1
RUNS: Final = ("admin:runs_agentrun_changelist", "See the runs")


@dataclass(frozen=True)
class Fact:
    """One labelled value at the top of a record."""

    label: str
    value: Cell


@dataclass(frozen=True)
class Table:
    """Some rows of one kind. `more_url` leads to all of them."""

    template: ClassVar[str] = "admin/runs/_table.html"
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    more_url: str = ""
    more_text: str = ""
    empty: str = ""

    @property
    def labelled_rows(self) -> list[list[tuple[str, Cell]]]:
        return [list(zip(self.headers, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Notice:
    """What a reader must not miss."""

    template: ClassVar[str] = "admin/runs/_notice.html"
    tone: Tone
    title: str
    lines: Sequence[Cell]


Part = Notice | Table | Block


@dataclass(frozen=True)
class Action:
    """A page that asks before anything is done. `harmful`: it takes something away."""

    url: str
    text: str
    harmful: bool = False


@dataclass(frozen=True)
class Record:
    """One row as a page: its state, what it means, facts, then parts in order."""

    title: str
    state: Cell
    facts: Sequence[Fact]
    parts: Sequence[Part] = ()
    meaning: str = ""
    links: Sequence[tuple[str, str]] = ()
    action: Action | None = None
    # Where several things may be asked for.
    actions: Sequence[Action] = ()


class ReadOnlyAdmin(BaseAdmin):
    """`list_display` names methods that turn a row into a cell; `record` makes the page."""

    actions = None
    change_list_template = "admin/runs/change_list.html"
    record_template = "admin/runs/record.html"
    paginator = NextPaginator
    list_per_page = PER_PAGE
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    # Why there is nothing to see yet, and what to do: in these words, or by this link (the name of
    # an address, and its text). Rows that a run leaves behind begin with a run.
    empty: ClassVar[str] = ""
    empty_link: ClassVar[tuple[str, str] | None] = RUNS
    # Columns that a list needs; the rest, mostly long JSON, stays in the database.
    list_only: ClassVar[tuple[str, ...]] = ()
    record_related: ClassVar[tuple[str, ...]] = ()

    def record(self, request: HttpRequest, row: Any) -> Record:
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only the parameters of the filters: no address makes a scan of its own."""
        specs = self.get_list_filter(request)
        return lookup in {getattr(spec, "parameter_name", None) for spec in specs}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ChangeList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        context = {"empty": self.empty, "empty_link": self.empty_link, **(extra_context or {})}
        return super().changelist_view(request, context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).only(*self.list_only)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The record of one row; no form is involved."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.find(object_id)
        if row is None:
            return self.not_found(request, object_id)
        record = self.record(request, row)
        context = self.page_context(request, title=record.title) | {"record": record}
        return TemplateResponse(request, self.record_template, context)

    def find(self, key: str) -> Any | None:
        """The row that an address names, with what its record needs."""
        try:
            pk = self.opts.pk.to_python(key)
        except ValidationError:
            return None
        if (isinstance(pk, str) and "\0" in pk) or (isinstance(pk, int) and pk > BIGGEST_ID):
            return None
        rows = self.model._default_manager.filter(pk=pk)
        if self.record_related:
            rows = rows.select_related(*self.record_related)
        return rows.first()

    def not_found(self, request: HttpRequest, key: str) -> HttpResponse:
        name = self.opts.verbose_name
        messages.warning(request, f"There is no {name} {line(key, 80)}. It may have been purged.")
        app, model = self.opts.app_label, self.opts.model_name
        return HttpResponseRedirect(reverse(f"admin:{app}_{model}_changelist"))

    def page_context(self, request: HttpRequest, *, title: str) -> dict[str, Any]:
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": line(title),
            "media": self.media,
        }

    def table_of(
        self,
        request: HttpRequest,
        rows: Iterable[Model],
        *,
        without: Sequence[str] = (),
        **shown: str,
    ) -> Table:
        """`rows` in the columns of this list; `shown` is what else a `Table` takes."""
        names = [str(name) for name in self.get_list_display(request) if name not in without]
        cells = [getattr(self, name) for name in names]
        return Table(
            headers=[str(cell.short_description) for cell in cells],
            rows=[[cell(row) for cell in cells] for row in rows],
            **shown,
        )

    def section(
        self,
        request: HttpRequest,
        model: type[Row],
        rows: QuerySet[Any],
        *,
        title: str,
        limit: int = PER_PAGE,
        more_url: str,
        empty: str,
        without: Sequence[str] = ("run",),
    ) -> list[Table]:
        """The first `limit` rows of another kind, or nothing for those who may not see it."""
        other = self.admin_site.get_model_admin(model)
        assert isinstance(other, ReadOnlyAdmin)
        if not other.has_view_permission(request):
            return []
        if isinstance(other.list_select_related, tuple) and other.list_select_related:
            rows = rows.select_related(*other.list_select_related)
        found = list(rows.only(*other.list_only)[: limit + 1])
        more = f"The newest {limit} are shown; see all" if len(found) > limit else "Open as a list"
        return [
            other.table_of(
                request,
                found[:limit],
                without=without,
                title=title,
                more_url=more_url if found else "",
                more_text=more,
                empty=empty,
            )
        ]
