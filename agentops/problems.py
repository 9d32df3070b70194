"""Every error of the API as one document (RFC 9457, `application/problem+json`).

Guarantees: whatever goes wrong below `/api/`, also outside a view, is answered in
this form: `type` names the condition, `detail` says it, and where a field is to
blame, `field`, `value` (bounded) and `fix` say how to mend it.

Does not show what a bug looked like inside: an unexpected error is a 500 without
its message, and a log line with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from django.core.exceptions import DisallowedHost
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.urls import Resolver404, resolve
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import (
    APIException,
    AuthenticationFailed,
    NotAuthenticated,
    Throttled,
)
from rest_framework.response import Response
from rest_framework.views import set_rollback

from approvals import errors as approvals
from runs import errors as runs
from runs.gateway import errors as gateway
from runs.requests import InvalidRequest, MalformedJson, TooLarge
from runs.shapes import FieldProblem, Problem
from tools import errors as tools
from tools.redaction import bound_text

MEDIA_TYPE: Final = "application/problem+json"
API: Final = "/api/"


@dataclass(frozen=True)
class Kind:
    """What all problems of one condition share."""

    status: HTTPStatus
    name: str
    title: str
    headers: dict[str, str] = field(default_factory=dict)


_KINDS: Final[dict[type[Exception], Kind]] = {
    runs.NotPermitted: Kind(HTTPStatus.FORBIDDEN, "not-permitted", "The token lacks a scope"),
    runs.UnknownRun: Kind(HTTPStatus.NOT_FOUND, "unknown-run", "No such run"),
    runs.UnknownOperation: Kind(HTTPStatus.NOT_FOUND, "unknown-operation", "No such operation"),
    runs.UnknownAgent: Kind(HTTPStatus.BAD_REQUEST, "unknown-agent", "No such agent"),
    runs.InvalidInput: Kind(HTTPStatus.BAD_REQUEST, "invalid-input", "A value does not fit"),
    runs.WrongState: Kind(HTTPStatus.CONFLICT, "wrong-state", "The state allows no such request"),
    runs.ParentDecides: Kind(HTTPStatus.CONFLICT, "parent-decides", "Its parent is to be asked"),
    runs.ParentHeld: Kind(
        HTTPStatus.CONFLICT, "parent-held", "A worker is at work", {"Retry-After": "1"}
    ),
    runs.NothingToCorrect: Kind(
        HTTPStatus.CONFLICT, "nothing-to-correct", "There is nothing to correct"
    ),
    runs.AlreadyCorrected: Kind(
        HTTPStatus.CONFLICT, "already-corrected", "What it did was corrected"
    ),
    runs.OneCall: Kind(HTTPStatus.CONFLICT, "one-call", "The run is one call, with its answer"),
    runs.NoEffect: Kind(HTTPStatus.CONFLICT, "no-effect", "There is nothing to correct"),
    runs.EffectCorrected: Kind(HTTPStatus.CONFLICT, "effect-corrected", "It was corrected before"),
    runs.BeingCorrected: Kind(
        HTTPStatus.CONFLICT, "being-corrected", "A compensation may yet take effect"
    ),
    runs.OverBudget: Kind(HTTPStatus.CONFLICT, "over-budget", "The budget is used"),
    runs.TooManySignals: Kind(
        HTTPStatus.CONFLICT, "too-many-signals", "Earlier signals were not taken yet"
    ),
    runs.EventReused: Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "event-reused", "The id names another signal"
    ),
    runs.AlreadySettled: Kind(HTTPStatus.CONFLICT, "already-settled", "There is nothing to settle"),
    runs.StillInFlight: Kind(
        HTTPStatus.CONFLICT, "still-in-flight", "An earlier send may yet take effect"
    ),
    runs.ProvenCommitted: Kind(
        HTTPStatus.CONFLICT, "proven-committed", "Our own evidence proves that it happened"
    ),
    runs.ProvenRefused: Kind(
        HTTPStatus.CONFLICT, "proven-refused", "Our own evidence proves that it did not happen"
    ),
    runs.RunHeld: Kind(
        HTTPStatus.CONFLICT, "run-held", "A worker is at work", {"Retry-After": "1"}
    ),
    runs.KeyInUse: Kind(
        HTTPStatus.CONFLICT, "key-in-use", "The first request is in flight", {"Retry-After": "1"}
    ),
    runs.KeyReused: Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", "The key names another request"
    ),
    gateway.CallInFlight: Kind(
        HTTPStatus.CONFLICT,
        "call-in-flight",
        "The first request is in flight",
        {"Retry-After": "1"},
    ),
    gateway.ActionReused: Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "action-reused", "The action is another call"
    ),
    gateway.KeyForgotten: Kind(HTTPStatus.GONE, "key-forgotten", "The key is too old"),
    gateway.NotExternal: Kind(HTTPStatus.CONFLICT, "not-external", "Its agent decides for itself"),
    gateway.PolicyRefuses: Kind(HTTPStatus.FORBIDDEN, "policy-refuses", "Policy refuses the call"),
    gateway.CallInvalid: Kind(HTTPStatus.BAD_REQUEST, "call-invalid", "The call cannot be made"),
    runs.UnknownSchedule: Kind(HTTPStatus.NOT_FOUND, "unknown-schedule", "No such schedule"),
    InvalidRequest: Kind(HTTPStatus.BAD_REQUEST, "invalid-request", "The body does not fit"),
    MalformedJson: Kind(HTTPStatus.BAD_REQUEST, "malformed-json", "The body is no JSON"),
    TooLarge: Kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "The body is too large"),
    approvals.UnknownApproval: Kind(HTTPStatus.NOT_FOUND, "unknown-approval", "No such approval"),
    approvals.NobodyThere: Kind(HTTPStatus.FORBIDDEN, "nobody-there", "No person signs"),
    approvals.SomebodyElse: Kind(HTTPStatus.FORBIDDEN, "somebody-else", "Not for another person"),
    approvals.Inactive: Kind(HTTPStatus.FORBIDDEN, "inactive", "The user is not active"),
    approvals.NoPermission: Kind(
        HTTPStatus.FORBIDDEN, "no-permission", "The user lacks a permission"
    ),
    approvals.OwnRequest: Kind(HTTPStatus.FORBIDDEN, "own-request", "Not on one's own request"),
    approvals.NotInGroup: Kind(HTTPStatus.FORBIDDEN, "not-in-group", "Others are asked"),
    approvals.UnknownQuestion: Kind(HTTPStatus.NOT_FOUND, "unknown-question", "No such question"),
    approvals.NotAsked: Kind(HTTPStatus.FORBIDDEN, "not-asked", "Others are asked"),
    approvals.UnfitAnswer: Kind(HTTPStatus.BAD_REQUEST, "unfit-answer", "The answer does not fit"),
    approvals.AlreadyAnswered: Kind(HTTPStatus.CONFLICT, "already-answered", "It is answered"),
    approvals.QuestionExpired: Kind(
        HTTPStatus.CONFLICT, "question-expired", "The time to answer is over"
    ),
    approvals.QuestionCancelled: Kind(
        HTTPStatus.CONFLICT, "question-cancelled", "Nobody waits for it any more"
    ),
    approvals.AnotherFingerprint: Kind(
        HTTPStatus.PRECONDITION_FAILED, "another-fingerprint", "It is another action"
    ),
    approvals.AlreadyDecided: Kind(HTTPStatus.CONFLICT, "already-decided", "It is decided"),
    approvals.RanOut: Kind(HTTPStatus.CONFLICT, "ran-out", "The time to decide is over"),
    approvals.Superseded: Kind(HTTPStatus.CONFLICT, "superseded", "It was asked anew"),
    approvals.ToolChanged: Kind(HTTPStatus.CONFLICT, "tool-changed", "It no longer fits its tool"),
    approvals.AlreadySigned: Kind(HTTPStatus.CONFLICT, "already-signed", "You have signed it"),
    approvals.EventSeen: Kind(HTTPStatus.CONFLICT, "event-seen", "The word was heard before"),
    tools.KeyInFlight: Kind(
        HTTPStatus.CONFLICT, "key-in-flight", "The first call is in flight", {"Retry-After": "1"}
    ),
    tools.KeyMismatch: Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "key-mismatch", "The key names another call"
    ),
    tools.KeyExpired: Kind(HTTPStatus.GONE, "key-expired", "The key is too old"),
    tools.OutcomeUnknown: Kind(
        HTTPStatus.CONFLICT, "outcome-unknown", "Nobody knows what became of the call"
    ),
    tools.Rejected: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "rejected", "The call was refused"),
    tools.UnknownTool: Kind(HTTPStatus.BAD_REQUEST, "unknown-tool", "No such tool"),
    tools.InvalidArguments: Kind(
        HTTPStatus.BAD_REQUEST, "invalid-arguments", "The arguments do not fit the tool"
    ),
    tools.InvalidPayload: Kind(HTTPStatus.BAD_REQUEST, "invalid-payload", "It cannot be stored"),
    # A restart, a lock that stayed taken, an exhausted pool: all of them pass.
    OperationalError: Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Try again shortly", {"Retry-After": "1"}
    ),
    InterfaceError: Kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Try again shortly", {"Retry-After": "1"}
    ),
}


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's hook: the problem of an error, None for one that nobody foresaw."""
    request = context.get("request")
    described = describe(error, path=request.path if request is not None else None)
    if described is None:
        return None
    set_rollback()
    problem, headers = described
    return Response(
        problem.model_dump(mode="json", exclude_none=True),
        status=problem.status,
        headers=headers,
        content_type=MEDIA_TYPE,
    )


