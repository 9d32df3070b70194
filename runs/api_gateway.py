"""The REST front door of operations: what is known of them, and the gateway that has them made.

Guarantees: a request is carried out once per `Idempotency-Key`; an answer of 200 is final, 202
names the address that goes on telling; whoever made a call may look at it, whatever else its
token may see.

Does not do anything itself: `runs.gateway` does.
"""

from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from runs import shapes
from runs.access import CALL_PREFIX, READ
from runs.errors import InvalidInput, UnknownRun
from runs.gateway.accepting import Asked
from runs.gateway.calling import (
    LONGEST_WAIT,
    Called,
    call_operation,
    finish_run,
    look_at_call,
    raise_if_unanswerable,
)
from runs.paging import PAGE_SIZE, read_newest_first
from runs.presenting import present_call, present_operation, present_run
from runs.queries import find_operations, parse_run_id
from runs.requests import CallOperation, Finish, Query, read_body
from runs.rest import CURSOR, SIZE, KernelView, answer, page_links, problems
from runs.state import OperationStatus

_RUN_ID = OpenApiParameter("run_id", OpenApiTypes.UUID, OpenApiParameter.PATH)
_OPERATION_ID = OpenApiParameter("operation_id", str, OpenApiParameter.PATH)
_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description="Names the call: sent again with it, it is answered and not made again.",
)
_WAIT = OpenApiParameter(
    "wait_seconds",
    {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT},
    description=f"Wait so long, {LONGEST_WAIT:g} at most, for the operation to be settled.",
)
RETRY_SECONDS = "1"


class OperationsView(KernelView):
    """Look for operations, or have one made."""

    scopes = {"GET": READ, "POST": CALL_PREFIX}

    @extend_schema(
        operation_id="operations_list",
        parameters=[
            OpenApiParameter("status", str, enum=[str(status) for status in OperationStatus]),
            OpenApiParameter("run", OpenApiTypes.UUID),
            OpenApiParameter("tool", str),
            CURSOR,
            SIZE,
        ],
        responses={200: shapes.OperationPage, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """List operations, newest first."""
        query = Query(request, known=("status", "run", "tool"))
        found = find_operations(
            status=query.text("status"), run=query.text("run"), tool=query.text("tool")
        )
        page = read_newest_first(
            found, cursor=query.text("cursor"), size=query.page_size(PAGE_SIZE)
        )
        results = [present_operation(operation) for operation in page.items]
        return answer(shapes.OperationPage(**page_links(request, page), results=results))

    @extend_schema(
        operation_id="operations_call",
        parameters=[_KEY],
        request=CallOperation,
        responses={
            200: OpenApiResponse(shapes.Operation, description="Settled, whatever it came to."),
            202: OpenApiResponse(
                shapes.Operation, description="Under way, unknown or awaiting a signature."
            ),
            **problems(400, 404, 409, 410, 413, 415, 422, 429),
        },
    )
    def post(self, request: Request) -> Response:
        """Have a tool called once, however often this is sent with the same `Idempotency-Key`."""
        said = read_body(request.data, CallOperation)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            raise InvalidInput(
                field="Idempotency-Key",
                value="no header",
                fix="Send one that is new for every new call.",
            )
        asked = Asked(
            tool=said.tool,
            arguments=said.arguments,
            key=key,
            run=parse_run_id(said.run) if said.run is not None else None,
            thread=said.thread,
            step=said.step,
            action=said.action,
            agent=said.agent,
            rationale=said.rationale,
        )
        called = call_operation(actor=self.actor(), asked=asked, wait_seconds=said.wait_seconds)
        raise_if_unanswerable(called)
        return _answer(request, called)


class OperationView(KernelView):
    """One operation."""

    # Whoever may call may look at what it called: the query asks for the rest.
    scopes = {"GET": (READ, CALL_PREFIX)}

    @extend_schema(
        operation_id="operations_retrieve",
        parameters=[_OPERATION_ID, _WAIT],
        responses={200: shapes.Operation, **problems(400, 404)},
    )
    def get(self, request: Request, operation_id: str) -> Response:
        """Show an operation with everything learned about it."""
        query = Query(request, known=("wait_seconds",))
        found = look_at_call(
            actor=self.actor(),
            operation_id=operation_id,
            wait_seconds=query.seconds("wait_seconds", most=LONGEST_WAIT),
        )
        return answer(_present(found) if isinstance(found, Called) else present_operation(found))


class FinishView(KernelView):
    """End a run whose agent runs elsewhere."""

    scopes = {"POST": CALL_PREFIX}

    @extend_schema(
        operation_id="runs_finish",
        parameters=[_RUN_ID],
        request=Finish,
        responses={202: shapes.Run, **problems(400, 404, 409, 413, 415, 429)},
    )
    def post(self, request: Request, run_id: str) -> Response:
        """Say that the run has reached its goal, or why it will not; it ends after its calls."""
        said = read_body(request.data, Finish)
        try:
            wanted: UUID = parse_run_id(run_id)
        except InvalidInput as error:
            raise UnknownRun(run_id=run_id[:80]) from error
        run = finish_run(actor=self.actor(), run_id=wanted, result=said.result, error=said.error)
        return answer(present_run(run), status=202)


def _answer(request: Request, called: Called) -> Response:
    said = answer(_present(called), status=200 if called.is_settled else 202)
    if called.replayed:
        said["Idempotent-Replayed"] = "true"
    if not called.is_settled:
        said["Location"] = reverse("operation", args=[called.call.operation_id], request=request)
        said["Retry-After"] = RETRY_SECONDS
    return said


def _present(called: Called) -> shapes.Operation:
    if called.operation is not None:
        return present_operation(called.operation)
    return present_call(called.call)
