"""The REST front door of schedules. They are read here, and written in the admin or a shell.

Guarantees: as for `api.py`. A page is read on from a name, so that schedules which come or go
meanwhile neither repeat nor hide others.
"""

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from runs.access import READ
from runs.models import SCHEDULE_NAME, Schedule
from runs.paging import PAGE_SIZE, Cursor, Page
from runs.requests import Query
from runs.rest import CURSOR, SIZE, KernelView, answer, page_links, problems
from runs.schedule_commands import get_schedule
from runs.schedule_shapes import Schedule as Shown
from runs.schedule_shapes import SchedulePage, present_schedule


class SchedulesView(KernelView):
    """Look for schedules."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="schedules_list",
        parameters=[CURSOR, SIZE],
        responses={200: SchedulePage, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """List schedules by name."""
        query = Query(request, known=())
        page = _read_page(query.text("cursor"), size=query.page_size(PAGE_SIZE))
        results = [present_schedule(row) for row in page.items]
        return answer(SchedulePage(**page_links(request, page), results=results))


class ScheduleView(KernelView):
    """One schedule."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="schedules_retrieve",
        parameters=[OpenApiParameter("name", str, OpenApiParameter.PATH)],
        responses={200: Shown, **problems(404)},
    )
    def get(self, request: Request, name: str) -> Response:
        """Show a schedule."""
        Query(request, known=())
        return answer(present_schedule(get_schedule(name)))


class _ByName(Cursor):
    name: str = Field(pattern=rf"^[a-z0-9_-]{{1,{SCHEDULE_NAME}}}$")


def _read_page(cursor: str | None, *, size: int) -> Page[Schedule]:
    place = _ByName.decode(cursor) if cursor is not None else None
    back = place is not None and place.back
    rows = Schedule.objects.select_related("last_run").order_by("-name" if back else "name")
    if place is not None:
        rows = rows.filter(name__lt=place.name) if back else rows.filter(name__gt=place.name)
    found = list(rows[: size + 1])
    items, more = found[:size], len(found) > size
    if back:
        items.reverse()
    after = bool(items) if back else more
    before = more if back else place is not None
    return Page(
        items=items,
        next=_ByName(name=items[-1].name).encode() if after else None,
        previous=_ByName(name=items[0].name, back=True).encode() if before and items else None,
    )
