"""A request for a signature as a reader needs it: values, tables and words, all escaped.

Guarantees: arguments are shown complete, as the canonical JSON that was fingerprinted, however
long; only values that a tool declared secret are hidden, and it is said that they are. What
changed is told in words, not by colour. Text of an llm is bounded, keeps its lines, has its
unseen characters written out, and is returned apart from everything else.

Does not say who may sign: `request.py` asks the rules.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from approvals.commands import read_missing
from approvals.models import Verdict
from runs.admin.readonly import Cell, Table
from runs.admin.show import (
    NOTHING,
    PARAGRAPH,
    Tone,
    badge,
    line,
    link,
    operation_badge,
    quote,
    relative,
    visible,
    when,
)
from runs.argument_versions import describe_stored
from runs.decisions import LONGEST_RATIONALE
from runs.fingerprint import differences
from runs.models import Approval, ModelDecision, ToolOperation
from runs.sensitive import Secrets, names_of_operation, without_secrets
from runs.state import OperationStatus
from tools.canonical import canonical_json
from tools.errors import InvalidPayload
from tools.redaction import REDACTED, bound_text, redact, scrub

SO_FAR: Final = 10
SENTENCE: Final = 300
Status = Approval.Status

TONES: Final[dict[str, Tone]] = {
    Status.PENDING: "warning",
    Status.APPROVED: "success",
    Status.DENIED: "danger",
    Status.EXPIRED: "neutral",
    Status.CANCELLED: "neutral",
    Status.SUPERSEDED: "neutral",
}
LABELS: Final = {
    "account": "Account",
    "operation_id": "Operation",
    "policy_version": "Version of the policies",
    "provider": "Provider",
    "requester": "Asked for by",
    "resource_version": "Version of what it acts on",
    "run_id": "Run",
    "step_number": "Step",
    "tool": "Tool",
    "tool_version": "Version of the tool",
}
_SETTLED: Final = (
    OperationStatus.COMMITTED,
    OperationStatus.REJECTED,
    OperationStatus.CANCELLED,
    OperationStatus.UNKNOWN,
)


@dataclass(frozen=True)
class Argument:
    """One argument, complete; `note` says what a reader cannot see for themselves."""

    name: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Words:
    """What the decider wrote of a call, and of its whole decision. Nobody has checked it."""

    text: str
    of_all: str
    sure: str
    author: str
    note: str = ""


def request_url(approval_id: object) -> str:
    return reverse("admin:runs_approval_change", args=[approval_id])


def say_action(operation: ToolOperation) -> str:
    """The action in one plain sentence: the tool's own, or one made from its declaration."""
    said = describe_stored(operation)
    if not said:
        hidden = names_of_operation(operation)
        given = [
            f"{name} {_short(value)}"
            for name, value in redact(operation.arguments, hidden).items()
            if value is not None
        ]
        said = f"Call {operation.tool} with {', '.join(given)}" if given else operation.tool
    return line(without_secrets(said, operation), SENTENCE)


def status_badge(approval: Approval) -> Cell:
    if has_run_out(approval):
        return badge("Time is over", "neutral")
    return badge(approval.status.capitalize(), TONES[approval.status])


def has_run_out(approval: Approval) -> bool:
    """Whether nobody can decide any more though no sweep has said so, by this machine's clock."""
    return approval.status == Status.PENDING and approval.approve_by <= timezone.now()


def until(moment: datetime) -> Cell:
    """A time that a script counts down to; without one it is right when the page was made."""
    return format_html(
        '<time class="ao-time" data-until datetime="{}"><span>{}</span> '
        "<small>{} UTC</small></time>",
        moment.isoformat(),
        relative(moment, now=timezone.now()),
        f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
    )


