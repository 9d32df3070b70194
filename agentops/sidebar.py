"""What the admin's sidebar offers, and to whom.

Guarantees: an entry leads to a page and is there for those who may see its rows; the
headlines, how many runs have an uncertain effect, how many requests wait for a signature and
how many questions for an answer, are on every page while there are any. One query for all of
them, bounded, through small indexes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse

from runs.desk import count_headlines

COUNTED_UP_TO: Final = 99


@dataclass(frozen=True)
class Entry:
    """A list, perhaps narrowed: `model` as app.name, `query` as the filters in its address.

    Without a model it is the desk, which everybody sees who may enter.
    """

    title: str
    icon: str
    model: str = ""
    query: dict[str, str] = field(default_factory=dict)
    # A permission besides that to see the rows, which is enough as well.
    or_with: str = ""

    @property
    def route(self) -> str:
        return f"admin:{self.model.replace('.', '_')}_changelist" if self.model else "admin:index"


DESK: Final = Entry("Desk", "space_dashboard")
INBOX: Final = Entry("Inbox", "inbox", "runs.approval", or_with="runs.decide_approval")
QUESTIONS: Final = Entry(
    "Questions", "contact_support", "runs.question", or_with="runs.answer_question"
)
UNCERTAIN: Final = Entry("Effect uncertain", "help", "runs.agentrun", {"effect": "uncertain"})
# What is looked at every day stands first and needs no heading.
SECTIONS: Final = {
    "": [
        DESK,
        INBOX,
        QUESTIONS,
        UNCERTAIN,
        Entry("Service levels", "speed", "runs.rollup"),
    ],
    "Runs": [
        Entry("Runs", "play_circle", "runs.agentrun"),
        Entry("Schedules", "schedule", "runs.schedule", or_with="runs.change_schedule"),
        Entry("Operations", "bolt", "runs.tooloperation"),
        Entry("Gateway calls", "call_received", "runs.gatewaycall"),
        Entry("Requests", "touch_app", "runs.controlrequest"),
        Entry("Signals", "sensors", "runs.signal"),
    ],
    "Rules": [
        Entry("Policies", "rule", "tools.toolpolicy", or_with="tools.edit_policies"),
        Entry("Notifications", "mail", "agentops.delivery"),
    ],
    "Evidence": [
        Entry("Incidents", "warning", "runs.incident"),
        Entry("Effect audits", "fact_check", "runs.effectaudit"),
        Entry("Journal", "list_alt", "runs.transition"),
        Entry("Observations", "visibility", "runs.toolobservation"),
        Entry("Steps", "format_list_numbered", "runs.step"),
        Entry("Attempts", "replay", "runs.stepattempt"),
        Entry("Decisions", "alt_route", "runs.modeldecision"),
        Entry("Llm requests", "forum", "runs.llmrequest"),
        Entry("Handoffs", "compress", "runs.handoff"),
        Entry("Checkpoints", "flag", "runs.checkpoint"),
    ],
    "Deployment": [
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
    headlines = count_headlines(most=COUNTED_UP_TO + 1)
    counts = {
        UNCERTAIN.title: headlines.uncertain,
        INBOX.title: headlines.approvals,
        QUESTIONS.title: headlines.questions,
    }
    sections = [
        {
            "title": title,
            "items": [_item(entry, request, counts) for entry in entries if _may(entry, request)],
        }
        for title, entries in SECTIONS.items()
    ]
    return [section for section in sections if section["items"]]


def _item(entry: Entry, request: HttpRequest, counts: Mapping[str, int]) -> dict[str, Any]:
    address = reverse(entry.route)
    narrowed = request.GET.get("effect") == UNCERTAIN.query["effect"]
    is_here = request.path.startswith(address) if entry.model else request.path == address
    item: dict[str, Any] = {
        "title": entry.title,
        "icon": entry.icon,
        "link": reverse(entry.route, query=entry.query),
        "active": is_here and (bool(entry.query) == narrowed),
    }
    if found := counts.get(entry.title):
        item |= {"badge": found if found <= COUNTED_UP_TO else f"{COUNTED_UP_TO}+"}
    return item


def _may(entry: Entry, request: HttpRequest) -> bool:
    app, _, name = entry.model.partition(".")
    may_see: bool = not name or request.user.has_perm(f"{app}.view_{name}")
    return may_see or bool(entry.or_with and request.user.has_perm(entry.or_with))
