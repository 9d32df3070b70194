"""The REST door of corrections by hand: parse, call the command, present."""

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict, Field
from rest_framework.request import Request
from rest_framework.response import Response

from runs import shapes
from runs.access import OPERATIONS_RESOLVE
from runs.corrections import correct_by_hand
from runs.models import TEXT_LIMIT
from runs.presenting import present_operation
from runs.queries import get_operation
from runs.requests import read_body
from runs.rest import KernelView, answer, problems


class Correct(BaseModel):
    """The body of `POST operations/{operation_id}/correct/`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    evidence: str = Field(
        max_length=TEXT_LIMIT, description="how it was corrected; stands in the timeline"
    )


class CorrectView(KernelView):
    """Say that an effect was corrected by hand."""

    scopes = {"POST": OPERATIONS_RESOLVE}

    @extend_schema(
        operation_id="operations_correct",
        parameters=[OpenApiParameter("operation_id", str, OpenApiParameter.PATH)],
        request=Correct,
        responses={200: shapes.Operation, **problems(400, 404, 409, 413, 415)},
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Say that an effect was corrected outside of its run; no compensation is sent for it."""
        said = read_body(request.data, Correct)
        target = correct_by_hand(
            actor=self.actor(), operation_id=operation_id, evidence=said.evidence
        )
        return answer(present_operation(get_operation(target.pk)))
