"""What is uncertain in a run, and the one thing to do about it: the first box of a timeline.

Guarantees: an operation whose effect is not known comes before everything else, with how long
that may go on; a link is offered to those alone who may use it; what a run waits for is said where
nothing is uncertain. At most three queries, whatever there is.

Does not decide: recovery does (`runs/recovery.py`), or the person who is sent to another page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin.readonly import Action, Cell, Fact
from runs.admin.resolve import may_resolve
from runs.admin.run_requests import may_request
from runs.admin.show import Tone, line, link, operation_link, record_url, run_link, when
from runs.models import (
    NAME,
    AgentRun,
    Approval,
    Incident,
    Question,
    ToolOperation,
    Wait,
)
from runs.sensitive import without_secrets
from runs.state import FINAL_STATES, UNCERTAIN_STATES, OperationStatus, RunState
from runs.timeline_family import Relative
from tools.errors import UnknownTool
from tools.registry import get_tool

MOST_SHOWN: Final = 5
CERTAIN: Final = "Nothing is uncertain: what became of every call is known."


@dataclass(frozen=True)
class Doubt:
    """One operation that may or may not have happened."""

    title: Cell
    facts: Sequence[Fact]
    error: Cell


@dataclass(frozen=True)
class Verdict:
    """`lines` say what is, `todo` what is to be done; `actions` lead there, the first one best."""

    tone: Tone
    title: str
    todo: Cell
    lines: Sequence[Cell] = ()
    doubts: Sequence[Doubt] = ()
    actions: Sequence[Action] = ()


def judge(
    request: HttpRequest,
    run: AgentRun,
    *,
    operation: ToolOperation | None,
    family: Sequence[Relative],
    has_incidents: bool,
    now: datetime,
) -> Verdict:
    """How the run stands, or one of its operations."""
    opened = _open_operations(run, operation)
    if doubtful := [one for one in opened if _is_doubtful(one, run, now)]:
        return _doubt(request, run, doubtful, now)
    below = [one for one in family if one.kind == "child" and one.state in UNCERTAIN_STATES]
    if operation is None and below:
        return _doubt_below(below)
    if has_incidents and (found := _incidents(run, operation)):
        return _found(found)
    return _certain(request, run, operation=operation, opened=opened, now=now)


def _open_operations(run: AgentRun, operation: ToolOperation | None) -> list[ToolOperation]:
    """Only the open step has open operations."""
    if operation is not None:
        return [operation] if operation.settled_at is None else []
    if run.state in FINAL_STATES:
        return []
    opened = ToolOperation.objects.filter(
        run_id=run.pk, step_number=run.step_number, settled_at__isnull=True
    )
    # One that a person must settle comes first.
    return list(opened.order_by("needs_person_since", "ordinal", "revision").defer("result"))


# -- Doubts ------------------------------------------------------------------------


def _is_doubtful(operation: ToolOperation, run: AgentRun, now: datetime) -> bool:
    """Unknown; or sent by a worker whose lease is over, though nobody has taken over yet."""
    if operation.status == OperationStatus.RUNNING:
        return run.lease_expires_at is not None and run.lease_expires_at <= now
    return bool(operation.status == OperationStatus.UNKNOWN)


def _doubt(
    request: HttpRequest, run: AgentRun, doubtful: Sequence[ToolOperation], now: datetime
) -> Verdict:
    first = doubtful[0]
    more = len(doubtful) - MOST_SHOWN
    settle = (
        [Action(reverse("admin:runs_tooloperation_resolve", args=[first.pk]), "Settle it…")]
        if first.status == OperationStatus.UNKNOWN and may_resolve(request)
        else []
    )
    what = f"{line(first.tool, NAME)} of step {first.step_number}"
    return Verdict(
        tone="uncertain",
        title=f"Uncertain: {what if len(doubtful) == 1 else f'{len(doubtful)} calls'}"
        " may or may not have happened",
        todo=_todo(first, run, may_settle=bool(settle)),
        lines=[f"and {more} more"] if more > 0 else [],
        doubts=[_say_doubt(one, run, now) for one in doubtful[:MOST_SHOWN]],
        actions=settle,
    )


def _say_doubt(operation: ToolOperation, run: AgentRun, now: datetime) -> Doubt:
    title = format_html(
        "<strong>{}</strong> {}", line(operation.tool, NAME), operation_link(operation.pk)
    )
    since = operation.unknown_since or run.lease_expires_at
    return Doubt(
        title=title,
        facts=[
            Fact("Uncertain since", when(since, now=now)),
            Fact("To be settled by", _objective(operation, now)),
            Fact("May still be in flight", _in_flight(operation, now)),
            Fact("The provider is asked next", _asked_next(operation, now)),
            Fact("Its key at the provider", _key(operation, now)),
        ],
        error=line(without_secrets(operation.error, operation), 500) if operation.error else "",
    )


def _objective(operation: ToolOperation, now: datetime) -> Cell:
    if operation.unknown_since is None:
        return "its time begins when somebody takes over"
    try:
        within = get_tool(operation.tool).reconcile_within
    except UnknownTool:
        return "not known: its tool is not registered here"
    due = operation.unknown_since + within
    late = format_html("{} {}", _strong("overdue:"), when(due, now=now))
    return late if due <= now else when(due, now=now)


def _in_flight(operation: ToolOperation, now: datetime) -> Cell:
    if operation.settles_at is None:
        return "yes, and nobody knows until when"
    if operation.settles_at > now:
        return format_html("yes, until {}", when(operation.settles_at, now=now))
    return format_html("no, since {}", when(operation.settles_at, now=now))


def _asked_next(operation: ToolOperation, now: datetime) -> Cell:
    if operation.status == OperationStatus.RUNNING:
        return "as soon as another worker takes over"
    if operation.next_reconcile_at is None:
        return "not again"
    return when(operation.next_reconcile_at, now=now)


def _key(operation: ToolOperation, now: datetime) -> Cell:
    ends = operation.key_expires_at
    if ends is None:
        return "is not kept, or nobody knows how long"
    said = "expired" if ends <= now else "expires"
    return format_html("{} {}", said, when(ends, now=now))


def _todo(operation: ToolOperation, run: AgentRun, *, may_settle: bool) -> Cell:
    if operation.status == OperationStatus.RUNNING:
        return "Nothing yet: another worker takes over, and the provider is asked first."
    if run.paused_at is not None and operation.needs_person_since is None:
        return "The run is paused: resume it, and the provider is asked again."
    if operation.needs_person_since is None and operation.next_reconcile_at is not None:
        again = when(operation.next_reconcile_at)
        return format_html("Nothing yet: the provider is asked again {}.", again)
    if may_settle:
        return "Look at the provider whether it happened, then settle it here."
    return "Somebody with the right to settle operations must say what became of it."


def _doubt_below(uncertain: Sequence[Relative]) -> Verdict:
    return Verdict(
        tone="uncertain",
        title="Uncertain: in a run below this one",
        todo="Open that run's timeline: it says what to do.",
        lines=[
            format_html("{} {} is {}", line(one.agent), run_link(one.run_id), one.state)
            for one in uncertain[:MOST_SHOWN]
        ],
        actions=[
            Action(
                reverse("admin:runs_agentrun_timeline", args=[uncertain[0].run_id]),
                "Open its timeline",
            )
        ],
    )


# -- Incidents ---------------------------------------------------------------------


def _incidents(run: AgentRun, operation: ToolOperation | None) -> list[Incident]:
    found = run.incidents if operation is None else operation.incidents
    return list(found.select_related("operation").order_by("-id")[:MOST_SHOWN])


def _found(found: Sequence[Incident]) -> Verdict:
    newest = found[0]
    return Verdict(
        tone="danger",
        title="What must not happen has happened",
        todo="Look at the newest incident, and have what is wrong corrected.",
        lines=[
            format_html(
                "{}: {} {} {}",
                one.get_kind_display(),
                line(one.operation.tool, NAME),
                operation_link(one.operation_id),
                when(one.at),
            )
            for one in found
        ],
        actions=[Action(record_url(Incident, newest.pk), "Open the incident")],
    )


# -- Nothing is uncertain ----------------------------------------------------------


def _certain(
    request: HttpRequest,
    run: AgentRun,
    *,
    operation: ToolOperation | None,
    opened: Sequence[ToolOperation],
    now: datetime,
) -> Verdict:
    if operation is not None and operation.settled_at is not None:
        settled = format_html("It is {} since {}.", operation.status, when(operation.settled_at))
        return Verdict("success", "Nothing is uncertain about this call", settled)
    if run.state in FINAL_STATES:
        tone: Tone = "success" if run.state == RunState.COMPLETED else "neutral"
        ended = format_html("Nothing: it is {} since {}.", run.state, when(run.finished_at))
        return Verdict(tone, CERTAIN, ended)
    if run.paused_at is not None:
        return _paused(request, run)
    if held := [one.pk for one in opened if one.status == OperationStatus.AWAITING_APPROVAL]:
        return _unsigned(held)
    if run.state == RunState.WAITING:
        return _waits(run)
    return Verdict("info", CERTAIN, _next_move(run, now))


def _paused(request: HttpRequest, run: AgentRun) -> Verdict:
    resume = Action(reverse("admin:runs_agentrun_resume", args=[run.pk]), "Resume…")
    return Verdict(
        "warning",
        CERTAIN,
        format_html("It is paused since {}: a person lets it go on.", when(run.paused_at)),
        actions=[resume] if may_request(request) else [],
    )


def _unsigned(held: Sequence[str]) -> Verdict:
    pending = Approval.objects.filter(operation_id__in=held, status=Approval.Status.PENDING)
    asked = pending.select_related("operation").order_by("approve_by").first()
    if asked is None:
        return Verdict("warning", CERTAIN, "A call is held, and a worker asks for its signature.")
    groups = " and ".join(asked.groups) or "those who may sign"
    todo = format_html(
        "{} waits for a signature by {}, until {}.",
        line(asked.operation.tool, NAME),
        line(groups, 200),
        when(asked.approve_by),
    )
    look = Action(record_url(Approval, asked.pk), "Look and decide")
    return Verdict("warning", CERTAIN, todo, actions=[look])


def _waits(run: AgentRun) -> Verdict:
    open_waits = Wait.objects.filter(run_id=run.pk, ended_at__isnull=True)
    wait = open_waits.select_related("step__question").first()
    if wait is None:
        return Verdict("info", CERTAIN, "Nothing: a worker goes on with it.")
    until = format_html(", until {}", when(wait.until)) if wait.until is not None else ""
    match wait.kind:
        case Wait.Kind.QUESTION:
            asked: Question | None = getattr(wait.step, "question", None)
            answer = (
                [Action(reverse("admin:runs_question_change", args=[asked.pk]), "Answer…")]
                if asked is not None
                else []
            )
            todo = format_html("A person must answer its question{}.", until)
            return Verdict("warning", CERTAIN, todo, actions=answer)
        case Wait.Kind.SIGNAL:
            todo = format_html("Nothing here: it waits for a signal{}.", until)
        case Wait.Kind.CHILD:
            todo = format_html("Nothing here: it waits for runs that it started{}.", until)
        case _:
            todo = format_html("Nothing: it goes on by itself{}.", until)
    return Verdict("info", CERTAIN, todo)


def _next_move(run: AgentRun, now: datetime) -> Cell:
    if run.lease_expires_at is not None and run.lease_expires_at > now:
        return format_html(
            "Nothing: {} is at work under token {}.", line(run.lease_owner, NAME), run.fence_token
        )
    if run.lease_expires_at is not None:
        return format_html(
            "The lease of {} is over since {}: another worker takes the run over.",
            line(run.lease_owner, NAME),
            when(run.lease_expires_at, now=now),
        )
    if run.wake_at is not None and run.wake_at < now:
        return format_html(
            "It is due since {} and nobody has taken it: is a worker running that serves {}? {}",
            when(run.wake_at, now=now),
            line(run.agent, NAME),
            link(reverse("admin:runs_worker_changelist"), "Workers"),
        )
    return format_html("Nothing: a worker is due {}.", when(run.wake_at, now=now))


def _strong(text: str) -> SafeString:
    return format_html("<strong>{}</strong>", text)
