"""How a run stands to what is outside of it: waits, requests, its parent, its children, forks.

Guarantees: one query for each thing named, and none for what a run does not have; text of
strangers is bounded, and declared secrets are hidden.
"""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from runs.admin.readonly import Cell, Fact, Notice, Table
from runs.admin.show import (
    LINE,
    Tone,
    badge,
    line,
    link,
    list_url,
    quote,
    record_url,
    run_badge,
    run_link,
    version_link,
    when,
)
from runs.agents import may_be_called
from runs.family import MOST, find_descendants
from runs.models import AgentRun, GatewayCall, Question, Wait
from runs.presenting import present_limits, present_spent
from runs.presenting_calls import asker_of
from runs.state import RunEvent, RunState
from runs.tables import say_spent
from tools.redaction import scrub

ANSWERING: Final = "runs.answer_question"
QUESTION_TONES: Final[Mapping[str, Tone]] = {
    Question.Status.OPEN: "warning",
    Question.Status.ANSWERED: "success",
    Question.Status.EXPIRED: "neutral",
    Question.Status.CANCELLED: "neutral",
}


def standing_notices(run: AgentRun, hidden: Collection[str]) -> list[Notice]:
    """What holds the run, or turns it."""

    def said(text: str) -> Cell:
        return line(scrub(text, {"input": run.input}, hidden), 500)

    notices = []
    if run.paused_at is not None:
        notices.append(Notice("warning", "Paused", [said(run.pause_reason)]))
    if run.state == RunState.WAITING:
        waits = run.waits.filter(ended_at__isnull=True)
        notices += [
            Notice("info", "Waits for", [_say_wait(wait, said(wait.name))]) for wait in waits
        ]
    if run.compensating_since is not None and run.finished_at is None:
        notices.append(Notice("warning", "Corrects what it did", [said(run.compensation_reason)]))
    return notices


def agent_of(run: AgentRun) -> Cell:
    """Its agent, the version that decides, and since when it is another one than before."""
    shown = format_html("{} <small>version {}</small>", run.agent, version_link(run.agent_version))
    adopted = (
        run.journal.filter(event=RunEvent.MIGRATE, operation=None).order_by("-version").first()
    )
    if adopted is None:
        return shown
    return format_html(
        "{} <small>adopted {}: {}</small>", shown, when(adopted.at), line(adopted.reason, 300)
    )


def standing_facts(run: AgentRun) -> list[Fact]:
    """Where the run came from, what it may spend, what was asked of it."""
    facts = [*_called_from(run), Fact("Spent", say_spent(present_spent(run), present_limits(run)))]
    if run.priority:
        facts.append(Fact("Priority", str(run.priority)))
    if run.parent_operation is not None:
        parent = run_link(run.parent_id) if run.parent_id else "a run that was purged"
        facts.append(Fact("Started by", parent))
    if run.forked_from_id is not None:
        origin = format_html("{} step {}", run_link(run.forked_from_id), run.forked_at_step)
        facts.append(Fact("Forked from", origin))
    if run.cancel_requested_at is not None:
        by, at = line(run.cancel_requested_by), when(run.cancel_requested_at)
        how = ", with compensation" if run.cancel_compensates else ""
        facts.append(Fact("Cancel asked for", format_html("{} by {}{}", at, by, how)))
    if run.paused_at is not None:
        facts.append(Fact("Paused", when(run.paused_at)))
    if run.compensating_since is not None:
        facts.append(Fact("Correcting since", when(run.compensating_since)))
    return facts


def family_of(run: AgentRun) -> list[Table]:
    """The runs below this one and its forks; nothing for a run that has none."""
    tables = []
    if below := find_descendants(run.pk):
        more = f"The first {MOST} are shown; see all" if len(below) == MOST else "Open as a list"
        tables.append(
            Table(
                headers=("run", "state"),
                rows=[
                    (
                        format_html(
                            "{}{} {}",
                            "\N{NO-BREAK SPACE}" * 4 * (one.level - 1),
                            line(one.agent),
                            run_link(one.run_id),
                        ),
                        run_badge(one.state),
                    )
                    for one in below
                ],
                title="Runs that it started",
                more_url=list_url(AgentRun, parent=run.pk),
                more_text=more,
            )
        )
    if forks := list(run.forks.only("agent", "state", "forked_at_step").order_by("-id")[:MOST]):
        tables.append(
            Table(
                headers=("run", "from", "state"),
                rows=[
                    (
                        link(record_url(AgentRun, one.pk), f"…{str(one.pk)[-12:]}"),
                        f"step {one.forked_at_step}",
                        run_badge(one.state),
                    )
                    for one in forks
                ],
                title="Forks",
            )
        )
    return tables


def questions_of(request: HttpRequest, run: AgentRun, hidden: Collection[str]) -> list[Table]:
    """What it asked people, the newest first; nothing for those who may see no question."""
    if not (request.user.has_perm("runs.view_question") or request.user.has_perm(ANSWERING)):
        return []
    asked = list(run.questions.defer("schema", "answer").order_by("-step_number")[:MOST])
    if not asked:
        return []
    return [
        Table(
            headers=("question", "status", "answered by", "asked"),
            rows=[
                (
                    _link_question(
                        one.pk, quote(scrub(one.text, {"input": run.input}, hidden), LINE)
                    ),
                    badge(one.status.capitalize(), QUESTION_TONES[one.status]),
                    line(one.answered_by),
                    when(one.asked_at),
                )
                for one in asked
            ],
            title="Questions",
        )
    ]


def _called_from(run: AgentRun) -> list[Fact]:
    """Who calls in the name of a run whose agent runs elsewhere; nothing for any other run."""
    newest = run.gateway_calls.order_by("-id").first() if may_be_called(run.agent) else None
    if newest is None:
        return []
    thread = run.labels.get("thread", "")
    calls = link(list_url(GatewayCall, run=run.pk), "its calls")
    said = f", thread {line(thread, 100)}" if thread else ""
    asker = line(asker_of(newest))
    return [Fact("Called from outside", format_html("by {}{} {}", asker, said, calls))]


def _say_wait(wait: Wait, name: Cell) -> Cell:
    what = Wait.Kind(wait.kind).label
    if wait.kind in (Wait.Kind.SIGNAL, Wait.Kind.QUESTION):
        what = f"{what}:"
    else:
        name = ""
    if wait.kind == Wait.Kind.QUESTION:
        asked = Question.objects.only("id").filter(step_id=wait.step_id).first()
        name = _link_question(asked.pk, name) if asked is not None else name
    until = format_html(" until {}", when(wait.until)) if wait.until is not None else ""
    return format_html("{} {}{}", what, name, until)


def _link_question(key: UUID, text: Cell) -> Cell:
    return link(reverse("admin:runs_question_change", args=[key]), text)