def describe(error: Exception, *, path: str | None = None) -> tuple[Problem, dict[str, str]] | None:
    """The problem of an error and the headers that go with it, for every door; None for an error
    that nobody foresaw."""
    kind = _kind_of(error)
    return None if kind is None else (_describe(error, kind, path=path), dict(kind.headers))


def _kind_of(error: Exception) -> Kind | None:
    match error:
        case Http404():
            return Kind(HTTPStatus.NOT_FOUND, "not-found", "Nothing is here")
        case APIException():
            status = HTTPStatus(error.status_code)
            headers: dict[str, str] = {}
            if getattr(error, "auth_header", None):
                headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
            if getattr(error, "wait", None):
                headers["Retry-After"] = str(int(error.wait))  # type: ignore[attr-defined]
            return Kind(status, _slug(status), status.phrase, headers)
    return next((_KINDS[one] for one in type(error).__mro__ if one in _KINDS), None)


def _describe(error: Exception, kind: Kind, *, path: str | None) -> Problem:
    about: dict[str, Any] = {}
    detail = str(error)
    match error:
        case (
            InvalidRequest(problems=problems)
            | tools.InvalidArguments(problems=problems)
            | approvals.UnfitAnswer(problems=problems)
        ):
            about = _first_of([FieldProblem(**vars(one)) for one in problems])
        case gateway.GatewayError():
            about = {"field": error.field, "value": error.value, "fix": error.fix}
        case runs.InvalidInput() | tools.InvalidPayload():
            about = {"field": error.field, "value": error.value, "fix": error.fix}
        case approvals.ApprovalError():
            about = {"field": error.field, "value": error.value, "fix": error.fix}
        case MalformedJson() | TooLarge():
            about = {"field": error.field, "fix": error.fix}
        case runs.UnknownAgent(name=name, known=known):
            fix = f"Use one of: {', '.join(known)}." if known else "Register one first."
            about = {"field": "agent", "value": ascii(name), "fix": fix}
        case tools.UnknownTool(name=name):
            about = {"field": "tool", "value": ascii(name), "fix": "GET tools/ shows them all."}
        case runs.KeyReused(key=key):
            fix = "Use a new key for a new request."
            about = {"field": "Idempotency-Key", "value": ascii(key), "fix": fix}
        case runs.KeyInUse(key=key):
            fix = "Send the same request again in a moment."
            about = {"field": "Idempotency-Key", "value": ascii(key), "fix": fix}
        case runs.UnknownRun(run_id=run_id):
            about = {"field": "run", "value": ascii(run_id), "fix": "GET runs/ lists them."}
        case runs.UnknownOperation(operation_id=operation_id):
            fix = "GET operations/ lists them."
            about = {"field": "operation", "value": ascii(operation_id), "fix": fix}
        case runs.UnknownSchedule(name=name):
            about = {"field": "name", "value": ascii(name), "fix": "GET schedules/ lists them."}
        case runs.WrongState(state=state):
            about = {"field": "state", "value": state, "fix": "Look at the run as it is now."}
        case runs.ParentDecides(parent_id=parent_id, request=request):
            about = {"field": "parent", "value": parent_id, "fix": f"Ask that run to {request}."}
        case runs.ParentHeld(parent_id=parent_id):
            fix = "Send the same request again in a moment."
            about = {"field": "parent", "value": parent_id, "fix": fix}
        case runs.NothingToCorrect() | runs.AlreadyCorrected():
            about = {"field": "run", "value": error.run_id, "fix": "Look at its operations."}
        case runs.OneCall(run_id=run_id):
            fix = "Send the call again under a new key."
            about = {"field": "run", "value": run_id, "fix": fix}
        case runs.OverBudget(breach=breach):
            fix = "Resume it with add_steps, add_tokens, add_cost_usd or add_seconds."
            about = {"field": "budget", "value": breach, "fix": fix}
        case runs.EventReused(event_id=event_id):
            fix = "Use a new id for a new signal."
            about = {"field": "event_id", "value": ascii(event_id), "fix": fix}
        case runs.TooManySignals(limit=limit):
            fix = "Send it again once the run has taken some."
            about = {"field": "run", "value": f"{limit} signals", "fix": fix}
        case runs.AlreadySettled(status=status):
            fix = "Look at the operation as it is now."
            about = {"field": "operation", "value": status, "fix": fix}
        case runs.StillInFlight(until=None, sender=sender):
            fix = (
                "Say that its worker has ended (worker_ended); or settle it as committed, if it is."
            )
            about = {"field": "outcome", "value": sender, "fix": fix}
        case runs.StillInFlight(until=until):
            fix = "Wait until then; or settle it as committed, if it is."
            about = {"field": "outcome", "value": until and until.isoformat(), "fix": fix}
        case runs.ProvenCommitted(external_ref=external_ref):
            fix = "Settle it as committed."
            about = {"field": "outcome", "value": external_ref, "fix": fix}
        case tools.KeyRefused():
            # The key itself is the caller's secret.
            about = {"field": "Idempotency-Key", "fix": "See what the problem's type says."}
        case runs.ProvenRefused():
            about = {"field": "outcome", "value": "committed", "fix": "Settle it as rejected."}
        case runs.RunHeld(operation_id=operation_id):
            fix = "Send the same request again in a moment."
            about = {"field": "operation", "value": operation_id, "fix": fix}
        case runs.NotPermitted(scope=scope):
            about = {"field": "Authorization", "value": scope, "fix": "Use a token that has it."}
        case NotAuthenticated() | AuthenticationFailed():
            detail = _words_of(error.detail)
            fix = "Send 'Authorization: Token …'; `manage.py create_token` makes a token."
            about = {"field": "Authorization", "fix": fix}
        case Throttled():
            detail = _words_of(error.detail)
            fix = "Send it again after Retry-After seconds; AGENTOPS_RATE_PER_MINUTE is the limit."
            about = {"field": "Authorization", "fix": fix}
        case APIException():
            detail = _words_of(error.detail)
        case OperationalError() | InterfaceError():
            detail = "The database did not answer in time; nothing is known to be written."
    return Problem(
        type=f"urn:agentops:problem:{kind.name}",
        title=kind.title,
        status=kind.status,
        detail=bound_text(detail),
        instance=bound_text(path, 500) if path else None,
        field=_bounded(about.get("field")),
        value=_bounded(about.get("value")),
        fix=_bounded(about.get("fix")),
        errors=about.get("errors"),
    )