def arguments_of(operation: ToolOperation) -> list[Argument]:
    """All arguments, by name, each as canonical JSON."""
    hidden = names_of_operation(operation)
    shown = []
    for name, value in sorted(redact(operation.arguments, hidden).items()):
        text = _canonical(value)
        seen = visible(text)
        notes = []
        if value != operation.arguments[name]:
            notes.append("What the tool declared secret is hidden here; the signature covers it.")
        if seen != text:
            notes.append("It has characters that cannot be seen; they are written out.")
        if len(text) > PARAGRAPH:
            notes.append(f"{len(text):,} characters; scroll to see all of them.")
        shown.append(Argument(visible(str(name)), seen, " ".join(notes)))
    return shown


def what_changed(before: Approval, after: Approval, *, title: str) -> Table:
    """Field by field, what was asked and what is; also who must sign, and by which rule."""
    hidden = names_of_operation(before.operation) | names_of_operation(after.operation)
    rows = [
        _difference(name, before.covered, after.covered, hidden)
        for name in differences(before.covered, after.covered)
    ]
    for label, old, new in (
        ("Rule that asked", before.rule, after.rule),
        ("Who must sign", say_signers(before), say_signers(after)),
    ):
        if old != new:
            rows.append([label, _CHANGED, line(old, PARAGRAPH), line(new, PARAGRAPH)])
    return Table(
        headers=("what", "how", "before", "now"),
        rows=rows,
        title=title,
        empty="Nothing of the action: its signature was used up, or ran out.",
    )


def say_rule(approval: Approval) -> str:
    """The rule that asked, in words where it is only `true`."""
    if approval.rule == "true":
        return "every call of this tool asks (its rule is “true”)"
    return line(without_secrets(approval.rule, approval.operation), PARAGRAPH)


def say_signers(approval: Approval) -> str:
    """`2 people, among them 1 of finance`."""
    people = max(approval.quorum, len(approval.groups))
    said = "1 person" if people == 1 else f"{people} people"
    return f"{said}, one each of {', '.join(approval.groups)}" if approval.groups else said


def say_signatures(approval: Approval) -> str:
    """`1 of 2, still needs 1 of finance`. Prefetch `verdicts` for a page."""
    given = sum(one.verdict == Verdict.Kind.APPROVE for one in approval.verdicts.all())
    said = f"{given} of {max(approval.quorum, len(approval.groups))}"
    if approval.status == Status.PENDING and (missing := str(read_missing(approval))):
        said += f", still needs {missing}"
    return said


def signatures(approval: Approval) -> Table:
    """Who said what, oldest first."""
    hidden = names_of_operation(approval.operation)
    return Table(
        headers=("who", "said", "reason", "when"),
        rows=[
            [
                _signer(one),
                format_html(
                    "{} <small>{}</small>", one.get_verdict_display(), one.get_via_display()
                ),
                quote(scrub(one.reason, approval.operation.arguments, hidden)),
                when(one.at),
            ]
            for one in sorted(approval.verdicts.all(), key=lambda one: one.pk)
        ],
        title="Signatures",
        empty="Nobody has said anything yet.",
    )


def so_far(approval: Approval, *, linked: bool) -> Table:
    """What the run has done, newest first. One query; `linked` for those who may follow."""
    done = (
        ToolOperation.objects.filter(run_id=approval.run_id, status__in=_SETTLED)
        .exclude(pk=approval.operation_id)
        .only(
            *("tool", "tool_version", "arguments", "sensitive"),
            *("status", "step_number", "external_ref"),
            *("settled_at", "error"),
        )
        .order_by("-step_number", "-ordinal", "-revision")[: SO_FAR + 1]
    )
    found = list(done)
    more = reverse("admin:runs_tooloperation_changelist", query={"run": approval.run_id})
    return Table(
        headers=("action", "step", "came to", "when"),
        rows=[
            [
                _did(one, linked=linked),
                str(one.step_number),
                _came_to(one),
                when(one.settled_at),
            ]
            for one in found[:SO_FAR]
        ],
        title="What has happened in this run so far",
        empty="Nothing yet: this would be its first action.",
        more_url=more if linked and len(found) > SO_FAR else "",
        more_text=f"The newest {SO_FAR} are shown; see all",
    )


