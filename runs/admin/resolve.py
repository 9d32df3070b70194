"""The page on which a person settles an unknown operation.

Guarantees: the evidence comes before the question; a GET changes nothing; a POST is the
command that the API calls, by those who have `runs.resolve_operation`. Whoever answers on
the ground of evidence that has changed since is shown the change and asked again, with
nothing lost of what they typed.

Does not hide the evidence from those who may settle: the permission includes seeing it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html

from runs.access import OPERATIONS_RESOLVE, Actor
from runs.admin.evidence import Evidence, Mark, gather, news_since
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Table
from runs.admin.show import (
    json_block,
    line,
    operation_badge,
    record_url,
    run_link,
    visible,
    when,
)
from runs.errors import (
    AlreadySettled,
    InvalidInput,
    ProvenCommitted,
    RunHeld,
    RunsError,
    StillInFlight,
)
from runs.models import NAME, TEXT_LIMIT, ToolOperation
from runs.requests import MalformedJson, read_json
from runs.resolution import resolve_operation
from runs.sensitive import names_of_operation
from runs.state import OperationStatus

PERMISSION: Final = "runs.resolve_operation"
FIELDS: Final = {
    "outcome": "What became of it",
    "evidence": "How you know",
    "external_ref": "The provider's reference",
    "result": "Its result",
}


@dataclass(frozen=True)
class Choice:
    """One answer, what it does, and what is said once it is done."""

    value: str
    title: str
    does: str
    done: str
    needs_settled: bool = True


CHOICES: Final = (
    Choice(
        "committed",
        "It happened",
        "The effect is recorded as below and the run goes on after it. Nothing is sent.",
        "Recorded that it happened. The run goes on after it.",
        needs_settled=False,
    ),
    Choice(
        "not_committed",
        "It did not happen: send it again",
        "It is sent again, with the same id, idempotency key and arguments.",
        "Recorded that it did not happen. It is sent again.",
    ),
    Choice(
        "rejected",
        "It did not happen and must not",
        "It is closed as rejected. The agent is told so and decides what comes next.",
        "Closed as rejected. The agent decides what comes next.",
    ),
)


_DONE: Final = {choice.value: choice.done for choice in CHOICES}


@dataclass
class Form:
    """What was typed, and what is wrong with it by field; `other` concerns none of them."""

    given: Mapping[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    other: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.errors or self.other)

    @property
    def labelled_errors(self) -> list[tuple[str, str, str]]:
        return [(name, FIELDS[name], text) for name, text in self.errors.items()]


def may_resolve(request: HttpRequest) -> bool:
    return request.user.has_perm(PERMISSION)


def resolve_view(page: ReadOnlyAdmin, request: HttpRequest, operation_id: str) -> HttpResponse:
    """GET asks; POST settles and leads back to the operation."""
    if not may_resolve(request):
        raise PermissionDenied
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    operation = page.find(operation_id)
    if operation is None:
        return page.not_found(request, operation_id)
    if request.method != "POST":
        return _ask(page, request, operation, Form())
    form = Form({name: _text(request.POST.get(name, "")) for name in FIELDS})
    if news := news_since(operation, Mark.read(request.POST.get("mark", ""))):
        form.other = _what_changed(operation)
        return _ask(page, request, operation, form, news=news, status=409)
    status = _settle(request, operation, form)
    if not form.is_refused:
        messages.success(request, _DONE[form.given["outcome"]])
        return HttpResponseRedirect(record_url(ToolOperation, operation.pk))
    operation.refresh_from_db()
    news = news_since(operation, Mark.read(request.POST.get("mark", "")))
    return _ask(page, request, operation, form, news=news, status=status)


def _settle(request: HttpRequest, operation: ToolOperation, form: Form) -> int:
    """Settle it; what is refused stands in the form, and the answer's status is returned."""
    assert isinstance(request.user, User)
    given = form.given
    actor = Actor(name=request.user.get_username()[:NAME], scopes=frozenset({OPERATIONS_RESOLVE}))
    try:
        resolve_operation(
            actor=actor,
            operation_id=operation.pk,
            outcome=given["outcome"],  # type: ignore[arg-type]  # the command checks it
            evidence=given["evidence"],
            external_ref=given["external_ref"].strip(),
            result=read_json(given["result"], field="result") if given["result"].strip() else None,
        )
    except (InvalidInput, MalformedJson) as error:
        name = error.field.partition(".")[0]
        sentence = str(error).removeprefix(f"{error.field}: ")
        if name == "outcome":
            sentence = "Choose one of the three."
        form.errors[name if name in FIELDS else "evidence"] = visible(sentence)
        return 400
    except (AlreadySettled, StillInFlight, ProvenCommitted, RunHeld) as error:
        form.other = visible(str(error))
        return 409
    except RunsError as error:
        form.other = visible(str(error))
        return 400
    return 200


def _ask(
    page: ReadOnlyAdmin,
    request: HttpRequest,
    operation: ToolOperation,
    form: Form,
    *,
    news: list[Table] | None = None,
    status: int = 200,
) -> HttpResponse:
    evidence = gather(operation)
    context = page.page_context(request, title="Settle an unknown operation") | {
        "tool": line(operation.tool),
        "operation_id": operation.pk,
        "state": operation_badge(operation.status),
        "is_unknown": operation.status == OperationStatus.UNKNOWN,
        "facts": _facts(operation),
        "arguments": json_block("Arguments", operation.arguments, names_of_operation(operation)),
        "tables": evidence.tables,
        "news": news or [],
        "mark": evidence.mark,
        "in_flight": _in_flight(operation, evidence),
        "form": form,
        "choices": CHOICES,
        "text_limit": TEXT_LIMIT,
        "back": record_url(ToolOperation, operation.pk),
    }
    return TemplateResponse(request, "admin/runs/resolve.html", context, status=status)


def _facts(operation: ToolOperation) -> list[Fact]:
    where = " · ".join(part for part in (operation.provider, operation.account) if part)
    return [
        Fact("Provider", line(where)),
        Fact("Idempotency key", line(operation.idempotency_key, 255)),
        Fact("Kept by the provider until", when(operation.key_expires_at)),
        Fact("Unknown since", when(operation.unknown_since)),
        Fact("Run", run_link(operation.run_id)),
    ]


def _in_flight(operation: ToolOperation, evidence: Evidence) -> Cell:
    """Why nobody can know yet that it does not happen; empty once somebody can."""
    if evidence.open_senders:
        return format_html(
            "The process that sent it ({}) is not known to have ended: it may have been stopped "
            "and send yet. If it is gone, say so with worker_ended.",
            line(" and ".join(filter(None, evidence.open_senders)) or "a worker", 200),
        )
    if not operation.may_be_in_flight:
        return ""
    if operation.settles_at is None:
        return "Nobody knows until when a request may still take effect at the provider."
    return format_html(
        "A request may still take effect at the provider; that is over {}.",
        when(operation.settles_at),
    )


def _what_changed(operation: ToolOperation) -> str:
    if operation.status != OperationStatus.UNKNOWN:
        return f"It was settled meanwhile: it is {operation.status}. Nothing of yours was recorded."
    return "Something was learned meanwhile. Look at it, then send your answer again if it stands."


def _text(given: str) -> str:
    """A field as it may be shown again: browsers send line ends of their own."""
    return given.replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
