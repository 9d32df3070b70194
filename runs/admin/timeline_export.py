"""A whole timeline as a file: the run as the API shows it, and every entry.

Guarantees: entries are those of the API, without the same values, less what its reader may not see;
they are read and sent page by page, so that memory stays flat however long the run is.

Does not freeze the run: entries that come while it is read are in the file or not.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Final

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

from runs.admin.timeline_sight import Sight
from runs.models import AgentRun, ToolOperation
from runs.presenting import present_operation, present_run
from runs.timeline import read_timeline

PAGE: Final = 500


def export_timeline(
    request: HttpRequest, run: AgentRun, operation: ToolOperation | None, *, sight: Sight
) -> StreamingHttpResponse:
    """`{"run": …, "operation": …, "left_out": […], "entries": […]}` as a download."""
    parts = _parts(run, operation, sight)
    # Each kind of server reads what is streamed in its own way, and warns about the other.
    stream = _in_turn(parts) if isinstance(request, ASGIRequest) else parts
    response = StreamingHttpResponse(stream, content_type="application/json")
    name = f"timeline-{run.pk if operation is None else operation.pk}.json"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _parts(run: AgentRun, operation: ToolOperation | None, sight: Sight) -> Iterator[str]:
    about = None if operation is None else present_operation(operation).model_dump(mode="json")
    yield f'{{"run": {sight.see_run(present_run(run)).model_dump_json(by_alias=True)}'
    yield f', "operation": {json.dumps(about)}, "left_out": {json.dumps(sight.left_out)}'
    yield ', "entries": ['
    separator, cursor = "\n", None
    while True:
        page = read_timeline(run_id=run.pk, operation=operation, cursor=cursor, size=PAGE)
        for entry in sight.see(page.items):
            yield f"{separator}{entry.model_dump_json(by_alias=True)}"
            separator = ",\n"
        cursor = page.next
        if cursor is None:
            break
    yield "\n]}\n"


async def _in_turn(parts: Iterator[str]) -> AsyncIterator[str]:
    def read() -> str | None:
        return next(parts, None)

    while (part := await sync_to_async(read)()) is not None:
        yield part
