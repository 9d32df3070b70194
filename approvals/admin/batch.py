"""Approving several requests at once: only what is alike, and only with the list in view.

Guarantees: they all have one tool, one rule and one version of the policies, or none is signed;
every one of them stands on the page with its arguments; each is signed by its own fingerprint,
in a transaction of its own, so one that changed meanwhile is left out and the others are not.
What came of each is shown.

Does not deny: a denial needs a reason of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from approvals.admin.request import find_signer, why_not
from approvals.admin.showing import (
    Argument,
    arguments_of,
    has_run_out,
    request_url,
    say_action,
    say_rule,
    say_signatures,
    until,
)
from approvals.admin.words import Answer, new_event_id, posted, sign
from approvals.commands import read_missing
from approvals.eligibility import Person
from approvals.inbox import find_approvals
from runs.admin.lists import PER_PAGE
from runs.admin.readonly import Cell, Table
from runs.admin.show import badge, line, link
from runs.models import Approval

if TYPE_CHECKING:
    from approvals.admin.inbox import ApprovalAdmin

TEMPLATE: Final = "admin/approvals/batch.html"
MOST: Final = PER_PAGE


@dataclass(frozen=True)
class Item:
    """One request of the list; `cannot` says why it is not signed with the others."""

    approval: Approval
    sentence: str
    url: str
    arguments: Sequence[Argument]
    requester: str
    signed: str
    left: Cell
    event_id: str
    cannot: str


def batch_view(page: "ApprovalAdmin", request: HttpRequest) -> HttpResponse:
    """GET lists what was chosen and asks; POST signs each and says what came of it."""
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    picked = _picked(request)
    chosen = sorted(find_approvals().filter(pk__in=picked), key=lambda one: one.approve_by)
    if not chosen:
        messages.warning(request, "Choose requests in the list first.")
        return HttpResponseRedirect(reverse("admin:runs_approval_changelist"))
    unlike = find_unlike(chosen)
    if request.method != "POST" or unlike:
        return _ask(page, request, chosen, unlike)
    answers = [(approval, _sign(request, approval)) for approval in chosen]
    context = page.page_context(request, title="Approved together") | {
        "results": _results(answers),
        "signed": sum(answer.refusal is None for _, answer in answers),
        "total": len(answers),
        "back": reverse("admin:runs_approval_changelist"),
    }
    heard = any(answer.refusal is None for _, answer in answers)
    return TemplateResponse(request, TEMPLATE, context, status=200 if heard else 409)


def find_unlike(chosen: Sequence[Approval]) -> list[str]:
    """In which of the things that must be the same these requests differ, by name."""
    kinds = {
        "tool": {one.operation.tool for one in chosen},
        "version of the tool": {one.operation.tool_version for one in chosen},
        "rule": {one.rule for one in chosen},
        "version of the policies": {one.policy_version for one in chosen},
    }
    return [name for name, values in kinds.items() if len(values) > 1]


def _sign(request: HttpRequest, approval: Approval) -> Answer:
    return sign(
        request,
        approval_id=str(approval.pk),
        verdict="approve",
        fingerprint=posted(request, f"fingerprint-{approval.pk}"),
        reason="",
        event_id=posted(request, f"event-{approval.pk}"),
    )


def _picked(request: HttpRequest) -> list[UUID]:
    given = request.POST if request.method == "POST" else request.GET
    found = []
    for text in given.getlist("pick")[:MOST]:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found


def _ask(
    page: "ApprovalAdmin", request: HttpRequest, chosen: Sequence[Approval], unlike: Sequence[str]
) -> HttpResponse:
    signer = find_signer(request)
    items = [_item(request, signer, approval) for approval in chosen]
    first = chosen[0]
    context = page.page_context(request, title="Approve together") | {
        "items": items,
        "signable": [] if unlike else [one for one in items if not one.cannot],
        "unlike": ", ".join(unlike),
        "tool": line(first.operation.tool),
        "rule": say_rule(first),
        "policy_version": line(first.policy_version),
        "now": timezone.now().isoformat(),
        "back": reverse("admin:runs_approval_changelist"),
    }
    status = 409 if unlike and request.method == "POST" else 200
    return TemplateResponse(request, TEMPLATE, context, status=status)


def _item(request: HttpRequest, signer: Person | str, approval: Approval) -> Item:
    return Item(
        approval=approval,
        sentence=say_action(approval.operation),
        url=request_url(approval.pk),
        arguments=arguments_of(approval.operation),
        requester=line(approval.requester, 100),
        signed=line(say_signatures(approval), 200),
        left=until(approval.approve_by),
        event_id=new_event_id(),
        cannot=_why_not(request, signer, approval),
    )


def _why_not(request: HttpRequest, signer: Person | str, approval: Approval) -> str:
    if approval.status != Approval.Status.PENDING:
        return f"It is {approval.status} by now."
    if has_run_out(approval):
        return "Its time is over."
    if any(one.name == request.user.get_username() for one in approval.verdicts.all()):
        return "You have signed it already."
    return why_not(signer, approval)


def _results(answers: Sequence[tuple[Approval, Answer]]) -> Table:
    return Table(
        headers=("action", "came to", "why"),
        rows=[
            [
                link(request_url(approval.pk), say_action(approval.operation)),
                *_came_to(approval, answer),
            ]
            for approval, answer in answers
        ],
        title="What came of each",
    )


def _came_to(approval: Approval, answer: Answer) -> tuple[Cell, Cell]:
    if answer.refusal is not None:
        shown = format_html(
            '<span data-refused="{}">{}</span>',
            answer.refusal.kind,
            badge("Not signed", "danger"),
        )
        # Which one it is stands beside it.
        why = re.sub(rf"\bapproval {approval.pk}", "it", answer.refusal.text, flags=re.IGNORECASE)
        return shown, line(why[:1].upper() + why[1:], 500)
    assert answer.approval is not None
    said = "It was signed before, by this same list." if answer.was_heard else ""
    if answer.approval.status == Approval.Status.PENDING:
        missing = f"It still needs {read_missing(answer.approval)}."
        return badge("Signed", "success"), line(f"{said} {missing}".strip(), 300)
    return badge(answer.approval.status.capitalize(), "success"), line(said or "The run goes on.")
