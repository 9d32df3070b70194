"""What is uncertain in a run, and the one thing to do about it: the first box of a timeline.

Guarantees: an operation whose effect is not known comes before everything else, with how long
that may go on, then a run below that has one; a link is offered to those alone who may use it; what
a run waits for is said where nothing is uncertain. At most four queries, whatever there is.

Does not decide: recovery does (`runs/recovery.py`), or the person who is sent to another page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from runs.admin.readonly import Action, Cell, Fact
from runs.admin.resolve import may_resolve
from runs.admin.run_requests import may_request
from runs.admin.show import Tone, line, operation_link, record_url, run_badge, when
from runs.admin.timeline_lanes import relative_link
from runs.admin.timeline_moves import Moves, say_time
from runs.admin.timeline_sight import Sight
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
from runs.state import FINAL_STATES, OperationStatus, RunState
from runs.timeline_family import Relative
from tools.errors import UnknownTool
from tools.registry import get_tool

MOST_SHOWN: Final = 5
_ENDS: Final = {
    RunState.COMPLETED: "completed",
    RunState.FAILED: "failed",
    RunState.CANCELLED: "was cancelled",
}
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
    uncertain_below: Sequence[Relative],
    sight: Sight,
    has_incidents: bool,
    now: datetime,
) -> Verdict:
    """How the run stands, or one of its operations."""
    moves = Moves(request, run, now)
    opened = _open_operations(run, operation)
    if doubtful := [one for one in opened if _is_doubtful(one, run, now)]:
        return _doubt(moves, doubtful)
    if operation is None and uncertain_below:
        return _doubt_below(uncertain_below)
    if has_incidents and (found := _incidents(run, operation)):
        return _found(found)
    return _certain(moves, operation=operation, opened=opened, sight=sight)


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


def _doubt(moves: Moves, doubtful: Sequence[ToolOperation]) -> Verdict:
    first = doubtful[0]
    more = len(doubtful) - MOST_SHOWN
    settle = (
        [Action(reverse("admin:runs_tooloperation_resolve", args=[first.pk]), "Settle it…")]
        if first.status == OperationStatus.UNKNOWN and may_resolve(moves.request)
        else []
    )
    what = f"{line(first.tool, NAME)} of step {first.step_number}"
    return Verdict(
        tone="uncertain",
        title=f"Uncertain: {what if len(doubtful) == 1 else f'{len(doubtful)} calls'}"
        " may or may not have happened",
        todo=_todo(first, moves, may_settle=bool(settle)),
        lines=[f"and {more} more"] if more > 0 else [],
        doubts=[_say_doubt(one, moves) for one in doubtful[:MOST_SHOWN]],
        actions=settle,
    )


def _say_doubt(operation: ToolOperation, moves: Moves) -> Doubt:
    now = moves.now
    title = format_html(
        "<strong>{}</strong> {}", line(operation.tool, NAME), operation_link(operation.pk)
    )
    since = operation.unknown_since or moves.run.lease_expires_at
    return Doubt(
        title=title,
        facts=[
            Fact("Uncertain since", say_time(since, now=now)),
            Fact("To be settled by", _objective(operation, now)),
            Fact("May still be in flight", _in_flight(operation, now)),
            Fact("The provider is asked next", moves.say_asked_next(operation)),
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
    if due <= now:
        return format_html("<strong>overdue:</strong> {}", when(due, now=now))
    return say_time(due, now=now)


def _in_flight(operation: ToolOperation, now: datetime) -> Cell:
    if operation.settles_at is None:
        return "yes, and nobody knows until when"
    if operation.settles_at > now:
        return format_html("yes, until {}", say_time(operation.settles_at, now=now))
    return format_html("no, since {}", say_time(operation.settles_at, now=now))


def _key(operation: ToolOperation, now: datetime) -> Cell:
    ends = operation.key_expires_at
    if ends is None:
        return "is not kept, or nobody knows how long"
    said = "expired" if ends <= now else "expires"
    return format_html("{} {}", said, when(ends, now=now))


def _todo(operation: ToolOperation, moves: Moves, *, may_settle: bool) -> Cell:
    if operation.status == OperationStatus.RUNNING:
        return moves.expect_look_up(operation)
    if moves.run.paused_at is not None and operation.needs_person_since is None:
        return "The run is paused: resume it, and the provider is asked again."
    if operation.needs_person_since is None and operation.next_reconcile_at is not None:
        return moves.expect_look_up(operation)
    if may_settle:
        return "Look at the provider whether it happened, then settle it here."
    return "Somebody with the right to settle operations must say what became of it."


def _doubt_below(uncertain: Sequence[Relative]) -> Verdict:
    count = uncertain[0].among
    more = [f"and {count - len(uncertain)} more"] if count > len(uncertain) else []
    shown = [format_html("{} {}", relative_link(one), run_badge(one.state)) for one in uncertain]
    return Verdict(
        tone="uncertain",
        title=f"Uncertain: in {'a run' if count == 1 else f'{count} runs'} below this one",
        todo="Open the timeline of each: it says what to do.",
        lines=[*shown, *more],
        actions=[
            Action(
                reverse("admin:runs_agentrun_timeline", args=[uncertain[0].run_id]),
                "Open its timeline" if count == 1 else "Open the first one's timeline",
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
    moves: Moves,
    *,
    operation: ToolOperation | None,
    opened: Sequence[ToolOperation],
    sight: Sight,
) -> Verdict:
    run, now = moves.run, moves.now
    if operation is not None and operation.settled_at is not None:
        at = say_time(operation.settled_at, now=now)
        settled = format_html("Nothing: it was {} at {}.", operation.status.lower(), at)
        return Verdict("success", "Nothing is uncertain about this call", settled)
    if run.state in FINAL_STATES:
        tone: Tone = "success" if run.state == RunState.COMPLETED else "neutral"
        how = _ENDS[RunState(run.state)]
        ended = format_html("Nothing: it {} at {}.", how, say_time(run.finished_at, now=now))
        return Verdict(tone, CERTAIN, ended)
    if run.paused_at is not None:
        return _paused(moves)
    if held := [one.pk for one in opened if one.status == OperationStatus.AWAITING_APPROVAL]:
        return _unsigned(held, moves, sight)
    if run.state == RunState.WAITING:
        return _waits(moves, sight)
    return Verdict("info", CERTAIN, moves.expect_move())


def _paused(moves: Moves) -> Verdict:
    resume = Action(reverse("admin:runs_agentrun_resume", args=[moves.run.pk]), "Resume…")
    since = say_time(moves.run.paused_at, now=moves.now)
    return Verdict(
        "warning",
        CERTAIN,
        format_html("It is paused since {}: a person lets it go on.", since),
        actions=[resume] if may_request(moves.request) else [],
    )


def _unsigned(held: Sequence[str], moves: Moves, sight: Sight) -> Verdict:
    if not sight.shows("approval"):
        who = "A call waits for a signature: who may sign it finds it in the inbox."
        return Verdict("warning", CERTAIN, who)
    pending = Approval.objects.filter(operation_id__in=held, status=Approval.Status.PENDING)
    asked = pending.select_related("operation").order_by("approve_by").first()
    if asked is None:
        return Verdict("warning", CERTAIN, "A call is held, and a worker asks for its signature.")
    groups = " and ".join(asked.groups) or "those who may sign"
    todo = format_html(
        "{} waits for a signature by {}, until {}.",
        line(asked.operation.tool, NAME),
        line(groups, 200),
        say_time(asked.approve_by, now=moves.now),
    )
    may_decide = moves.request.user.has_perm("runs.decide_approval")
    look = Action(
        record_url(Approval, asked.pk), "Look and decide" if may_decide else "Look at the request"
    )
    return Verdict("warning", CERTAIN, todo, actions=[look])


def _waits(moves: Moves, sight: Sight) -> Verdict:
    open_waits = Wait.objects.filter(run_id=moves.run.pk, ended_at__isnull=True)
    wait = open_waits.select_related("step__question").first()
    if wait is None:
        return Verdict("info", CERTAIN, moves.expect_move())
    until: Cell = ""
    if wait.until is not None:
        until = format_html(", until {} at the latest", say_time(wait.until, now=moves.now))
    todo: Cell
    match wait.kind:
        case Wait.Kind.QUESTION:
            asked: Question | None = getattr(wait.step, "question", None)
            may_answer = moves.request.user.has_perm("runs.answer_question")
            answer = (
                [
                    Action(
                        reverse("admin:runs_question_change", args=[asked.pk]),
                        "Answer…" if may_answer else "Look at the question",
                    )
                ]
                if asked is not None and sight.shows("question")
                else []
            )
            todo = format_html("A person must answer its question{}.", until)
            return Verdict("warning", CERTAIN, todo, actions=answer)
        case Wait.Kind.SIGNAL:
            todo = format_html("Nothing here: it waits for a signal{}.", until)
        case Wait.Kind.CHILD:
            todo = format_html("Nothing here: it waits for runs that it started{}.", until)
        case _:
            todo = moves.expect_end_of(wait)
    return Verdict("info", CERTAIN, todo)
