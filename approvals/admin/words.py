"""What a person says on a page, put to the commands, and what came of it as a value.

Guarantees: the person is the one who is signed in; the fingerprint and the event id are those
that the form carries, so the same form sent twice is one word, and the second time is told
apart from a conflict. A refusal is a value with its status, never a traceback.

Does not decide who may: the commands do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from approvals.changes import changed_arguments
from approvals.commands import decide, propose
from approvals.errors import (
    AnotherFingerprint,
    ApprovalError,
    NotThisPerson,
    TooLate,
    UnfitAnswer,
    UnknownApproval,
    UnknownQuestion,
)
from approvals.models import Verdict
from runs.access import APPROVALS_DECIDE, Actor
from runs.errors import InvalidInput
from runs.models import NAME, Approval
from tools.errors import InvalidArguments, ToolError, UnknownTool

PERMISSION: Final = "runs.decide_approval"


@dataclass(frozen=True)
class Refusal:
    """Why a word was not heard: `kind` is the condition, `problems` are by field."""

    kind: str
    status: int
    text: str
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """The approval as it stands then, or why not. `was_heard`: this form was sent before."""

    approval: Approval | None = None
    refusal: Refusal | None = None
    was_heard: bool = False


def may_decide(request: HttpRequest) -> bool:
    return request.user.has_perm(PERMISSION)


def new_event_id() -> str:
    """Names the one word that a form, made now, can say."""
    return f"page-{uuid4().hex}"


def posted(request: HttpRequest, name: str) -> str:
    """A field as it may be shown again: browsers send line ends of their own."""
    given = request.POST.get(name, "").replace("\r\n", "\n")
    return given.replace("\0", "\N{REPLACEMENT CHARACTER}")


def sign(
    request: HttpRequest,
    *,
    approval_id: str,
    verdict: str,
    fingerprint: str,
    reason: str,
    event_id: str,
) -> Answer:
    """Approve or deny as the person at the page."""
    try:
        approval = decide(
            actor=actor_of(request, APPROVALS_DECIDE),
            user=request.user,
            approval_id=approval_id,
            verdict=verdict,  # type: ignore[arg-type]  # the command checks it
            fingerprint=fingerprint,
            reason=reason,
            event_id=event_id,
            via="admin",
        )
    except TooLate as error:
        said = Verdict.objects.filter(
            approval_id=error.approval_id,
            event_id=event_id or None,
            user=_user(request),
            verdict=verdict,
        ).exists()
        if said and event_id:
            return Answer(Approval.objects.get(id=error.approval_id), was_heard=True)
        return Answer(refusal=refusal_of(error))
    except (ApprovalError, InvalidInput) as error:
        return Answer(refusal=refusal_of(error))
    return Answer(approval)


def put_forward(
    request: HttpRequest,
    approval: Approval,
    *,
    arguments: Mapping[str, Any],
    fingerprint: str,
    reason: str,
) -> Answer:
    """Propose other arguments as the person at the page."""
    try:
        proposed = propose(
            actor=actor_of(request, APPROVALS_DECIDE),
            user=request.user,
            approval_id=approval.id,
            arguments=arguments,
            fingerprint=fingerprint,
            reason=reason,
            via="admin",
        )
    except TooLate as error:
        now = Approval.objects.select_related("operation").get(id=approval.id)
        if now.proposed_by_user_id == request.user.pk and _is_what_is_proposed(now, arguments):
            return Answer(now, was_heard=True)
        return Answer(refusal=refusal_of(error))
    except (ApprovalError, InvalidInput, InvalidArguments, UnknownTool) as error:
        return Answer(refusal=refusal_of(error))
    return Answer(proposed)


def _is_what_is_proposed(approval: Approval, arguments: Mapping[str, Any]) -> bool:
    try:
        same: bool = changed_arguments(approval.operation, arguments) == approval.proposed_arguments
    except (InvalidInput, ToolError):
        return False
    return same


def actor_of(request: HttpRequest, scope: str) -> Actor:
    """The person at the page, for a command that needs this scope."""
    user = _user(request)
    # The permission is asked of the user by the command, as at every entry point.
    return Actor(name=user.get_username()[:NAME], scopes=frozenset({scope}), user_id=user.pk)


def _user(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def refusal_of(error: Exception) -> Refusal:
    """Why a word was not heard; 409 where the condition is no other one."""
    kind = type(error).__name__
    match error:
        case NotThisPerson():
            return Refusal(kind, 403, str(error))
        case UnknownApproval() | UnknownQuestion():
            return Refusal(kind, 404, str(error))
        case AnotherFingerprint():
            return Refusal(kind, 412, str(error))
        case InvalidInput():
            return Refusal(kind, 400, str(error), ((error.field, error.fix),))
        case InvalidArguments() | UnfitAnswer():
            told = ((one.field, one.fix) for one in error.problems)
            return Refusal(kind, 400, str(error), tuple(told))
    return Refusal(kind, 409, str(error))