def _bounded(text: str | None) -> str | None:
    return bound_text(text, 500) if text else None


def _first_of(problems: list[FieldProblem]) -> dict[str, Any]:
    first = problems[0]
    return {
        "field": first.field,
        "value": first.value or None,
        "fix": first.fix,
        "errors": problems,
    }


def _words_of(detail: Any) -> str:
    match detail:
        case dict():
            return "; ".join(f"{name}: {_words_of(one)}" for name, one in detail.items())
        case list():
            return "; ".join(_words_of(one) for one in detail)
    return str(detail)


def _slug(status: HTTPStatus) -> str:
    return status.phrase.lower().replace(" ", "-").replace("'", "")


# -- Outside of views ------------------------------------------------------------


@csrf_exempt
def no_such_address(request: HttpRequest) -> HttpResponse:
    """Whatever no route below `/api/` answers; a forgotten last slash is redirected."""
    if not request.path.endswith("/"):
        try:
            known = resolve(f"{request.path_info}/").func is not no_such_address
        except Resolver404:
            known = False
        if known:
            query = f"?{request.META['QUERY_STRING']}" if request.META["QUERY_STRING"] else ""
            return HttpResponsePermanentRedirect(f"{request.path}/{query}", preserve_request=True)
    return _answer(request, HTTPStatus.NOT_FOUND, "No such address; /api/v1/docs/ shows them all.")


