"""What the admin's sidebar offers, and to whom.

Guarantees: an entry leads to a list and is there for those who may see its rows; the
headlines, how many runs have an uncertain effect, how many requests wait for a signature and
how many questions for an answer, are on every page while there are any. A query each, bounded,
through a small index.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse

from runs.models import Approval, Question, ToolOperation
from runs.state import OperationStatus

COUNTED_UP_TO: Final = 99


@dataclass(frozen=True)
class Entry:
    """A list, perhaps narrowed: `model` as app.name, `query` as the filters in its address."""

    title: str
    icon: str
    model: str
    query: dict[str, str] = field(default_factory=dict)
    # A permission besides that to see the rows, which is enough as well.
    or_with: str = ""


UNCERTAIN: Final = Entry("Effect uncertain", "help", "runs.agentrun", {"effect": "uncertain"})
INBOX: Final = Entry("Inbox", "inbox", "runs.approval", or_with="runs.decide_approval")
QUESTIONS: Final = Entry(
    "Questions", "contact_support", "runs.question", or_with="runs.answer_question"
)
SECTIONS: Final = {
    "Approvals": [
        INBOX,
        QUESTIONS,
        Entry("Policies", "rule", "tools.toolpolicy", or_with="tools.edit_policies"),
        Entry("Notifications", "mail", "agentops.delivery"),
    ],
    "Runs": [
        UNCERTAIN,
        Entry("Runs", "play_circle", "runs.agentrun"),
        Entry("Schedules", "schedule", "runs.schedule", or_with="runs.change_schedule"),
        Entry("Operations", "bolt", "runs.tooloperation"),
        Entry("Gateway calls", "call_received", "runs.gatewaycall"),
        Entry("Incidents", "warning", "runs.incident"),
        Entry("Requests", "touch_app", "runs.controlrequest"),
        Entry("Signals", "sensors", "runs.signal"),
        Entry("Journal", "list_alt", "runs.transition"),
    ],
    "In detail": [
        Entry("Steps", "format_list_numbered", "runs.step"),
        Entry("Attempts", "replay", "runs.stepattempt"),
        Entry("Decisions", "alt_route", "runs.modeldecision"),
        Entry("Llm requests", "forum", "runs.llmrequest"),
        Entry("Handoffs", "compress", "runs.handoff"),
        Entry("Observations", "visibility", "runs.toolobservation"),
        Entry("Checkpoints", "flag", "runs.checkpoint"),
        Entry("Workers", "dns", "runs.worker"),
        Entry("Versions", "history", "runs.definition"),
        Entry("Releases", "deployed_code", "runs.release"),
    ],
    "Access": [
        Entry("Users", "person", "auth.user"),
        Entry("Groups", "group", "auth.group"),
        Entry("API tokens", "key", "agentops.apitoken"),
        Entry("Audit", "policy", "agentops.auditentry"),
    ],
}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar in the form that the admin's theme reads."""
    sections = [
        {
            "title": title,
            "items": [_item(entry, request) for entry in entries if _may(entry, request)],
        }
        for title, entries in SECTIONS.items()
    ]
    return [section for section in sections if section["items"]]


def _item(entry: Entry, request: HttpRequest) -> dict[str, Any]:
    app, name = entry.model.split(".")
    address = reverse(f"admin:{app}_{name}_changelist")
    narrowed = request.GET.get("effect") == UNCERTAIN.query["effect"]
    item: dict[str, Any] = {
        "title": entry.title,
        "icon": entry.icon,
        "link": reverse(f"admin:{app}_{name}_changelist", query=entry.query),
        "active": request.path.startswith(address) and (bool(entry.query) == narrowed),
    }
    count = _COUNTS.get(entry.title)
    if count is not None and (found := count()):
        item |= {"badge": found if found <= COUNTED_UP_TO else f"{COUNTED_UP_TO}+"}
    return item


def _may(entry: Entry, request: HttpRequest) -> bool:
    app, name = entry.model.split(".")
    may_see: bool = request.user.has_perm(f"{app}.view_{name}")
    return may_see or bool(entry.or_with and request.user.has_perm(entry.or_with))


def _count_uncertain() -> int:
    # A run has at most one unknown operation: the next call waits for it.
    unknown = ToolOperation.objects.filter(status=OperationStatus.UNKNOWN).order_by()
    return len(unknown.values_list("run_id", flat=True)[: COUNTED_UP_TO + 1])


def _count_pending() -> int:
    pending = Approval.objects.filter(status=Approval.Status.PENDING).order_by()
    return len(pending.values_list("pk", flat=True)[: COUNTED_UP_TO + 1])


def _count_open() -> int:
    asked = Question.objects.filter(status=Question.Status.OPEN).order_by()
    return len(asked.values_list("pk", flat=True)[: COUNTED_UP_TO + 1])


_COUNTS: Final[Mapping[str, Callable[[], int]]] = {
    UNCERTAIN.title: _count_uncertain,
    INBOX.title: _count_pending,
    QUESTIONS.title: _count_open,
}
