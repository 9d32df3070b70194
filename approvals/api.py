"""The REST front door of approvals.

Guarantees: each view parses, calls one command or query, and presents; each names the scope
of each of its methods. The person who decides is the token's user and nobody else.

Does not word errors: what is raised here becomes a problem document in `agentops`.
"""

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from approvals import commands, shapes
from approvals.inbox import find_approvals, get_approval, read_page
from approvals.presenting import present_approval
from runs.access import APPROVALS_DECIDE, READ
from runs.models import Approval
from runs.paging import PAGE_SIZE
from runs.requests import Query, read_body
from runs.rest import KernelView, answer, page_links, problems

_APPROVAL_ID = OpenApiParameter("approval_id", OpenApiTypes.UUID, OpenApiParameter.PATH)


class ApprovalsView(KernelView):
    """Look for approvals."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="approvals_list",
        parameters=[
            OpenApiParameter("status", str, enum=[str(status) for status in Approval.Status]),
            OpenApiParameter("run", OpenApiTypes.UUID),
            OpenApiParameter("tool", str),
            OpenApiParameter("mine", bool, description="only what the token's user may sign now"),
            OpenApiParameter(
                "cursor", str, description="Where a page begins; from `next` or `previous`."
            ),
            OpenApiParameter("page_size", int, description="How many items a page may have."),
        ],
        responses={200: shapes.ApprovalPage, **problems(400)},
    )
    def get(self, request: Request) -> Response:
        """List approvals: pending ones first, the nearest to its end on top."""
        query = Query(request, known=("status", "run", "tool", "mine"))
        found = find_approvals(
            status=query.text("status"),
            run=query.text("run"),
            tool=query.text("tool"),
            mine=request.user if query.truth("mine") else None,
        )
        page = read_page(found, cursor=query.text("cursor"), size=query.page_size(PAGE_SIZE))
        results = [present_approval(approval) for approval in page.items]
        return answer(shapes.ApprovalPage(**page_links(request, page), results=results))


class ApprovalView(KernelView):
    """One approval."""

    scopes = {"GET": READ}

    @extend_schema(
        operation_id="approvals_retrieve",
        parameters=[_APPROVAL_ID],
        responses={200: shapes.Approval, **problems(404)},
    )
    def get(self, request: Request, approval_id: str) -> Response:
        """Show an approval with its signatures."""
        Query(request, known=())
        return answer(present_approval(get_approval(approval_id)))


class VerdictView(KernelView):
    """Approve or deny."""

    scopes = {"POST": APPROVALS_DECIDE}

    @extend_schema(
        operation_id="approvals_verdict",
        parameters=[_APPROVAL_ID],
        request=shapes.GiveVerdict,
        responses={200: shapes.Approval, **problems(400, 404, 409, 412, 413, 415)},
    )
    def post(self, request: Request, approval_id: str) -> Response:
        """Sign or refuse the exact action that has this fingerprint; heard once."""
        said = read_body(request.data, shapes.GiveVerdict)
        approval = commands.decide(
            actor=self.actor(),
            user=request.user,
            approval_id=approval_id,
            verdict=said.verdict,
            fingerprint=said.fingerprint,
            reason=said.reason,
            event_id=said.event_id,
            via="api",
        )
        return answer(present_approval(get_approval(approval.id)))


class ProposeView(KernelView):
    """Propose other arguments."""

    scopes = {"POST": APPROVALS_DECIDE}

    @extend_schema(
        operation_id="approvals_propose",
        parameters=[_APPROVAL_ID],
        request=shapes.ProposeChange,
        responses={200: shapes.Approval, **problems(400, 404, 409, 412, 413, 415)},
    )
    def post(self, request: Request, approval_id: str) -> Response:
        """Ask for other arguments: a new action, with signatures of its own to be given."""
        said = read_body(request.data, shapes.ProposeChange)
        approval = commands.propose(
            actor=self.actor(),
            user=request.user,
            approval_id=approval_id,
            arguments=said.arguments,
            fingerprint=said.fingerprint,
            reason=said.reason,
            via="api",
        )
        return answer(present_approval(get_approval(approval.id)))