def _handler(
    status: HTTPStatus, detail: str, otherwise: Callable[..., HttpResponse]
) -> Callable[..., HttpResponse]:
    def handle(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.path.startswith(API):
            return otherwise(request, *args, **kwargs)
        if isinstance(kwargs.get("exception"), DisallowedHost):
            return _answer(request, status, "The Host header is none of AGENTOPS_ALLOWED_HOSTS.")
        return _answer(request, status, detail)

    return handle


handler400 = _handler(HTTPStatus.BAD_REQUEST, "The request is malformed.", defaults.bad_request)
handler403 = _handler(HTTPStatus.FORBIDDEN, "This is not allowed.", defaults.permission_denied)
handler404 = _handler(HTTPStatus.NOT_FOUND, "Nothing is here.", defaults.page_not_found)
handler500 = _handler(
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "A bug, or something that broke; the log has the details.",
    defaults.server_error,
)


def _answer(request: HttpRequest, status: HTTPStatus, detail: str) -> HttpResponse:
    problem = Problem(
        type=f"urn:agentops:problem:{_slug(status)}",
        title=status.phrase,
        status=status,
        detail=detail,
        instance=bound_text(request.path, 500),
    )
    return HttpResponse(
        problem.model_dump_json(exclude_none=True), status=status, content_type=MEDIA_TYPE
    )
