"""What a notification says.

Guarantees: names of code (an agent, a tool), ids, a status, dates and one link are all that
goes out, in the subject as in the body; the event id is the same at every try, in a form that
fits where it stands: the id of a webhook holds no full stop, because the signature joins its
parts with them.

Does not read arguments, results, reasons or errors, so it cannot tell them.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, assert_never
from urllib.parse import quote

from django.conf import settings
from django.urls import reverse

from runs.models import Approval, Notice, Question, ToolOperation
from runs.state import OperationStatus

Kind = Notice.Kind
LONGEST_NAME: Final = 80
SHORT_ID: Final = 8
# Once it is decided or answered, asking for it would mislead.
_ASKING: Final = frozenset(
    {Kind.APPROVAL_REQUESTED, Kind.APPROVAL_REMINDER, Kind.APPROVAL_ESCALATED}
)
_ASKING_QUESTIONS: Final = frozenset(
    {Kind.QUESTION_ASKED, Kind.QUESTION_REMINDER, Kind.QUESTION_ESCALATED}
)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A notice with the names that belong to it."""

    event_id: str
    kind: Kind
    at: datetime
    status: str
    run_id: str
    agent: str
    operation_id: str
    tool: str
    approval_id: str
    approve_by: datetime | None
    question_id: str
    answer_by: datetime | None
    is_moot: bool


def read_told(notice_id: int) -> Told | None:
    """What is to be told; None if its run was purged meanwhile. Two queries."""
    notice = (
        Notice.objects.select_related("run", "approval", "question")
        .only(
            *("event_id", "kind", "operation_id", "status", "at", "run__agent"),
            *("approval__operation_id", "approval__status", "approval__approve_by"),
            *("question__status", "question__answer_by"),
        )
        .filter(id=notice_id)
        .first()
    )
    if notice is None:
        return None
    approval, question, kind = notice.approval, notice.question, Kind(notice.kind)
    operation_id = notice.operation_id or (approval.operation_id if approval else "")
    return Told(
        event_id=notice.event_id,
        kind=kind,
        at=notice.at,
        status=notice.status,
        run_id=str(notice.run_id),
        agent=_name(notice.run.agent),
        operation_id=operation_id,
        tool=_tool(operation_id),
        approval_id=str(approval.pk) if approval else "",
        approve_by=approval.approve_by if approval else None,
        question_id=str(question.pk) if question else "",
        answer_by=question.answer_by if question else None,
        is_moot=_is_moot(kind, approval, question),
    )


def _is_moot(kind: Kind, approval: Approval | None, question: Question | None) -> bool:
    """Whether what is asked for is not wanted any more."""
    if kind in _ASKING:
        return approval is not None and approval.status != Approval.Status.PENDING
    if kind in _ASKING_QUESTIONS:
        return question is not None and question.status != Question.Status.OPEN
    return False


def webhook_id(told: Told) -> str:
    """The stable id of the event, for a header and in a signature."""
    return quote(told.event_id.replace(".", "_"), safe=":")


def message_id(told: Told, *, sender: str) -> str:
    """The same for an e-mail: `<id@domain of the sender>`."""
    domain = sender.rpartition("@")[2].strip(" >") or "localhost"
    return f"<{quote(told.event_id, safe='').replace('%3A', '.')}@{domain}>"


def payload(told: Told) -> bytes:
    """The body of a webhook: type, timestamp, data."""
    said = {
        "type": told.kind.value,
        "timestamp": told.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "data": {
            "run_id": told.run_id,
            "agent": told.agent,
            "operation_id": told.operation_id or None,
            "tool": told.tool or None,
            "approval_id": told.approval_id or None,
            "question_id": told.question_id or None,
            "status": told.status or None,
            "url": link(told),
        },
    }
    return json.dumps(said, separators=(",", ":")).encode()


def link(told: Told) -> str:
    """Where a person looks at it, and may act on it once signed in."""
    if told.approval_id:
        page, pk = "approval", told.approval_id
    elif told.question_id:
        page, pk = "question", told.question_id
    elif told.operation_id:
        page, pk = "tooloperation", told.operation_id
    else:
        page, pk = "agentrun", told.run_id
    return settings.AGENTOPS_BASE_URL + reverse(f"admin:runs_{page}_change", args=[pk])


def subject(told: Told) -> str:
    """One line of our own words, a name and a short id."""
    return f"{_headline(told)}: {_what(told)} (…{_short_id(told)})"


def text(told: Told) -> str:
    """The whole of an e-mail: a sentence, the link, when it ends, and what it is."""
    parts = [f"{_headline(told)}: {_what(told)}, in run {told.run_id} of {told.agent}.", link(told)]
    if told.approve_by is not None and told.kind in _ASKING:
        parts.append(
            f"It can be decided until {told.approve_by.astimezone(UTC):%Y-%m-%d %H:%M} UTC. "
            "Until somebody signs, nothing is sent; after that time it expires."
        )
    if told.answer_by is not None and told.kind in _ASKING_QUESTIONS:
        parts.append(
            f"It can be answered until {told.answer_by.astimezone(UTC):%Y-%m-%d %H:%M} UTC. "
            "Until somebody answers, the run waits; after that time it goes on without an answer."
        )
    parts.append(
        "This message decides nothing: what there is to see and to do is behind the link.\n"
        f"Event {told.event_id}"
    )
    return "\n\n".join(parts) + "\n"


def _headline(told: Told) -> str:
    match told.kind:
        case Kind.APPROVAL_REQUESTED:
            return "Signature asked"
        case Kind.APPROVAL_REMINDER:
            return "Signature still missing"
        case Kind.APPROVAL_ESCALATED:
            return "Signature asked of you too"
        case Kind.APPROVAL_DECIDED:
            known = told.status in Approval.Status.values
            return told.status.capitalize() if known else "Decided"
        case Kind.OPERATION_UNKNOWN:
            return "Effect uncertain"
        case Kind.OPERATION_NEEDS_PERSON:
            return "Needs a person to settle it"
        case Kind.OPERATION_SETTLED:
            known = told.status in OperationStatus.__members__
            return f"Call {told.status.lower()}" if known else "Call settled"
        case Kind.RUN_PAUSED:
            return "Paused, waits for a person"
        case Kind.RUN_FINISHED:
            return "Finished"
        case Kind.QUESTION_ASKED:
            return "Question asked"
        case Kind.QUESTION_REMINDER:
            return "Question still open"
        case Kind.QUESTION_ESCALATED:
            return "Question asked of you too"
        case Kind.QUESTION_ANSWERED:
            return "Question answered"
        case _:
            assert_never(told.kind)


def _what(told: Told) -> str:
    return told.tool or told.agent


def _short_id(told: Told) -> str:
    named = told.approval_id or told.question_id or told.operation_id or told.run_id
    return named[-SHORT_ID:]


def _tool(operation_id: str) -> str:
    if not operation_id:
        return ""
    found = ToolOperation.objects.filter(id=operation_id).values_list("tool", flat=True).first()
    return _name(found or "")


def _name(name: str) -> str:
    """On one line, whoever registered it."""
    return " ".join(name.split())[:LONGEST_NAME]
