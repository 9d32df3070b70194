"""The page on which a person says that an effect was corrected by hand.

Guarantees: a GET changes nothing; a POST is the command that the API calls, by those who have
`runs.resolve_operation`; what is refused is said, with nothing lost of what was typed.
"""

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from runs.access import OPERATIONS_RESOLVE, Actor
from runs.admin.readonly import Action, ReadOnlyAdmin
from runs.admin.resolve import may_resolve
from runs.admin.show import json_block, line, operation_badge, record_url, visible
from runs.corrections import correct_by_hand
from runs.errors import InvalidInput, RunsError
from runs.models import NAME, TEXT_LIMIT, ToolOperation
from runs.saga import find_target, is_uncorrected
from runs.sensitive import names_of_operation
from runs.state import RunState


def correct_link(request: HttpRequest, operation: ToolOperation) -> Action | None:
    """Offered where a run waits, or will, for somebody to correct this effect."""
    is_asked = operation.run.state == RunState.COMPENSATING and may_resolve(request)
    if not is_asked or not is_uncorrected(find_target(operation)):
        return None
    url = reverse("admin:runs_tooloperation_correct", args=[operation.pk])
    return Action(url, "Corrected by hand…")


def correct_view(page: ReadOnlyAdmin, request: HttpRequest, operation_id: str) -> HttpResponse:
    """GET asks; POST records the word and leads to the operation that had the effect."""
    if not may_resolve(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    operation = page.find(operation_id)
    if operation is None:
        return page.not_found(request, operation_id)
    if request.method != "POST":
        return _ask(page, request, operation)
    assert isinstance(request.user, User)
    given = request.POST.get("evidence", "").replace("\r\n", "\n")
    actor = Actor(name=request.user.get_username()[:NAME], scopes=frozenset({OPERATIONS_RESOLVE}))
    try:
        target = correct_by_hand(actor=actor, operation_id=operation.pk, evidence=given)
    except RunsError as error:
        status = 400 if isinstance(error, InvalidInput) else 409
        return _ask(page, request, operation, given=given, refusal=str(error), status=status)
    messages.success(request, "Recorded that it was corrected by hand. Nothing is sent for it.")
    return HttpResponseRedirect(record_url(ToolOperation, target.pk))


def _ask(
    page: ReadOnlyAdmin,
    request: HttpRequest,
    operation: ToolOperation,
    *,
    given: str = "",
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    target = find_target(operation)
    hidden = names_of_operation(target)
    context = page.page_context(request, title="Corrected by hand") | {
        "tool": line(target.tool),
        "operation_id": target.pk,
        "state": operation_badge(target.status),
        "is_uncorrected": is_uncorrected(target),
        "parts": [
            json_block("Arguments", target.arguments, hidden),
            json_block("Result", target.result, hidden),
        ],
        "given": given.replace("\0", "\N{REPLACEMENT CHARACTER}"),
        "refusal": visible(refusal),
        "text_limit": TEXT_LIMIT,
        "back": record_url(ToolOperation, operation.pk),
    }
    return TemplateResponse(request, "admin/runs/correct.html", context, status=status)
