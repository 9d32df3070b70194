"""What every view of the API is made of, in whichever app it stands.

Guarantees: JSON in and out, whatever a caller says it accepts; a view that names no scope for
a method lets nobody in; pages and problems have one form.

Does not word errors: what is raised becomes a problem document in `agentops`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from django.conf import settings
from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from pydantic import BaseModel
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from runs import shapes
from runs.access import Actor
from runs.models import AgentRun
from runs.paging import LARGEST_PAGE, Page
from runs.presenting import present_run
from runs.requests import JsonBody


class OnlyJson(BaseContentNegotiation):
    """There is one format, whatever a caller says it accepts."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        """The parser of the body's media type, or None."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class KernelView(APIView):
    """A view of this API. `scopes` names what each method needs."""

    # Of several scopes, any one will do.
    scopes: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}
    http_method_names = ["get", "post", "head"]
    content_negotiation_class = OnlyJson
    parser_classes = (JsonBody,)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """The request as REST framework sees it."""
        if "CONTENT_LENGTH" not in request.META and "HTTP_TRANSFER_ENCODING" in request.META:
            # A body in chunks says no length, and would be taken for none at all.
            request.META["CONTENT_LENGTH"] = str(settings.AGENTOPS_PAYLOAD_BYTES)
        return super().initialize_request(request, *args, **kwargs)

    def actor(self) -> Actor:
        """Who asks; authentication has put it there."""
        return cast(Actor, self.request.auth)


CURSOR = OpenApiParameter(
    "cursor", str, description="Where a page begins; from a `next` or `previous` link."
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Names the request: sent again with it, the same run is answered.",
)
SIZE = OpenApiParameter(
    "page_size",
    {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE},
    description="How many items a page may have.",
)


def problems(*statuses: int) -> dict[int, OpenApiResponse]:
    kind = "application/problem+json"
    return {
        (status, kind): OpenApiResponse(shapes.Problem)  # type: ignore[misc]
        for status in (*statuses, 401, 403, 429, 503)
    }


def answer(shape: BaseModel, *, status: int = 200) -> Response:
    return Response(shape.model_dump(mode="json", by_alias=True), status=status)


def answer_started(request: Request, run: AgentRun, *, replayed: bool) -> Response:
    """A run that was started, or the one that its key had started before."""
    said = answer(present_run(run), status=200 if replayed else 201)
    if replayed:
        said["Idempotent-Replayed"] = "true"
    said["Location"] = reverse("run", args=[run.id], request=request)
    return said


def page_links(request: Request, page: Page[Any]) -> dict[str, str | None]:
    here = request.build_absolute_uri()
    return {
        name: replace_query_param(here, "cursor", cursor) if cursor else None
        for name, cursor in (("next", page.next), ("previous", page.previous))
    }
