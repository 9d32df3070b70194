"""The page on which other arguments are proposed: one field per argument of the tool.

Guarantees: a field holds what would be sent, and what comes back unchanged stays the very same
value, line ends and unseen characters included; what cannot be read, or does not fit, is named
at its field with nothing lost of what was typed. A value that is hidden stays what it is unless
somebody writes another.

Does not check that arguments fit the tool: the command does.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from approvals.admin.request import find_signer, news_for, say_refusal, say_standing, why_not
from approvals.admin.showing import has_run_out, request_url, say_action, until
from approvals.admin.words import Refusal, posted, put_forward
from approvals.errors import UnknownApproval
from approvals.inbox import get_approval
from runs.admin.show import visible
from runs.models import TEXT_LIMIT, Approval, ToolOperation
from runs.requests import MalformedJson, read_json
from runs.sensitive import names_of_operation
from tools.errors import UnknownTool
from tools.redaction import REDACTED, redact
from tools.registry import get_tool

if TYPE_CHECKING:
    from approvals.admin.inbox import ApprovalAdmin

PREFIX: Final = "argument-"
# A line is enough for a value as long as this; a longer one gets some.
ONE_LINE: Final = 80


@dataclass
class Field:
    """One argument in the form. `kind` says how what was typed is read."""

    name: str
    kind: str  # text, number, choice or json
    typed: str
    needed: bool
    secret: bool = False
    # Whether what waits has this argument at all.
    given: bool = True
    options: list[tuple[str, str]] = field(default_factory=list)
    help: str = ""
    error: str = ""

    @property
    def id(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def rows(self) -> int:
        """How many lines its box has; 0 for a box of one line."""
        if self.kind == "json" or "\n" in self.typed or len(self.typed) > ONE_LINE:
            return min(12, max(3, self.typed.count("\n") + len(self.typed) // ONE_LINE + 1))
        return 0

    @property
    def hint(self) -> str:
        """What kind of value it takes, for those who do not see its schema."""
        said = {"json": "As JSON.", "number": "A number."}.get(self.kind, "")
        if self.secret:
            said = f"{said} Hidden: it stays what it is unless you write another value.".strip()
        return " ".join(filter(None, (self.help, said)))

    def read(self) -> Any:
        """What was typed, as JSON. Raises ValueError or MalformedJson."""
        if self.secret and self.typed.strip() == REDACTED:
            return REDACTED
        match self.kind:
            case "text":
                return self.typed
            case "number":
                value = read_json(self.typed.strip() or "null", field=self.name)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ValueError("Write a number.")
                return value
        return read_json(self.typed.strip() or "null", field=self.name)


def propose_view(page: "ApprovalAdmin", request: HttpRequest, key: str) -> HttpResponse:
    """GET asks; POST proposes and leads to the request."""
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    try:
        approval = get_approval(key)
    except UnknownApproval:
        return page.not_found(request, key)
    try:
        fields = fields_of(approval.operation)
    except UnknownTool:
        messages.warning(
            request, f"No tool {approval.operation.tool} is known here, so nothing can be proposed."
        )
        return HttpResponseRedirect(request_url(approval.pk))
    if request.method != "POST":
        return _ask(page, request, approval, fields)
    for one in fields:
        one.typed = posted(request, one.id)
    arguments = _read(fields)
    has_reason = bool(posted(request, "reason").strip())
    if arguments is None or not has_reason:
        # All of it at once, and nothing is asked of the command.
        return _ask(page, request, approval, fields, reasonless=not has_reason, status=400)
    answer = put_forward(
        request,
        approval,
        arguments=arguments,
        fingerprint=posted(request, "fingerprint"),
        reason=posted(request, "reason"),
    )
    if answer.refusal is None:
        said = "This change of yours was recorded already, once."
        if not answer.was_heard:
            said = "Proposed. It is asked anew with your arguments, and others have to sign it."
        messages.success(request, said)
        return HttpResponseRedirect(request_url(approval.pk))
    approval = get_approval(key)
    _place(fields, answer.refusal)
    return _ask(page, request, approval, fields, answer.refusal, status=answer.refusal.status)


def fields_of(operation: ToolOperation) -> list[Field]:
    """The form of what waits. Raises UnknownTool."""
    schema = get_tool(operation.tool).arguments_schema()
    hidden = names_of_operation(operation)
    shown: Mapping[str, Any] = redact(operation.arguments, hidden)
    needed = schema.get("required", ())
    return [
        _field(name, declared, shown, needed=name in needed, hidden=hidden)
        for name, declared in schema.get("properties", {}).items()
    ]


def _field(
    name: str,
    declared: Mapping[str, Any],
    shown: Mapping[str, Any],
    *,
    needed: bool,
    hidden: Collection[str],
) -> Field:
    given = name in shown
    value = shown.get(name, declared.get("default"))
    made = Field(
        name=name,
        kind=_kind(declared, value),
        typed="",
        needed=needed,
        secret=name.casefold() in {one.casefold() for one in hidden},
        given=given,
        help=visible(str(declared.get("description", ""))),
    )
    if made.secret and value == REDACTED:
        made.typed = REDACTED
    elif made.kind == "text":
        made.typed = value
    elif given or value is not None:
        made.typed = _as_json(value, indent=2 if isinstance(value, dict | list) else None)
    if made.kind == "choice":
        made.options = [(_as_json(one), _said(one)) for one in _choices(declared)]
    return made


def _kind(declared: Mapping[str, Any], value: Any) -> str:
    if _choices(declared) and value in _choices(declared):
        return "choice"
    if value == REDACTED:
        return "text" if "string" in _types(declared) else "json"
    # What a box would change on its way, or a reader could not see, is written as JSON.
    is_plain = isinstance(value, str) and "\r" not in value and visible(value) == value
    if is_plain and "string" in _types(declared):
        return "text"
    if _types(declared) <= {"integer", "number"} and not isinstance(value, bool):
        return "number"
    return "json"


def _types(declared: Mapping[str, Any]) -> set[str]:
    found = {str(one.get("type")) for one in declared.get("anyOf", ()) if isinstance(one, Mapping)}
    return found or {str(declared.get("type"))}


def _choices(declared: Mapping[str, Any]) -> list[Any]:
    if declared.get("type") == "boolean":
        return [True, False]
    return list(declared.get("enum", ()))


def _as_json(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return text if visible(text) == text else json.dumps(value, indent=indent)


def _said(value: Any) -> str:
    return visible(value) if isinstance(value, str) else _as_json(value)


def _read(fields: list[Field]) -> dict[str, Any] | None:
    """All that was typed; None where a field cannot be read, which then says so."""
    arguments = {}
    for one in fields:
        if not one.given and not one.typed.strip():
            # It was left out, and stays so.
            continue
        try:
            arguments[one.name] = one.read()
        except MalformedJson as error:
            one.error = visible(f"This is no JSON: {error.why}.")
        except ValueError as error:
            one.error = visible(str(error))
    return None if any(one.error for one in fields) else arguments


def _place(fields: list[Field], refusal: Refusal) -> None:
    """Put what is wrong to the fields that it is about."""
    by_name = {one.name: one for one in fields}
    for place, fix in refusal.problems:
        name = place.removeprefix("arguments.").partition(".")[0].partition("[")[0]
        if (found := by_name.get(name)) is not None:
            found.error = f"{found.error} {visible(fix)}".strip()


def _ask(
    page: "ApprovalAdmin",
    request: HttpRequest,
    approval: Approval,
    fields: list[Field],
    refusal: Refusal | None = None,
    *,
    reasonless: bool = False,
    status: int = 200,
) -> HttpResponse:
    is_open = approval.status == Approval.Status.PENDING and not has_run_out(approval)
    problems = dict(refusal.problems) if refusal else {}
    if reasonless:
        problems["reason"] = "Say why you propose it; it stands in the record."
    wrong = [(one.id, one.name, one.error) for one in fields if one.error]
    if "reason" in problems:
        wrong.append(("reason", "Why", visible(problems["reason"])))
    context = page.page_context(request, title="Propose changes") | {
        "approval": approval,
        "sentence": say_action(approval.operation),
        "fields": fields,
        "wrong": wrong,
        "refusal": refusal,
        # What is said at a field is not said twice.
        "refused": say_refusal(approval, refusal) if refusal and not wrong else None,
        "standing": None if is_open else say_standing(approval),
        "news": [] if is_open else news_for(approval),
        "reason": posted(request, "reason"),
        "reason_error": visible(problems.get("reason", "")),
        "is_open": is_open,
        "cannot": why_not(find_signer(request), approval),
        "left": until(approval.approve_by),
        "now": timezone.now().isoformat(),
        "text_limit": TEXT_LIMIT,
        "action_url": reverse("admin:runs_approval_propose", args=[approval.pk]),
        "back": request_url(approval.pk),
    }
    return TemplateResponse(request, "admin/approvals/propose.html", context, status=status)