def agents_words(approval: Approval) -> Words | None:
    """What the decider said of the call; None where no decision is recorded. One query."""
    operation = approval.operation
    found = ModelDecision.objects.filter(pk=operation.step_id).values("body", "decider").first()
    if found is None:
        return None
    body = found["body"] if isinstance(found["body"], Mapping) else {}
    call = _call_of(body, operation.ordinal)
    secrets = Secrets([operation.arguments, body], names_of_operation(operation))
    own, of_all = (_say_rationale(said, secrets) for said in (call, body))
    sure = call.get("confidence", body.get("confidence"))
    is_number = isinstance(sure, int | float) and not isinstance(sure, bool)
    note = ""
    if operation.revision:
        note = "It wrote this of its own call, which a person has changed since."
    return Words(
        text=own or of_all,
        of_all=of_all if own else "",
        sure=f"{sure:.0%}" if is_number else "",
        author=line(str(found["decider"]), 100),
        note=note,
    )


def _call_of(body: Mapping[str, Any], ordinal: int) -> Mapping[str, Any]:
    match body.get("calls"):
        case [*calls] if ordinal < len(calls) and isinstance(calls[ordinal], Mapping):
            found: Mapping[str, Any] = calls[ordinal]
            return found
    return {}


def _say_rationale(said: Mapping[str, Any], secrets: Secrets) -> str:
    text = said.get("rationale")
    known = secrets.without(text) if isinstance(text, str) else ""
    return visible(bound_text(known, LONGEST_RATIONALE))


def _signer(verdict: Verdict) -> Cell:
    if not verdict.groups:
        return line(verdict.name, 150)
    groups = line(", ".join(verdict.groups))
    return format_html("{} <small>for {}</small>", line(verdict.name, 150), groups)


def _did(operation: ToolOperation, *, linked: bool) -> Cell:
    said = say_action(operation)
    if not linked:
        return said
    return link(reverse("admin:runs_tooloperation_change", args=[operation.pk]), said)


def _came_to(operation: ToolOperation) -> Cell:
    shown = operation_badge(operation.status)
    if operation.external_ref:
        shown = format_html("{} <small>{}</small>", shown, line(operation.external_ref, 80))
    if operation.status == OperationStatus.COMMITTED or not operation.error:
        return shown
    error = scrub(operation.error, operation.arguments, names_of_operation(operation))
    return format_html("{} {}", shown, quote(error, 300))


# -- What changed ----------------------------------------------------------------

_ADDED: Final = badge("+ added", "success")
_REMOVED: Final = badge("− removed", "danger")
_CHANGED: Final = badge("± changed", "warning")


def _difference(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], hidden: frozenset[str]
) -> list[Cell]:
    place, _, argument = name.partition(".")
    if argument:
        old, new = before[place], after[place]
        label = f"Argument {line(argument, 100)}"
    else:
        argument, old, new = place, before, after
        label = LABELS.get(place, place)
        hidden = frozenset()
    how = _ADDED if argument not in old else _REMOVED if argument not in new else _CHANGED
    cells = (_value(values, argument, hidden, place=place) for values in (old, new))
    return [label, how, *cells]


def _value(values: Mapping[str, Any], name: str, hidden: frozenset[str], *, place: str) -> Cell:
    if name not in values:
        return NOTHING
    value = redact({name: values[name]}, hidden)[name]
    if value in ("", None):
        return "none"
    # Names and versions are words; an argument is shown as it is signed.
    text = value if value == REDACTED or place != "arguments" else _canonical(value)
    return format_html('<code class="ao-code ao-value">{}</code>', visible(str(text)))


def _canonical(value: Any) -> str:
    try:
        return canonical_json(value).decode()
    except InvalidPayload:
        # Arguments of a refused call are stored as they came.
        return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else _canonical(value)


def say_list(names: Sequence[str]) -> str:
    return line(", ".join(names)) if names else "anybody who may decide"
