"""The page of one request: what would be done, and the two words that can be said of it.

Guarantees: everything that is signed stands above the buttons, in the order in which it is to
be weighed; a GET changes nothing; a POST is the command that the API calls. Whoever answers a
page that has become stale gets the page as it is now, with what happened and what changed, and
nothing lost of what they typed. Who may not sign reads why in place of the buttons.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from approvals.admin.showing import (
    agents_words,
    arguments_of,
    has_run_out,
    request_url,
    say_action,
    say_list,
    say_rule,
    say_signatures,
    signatures,
    so_far,
    status_badge,
    until,
    what_changed,
)
from approvals.admin.words import Refusal, new_event_id, posted, sign
from approvals.commands import read_missing
from approvals.durations import say_duration
from approvals.eligibility import Person, find_person, require_may_sign, signing_groups
from approvals.errors import NotThisPerson, UnknownApproval
from approvals.inbox import get_approval
from approvals.models import Verdict
from runs.access import Actor
from runs.admin.readonly import Cell, Fact, Notice, Table
from runs.admin.show import NOTHING, PARAGRAPH, Tone, line, link, quote, visible, when
from runs.models import TEXT_LIMIT, Approval
from runs.sensitive import without_secrets

if TYPE_CHECKING:
    from approvals.admin.inbox import ApprovalAdmin

TEMPLATE: Final = "admin/approvals/request.html"
# A request replaced by one that was replaced, and so on: read on this far.
LONGEST_CHAIN: Final = 10
Status = Approval.Status


@dataclass(frozen=True)
class Form:
    """What was typed, and why it was not heard."""

    reason: str = ""
    error: str = ""
    refusal: Refusal | None = None


def request_view(page: "ApprovalAdmin", request: HttpRequest, key: str) -> HttpResponse:
    """One request; nothing changes."""
    if request.method not in {"GET", "HEAD"}:
        return HttpResponseNotAllowed(["GET", "HEAD"])
    try:
        approval = get_approval(key)
    except UnknownApproval:
        return page.not_found(request, key)
    return show(page, request, approval, Form())


def verdict_view(page: "ApprovalAdmin", request: HttpRequest, key: str) -> HttpResponse:
    """POST says one word and leads back to the request; anything else leads there at once."""
    if request.method in {"GET", "HEAD"}:
        return HttpResponseRedirect(request_url(key))
    if request.method != "POST":
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    reason = posted(request, "reason")
    answer = sign(
        request,
        approval_id=key,
        verdict=posted(request, "verdict"),
        fingerprint=posted(request, "fingerprint"),
        reason=reason,
        event_id=posted(request, "event_id"),
    )
    if (refusal := answer.refusal) is None:
        assert answer.approval is not None
        said = _heard_before(answer.approval) if answer.was_heard else _heard(answer.approval)
        messages.success(request, said)
        return HttpResponseRedirect(request_url(key))
    try:
        approval = get_approval(key)
    except UnknownApproval:
        return page.not_found(request, key)
    error = dict(refusal.problems).get("reason", "")
    return show(page, request, approval, Form(reason, error, refusal), status=refusal.status)


def show(
    page: "ApprovalAdmin",
    request: HttpRequest,
    approval: Approval,
    form: Form,
    *,
    status: int = 200,
) -> HttpResponse:
    operation = approval.operation
    sentence = say_action(operation)
    may_follow = request.user.has_perm("runs.view_tooloperation")
    cannot = why_not(find_signer(request), approval)
    is_open = approval.status == Status.PENDING and not has_run_out(approval)
    run_url = reverse("admin:runs_agentrun_change", args=[approval.run_id])
    context = page.page_context(request, title=sentence) | {
        "approval": approval,
        "sentence": sentence,
        "state": status_badge(approval),
        "refused": say_refusal(approval, form.refusal) if form.refusal else None,
        "refusal": form.refusal,
        "typed_in_vain": "" if is_open else line(form.reason, TEXT_LIMIT) if form.reason else "",
        "standing": None if is_open else say_standing(approval),
        "news": news_for(approval) if not is_open else [],
        "arguments": arguments_of(operation),
        "differences": _differences(approval),
        "because": _because(approval),
        "facts": _facts(request, approval),
        "objective": visible(without_secrets(approval.run.objective, operation)[:TEXT_LIMIT]),
        "started_by": line(approval.run.created_by, 100),
        "agent": line(approval.run.agent, 100),
        "run_url": run_url if request.user.has_perm("runs.view_agentrun") else "",
        "so_far": so_far(approval, linked=may_follow),
        "words": agents_words(approval),
        "signatures": signatures(approval),
        "signed": line(say_signatures(approval), 300),
        "left": until(approval.approve_by),
        "is_open": is_open,
        "cannot": cannot,
        "has_signed": _has_signed(request, approval),
        "form": form,
        "event_id": new_event_id(),
        "verdict_url": reverse("admin:runs_approval_verdict", args=[approval.pk]),
        "propose_url": reverse("admin:runs_approval_propose", args=[approval.pk]),
        "text_limit": TEXT_LIMIT,
        "now": timezone.now().isoformat(),
        "back": reverse("admin:runs_approval_changelist"),
    }
    return TemplateResponse(request, TEMPLATE, context, status=status)


def find_signer(request: HttpRequest) -> Person | str:
    """Who looks at the page, as the database knows them; or why they may decide nothing."""
    try:
        # The actor is the user: the page asks what the user may do.
        return find_person(actor=Actor(name="", scopes=frozenset()), user=request.user)
    except NotThisPerson as error:
        return line(str(error), 500)


def why_not(signer: Person | str, approval: Approval) -> str:
    """Why they may not decide on this one; empty if they may."""
    if isinstance(signer, str):
        return signer
    try:
        require_may_sign(signer, approval)
    except NotThisPerson as error:
        return line(str(error), 500)
    return ""


def say_refusal(approval: Approval, refusal: Refusal) -> Notice:
    """What a person is told whose word was not heard."""
    title, lines = "Nothing of yours was recorded", [line(refusal.text, PARAGRAPH)]
    match refusal.kind:
        case "AlreadyDecided" | "Superseded" | "RanOut":
            lines = ["It was ended before your answer came:", *_happened(approval)]
        case "AlreadySigned":
            lines = ["You have signed it already; it waits for others."]
        case "AnotherFingerprint":
            lines = [
                "Your page showed another action than the one that waits here. Look at it as it is "
                "now, and answer again if you still mean it."
            ]
        case "InvalidInput" if refusal.problems:
            lines = [visible(fix) for _, fix in refusal.problems]
    return Notice(tone="danger", title=title, lines=lines)


def say_standing(approval: Approval) -> Notice:
    """What became of a request that nobody can decide any more."""
    tones: dict[str, Tone] = {Status.APPROVED: "success", Status.DENIED: "danger"}
    return Notice(
        tone=tones.get(approval.status, "neutral"),
        title="There is nothing to decide any more",
        lines=_happened(approval),
    )


def news_for(approval: Approval) -> list[Table]:
    """What the request that replaced this one asks for, compared with it."""
    newest = find_newest(approval)
    if newest is None:
        return []
    return [what_changed(approval, newest, title="What changed since")]


def find_newest(approval: Approval) -> Approval | None:
    """The request that stands in the place of this one now; None where there is none."""
    newest, here = None, approval.pk
    for _ in range(LONGEST_CHAIN):
        later = Approval.objects.filter(supersedes=here).select_related("operation")
        found = later.order_by("-requested_at", "-id").first()
        if found is None:
            break
        newest, here = found, found.pk
    return newest


def _heard(approval: Approval) -> str:
    if approval.status == Status.DENIED:
        return "Denied. It is not sent, and the agent is told why."
    if approval.status == Status.APPROVED:
        return "Approved. The run goes on."
    return f"Signed. It still needs {read_missing(approval)}."


def _heard_before(approval: Approval) -> str:
    return f"This word of yours was recorded already, once. The request is {approval.status}."


def _happened(approval: Approval) -> list[Cell]:
    by = line(approval.decided_by, 150)
    reason = quote(without_secrets(approval.reason, approval.operation))
    newest = find_newest(approval) if approval.status == Status.SUPERSEDED else None
    lines: list[Cell] = []
    match Status(approval.status):
        case Status.APPROVED:
            lines.append(format_html("{} approved it {}.", by, when(approval.decided_at)))
            lines.append(_use_of(approval))
        case Status.DENIED:
            lines.append(format_html("{} denied it {}: {}", by, when(approval.decided_at), reason))
        case Status.EXPIRED | Status.PENDING:
            lines.append(format_html("Its time ran out {}.", when(approval.approve_by)))
            lines.append("Nobody refused it. It is not sent; its run can ask again.")
        case Status.CANCELLED:
            lines.append(
                "It is not sent: its run was cancelled, the call was given up, or policy refuses "
                "it by now."
            )
        case Status.SUPERSEDED if approval.proposed_by:
            who = line(approval.proposed_by, 150)
            lines.append(format_html("{} proposed other arguments: {}", who, reason))
        case Status.SUPERSEDED:
            lines.append("The action, or the rules that it stands under, changed.")
    if newest is not None:
        target = link(request_url(newest.pk), "Open the request as it is now")
        lines.append(format_html("{} ({}).", target, newest.status))
    elif approval.status == Status.SUPERSEDED:
        lines.append("It is asked anew as soon as a worker has taken it up, if at all.")
    return lines


def _use_of(approval: Approval) -> Cell:
    if approval.spent_at is not None:
        return format_html("It was used by the send that began {}.", when(approval.spent_at))
    return format_html("It may be sent until {}.", when(approval.execute_by))


def _differences(approval: Approval) -> Table | None:
    if approval.supersedes_id is None:
        return None
    before = Approval.objects.select_related("operation").get(pk=approval.supersedes_id)
    return what_changed(before, approval, title="What is different from what was asked before")


def _because(approval: Approval) -> str:
    """What changed since it was asked before, or could not be read; empty for neither."""
    said = approval.asked_because
    return line(without_secrets(said, approval.operation), PARAGRAPH) if said else ""


def _has_signed(request: HttpRequest, approval: Approval) -> bool:
    return any(
        one.verdict != Verdict.Kind.PROPOSE
        and (one.user_id == request.user.pk or one.name == request.user.get_username())
        for one in approval.verdicts.all()
    )


def _facts(request: HttpRequest, approval: Approval) -> dict[str, Any]:
    operation = approval.operation
    where = " · ".join(part for part in (operation.provider, operation.account) if part)
    operation_url = reverse("admin:runs_tooloperation_change", args=[operation.pk])
    shown: Cell = operation.pk
    if request.user.has_perm("runs.view_tooloperation"):
        shown = link(operation_url, operation.pk)
    escalation: list[Fact] = []
    if approval.escalate_to:
        by_whom = line(", ".join(approval.escalate_to))
        said = "since" if approval.escalated_at else "from"
        since = when(approval.escalated_at or approval.escalate_at)
        escalation.append(
            Fact("Also signed by", format_html("{} <small>{}</small> {}", by_whom, said, since))
        )
    return {
        "rule": [
            Fact("Rule", say_rule(approval)),
            Fact("Version of the policies", line(approval.policy_version)),
            Fact("Signatures", line(say_signatures(approval), 300)),
            Fact("Who may sign", say_list(signing_groups(approval))),
            *escalation,
            Fact("Asked for by", line(approval.requester, 100)),
            Fact("Asked", when(approval.requested_at)),
        ],
        "action": [
            Fact("Tool", line(operation.tool)),
            Fact("Version of the tool", line(operation.tool_version)),
            Fact("Effect", operation.effect_type.replace("_", " ").lower() or NOTHING),
            Fact("Provider", line(where)),
            Fact("Version of what it acts on", line(approval.resource_version, 255)),
            Fact("Operation", shown),
            Fact("Fingerprint", approval.fingerprint),
        ],
        "dates": _dates(approval),
    }


def _dates(approval: Approval) -> list[Fact]:
    if approval.decided_at is not None:
        by = line(approval.decided_by, 150)
        return [Fact("Decided", when(approval.decided_at)), Fact("By", by)]
    if approval.status != Status.PENDING:
        return [Fact("Was to be decided by", when(approval.approve_by))]
    return [
        Fact("Decide by", until(approval.approve_by)),
        Fact("Once approved, sent within", say_duration(approval.execute_within)),
    ]
