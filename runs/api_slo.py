"""The REST front door of service levels.

Guarantees: as for `api.py`.
"""

from typing import get_args

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from runs.access import READ
from runs.requests import Query
from runs.rest import KernelView, answer, problems
from runs.slo import windows
from runs.slo.report import build_report
from runs.slo.shapes import By, Report


class SloView(KernelView):
    """How well what was promised is kept."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="slo_retrieve",
        parameters=[
            OpenApiParameter(
                "window",
                str,
                default=windows.DEFAULT,
                description=f"Hours or days back from now, such as {', '.join(windows.OFFERED)}.",
            ),
            OpenApiParameter("by", str, enum=get_args(By), description="Groups beside the whole."),
            OpenApiParameter("agent", str, description="Of this agent's runs alone."),
            OpenApiParameter("tool", str, description="Of this tool's operations alone."),
        ],
        responses={200: Report, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """Show service levels over a window, with their objectives and error budgets."""
        query = Query(request, known=("window", "by", "agent", "tool"))
        window = query.text("window")
        return answer(
            build_report(
                window=windows.DEFAULT if window is None else window,
                by=query.text("by"),
                agent=query.text("agent"),
                tool=query.text("tool"),
            )
        )
