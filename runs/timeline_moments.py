"""What else happened to a run: what was asked of it, told to it, and which runs it started.

A *moment* is a time that stands in a row which is not itself a line of the timeline: a signal
has two, when it was sent and when it was delivered.

Guarantees: every such time is one moment, in the order of (time, kind, row); finding those of
a page is one query, and describing them one for each kind of row among them. Payloads and
answers are shown without the values of sensitive arguments.

Does not tell what waits ended with: the run's edges do (`timeline_entries.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from django.db.models import CharField, F, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from runs.models import (
    TEXT_LIMIT,
    AgentRun,
    ControlRequest,
    GatewayCall,
    Question,
    Signal,
    ToolOperation,
)
from runs.presenting_calls import asker_of, digest_of_key
from runs.sensitive import names_of_call, names_of_runs
from runs.shapes import TimelineEntry
from runs.state import FINAL_STATES
from runs.timeline_subject import Subject
from tools.redaction import bound_text, redact, scrub

Key = tuple[datetime, str, str]


@dataclass(frozen=True)
class Moment:
    """One of them. `row` is the text of its row's primary key."""

    at: datetime
    kind: str
    row: str

    @property
    def key(self) -> Key:
        return (self.at, self.kind, self.row)


def moments_after(subject: Subject, key: Key | None, limit: int, *, itself: bool) -> list[Moment]:
    """The first moments behind one, or with it `itself`, oldest first; from the start on None."""
    beyond = None if key is None else _beyond(key, "gt", itself=itself)
    rows = _union(subject, beyond).order_by("moment", "what", "named")
    return [Moment(*row) for row in rows[:limit]]


def moments_before(subject: Subject, key: Key | None, limit: int, *, itself: bool) -> list[Moment]:
    """The last moments in front of one, or with it `itself`, oldest first; none on None."""
    if key is None:
        return []
    rows = _union(subject, _beyond(key, "lt", itself=itself)).order_by("-moment", "-what", "-named")
    return [Moment(*row) for row in rows[:limit]][::-1]


def all_moments(subject: Subject) -> Any:
    """A query of all that there are by now."""
    return _union(subject, None)


def describe_moments(subject: Subject, moments: Sequence[Moment]) -> Mapping[Moment, TimelineEntry]:
    """The entries of these moments, numbered by the caller."""
    if not moments:
        return {}
    calls = _rows(GatewayCall.objects.select_related("same_as"), moments, "gateway")
    children = _rows(AgentRun.objects.defer("objective"), moments, "child")
    around = _Around(
        run=subject.run,
        hidden=subject.hidden,
        requests=_rows(ControlRequest.objects.all(), moments, "request"),
        calls=calls,
        operations=_operations(calls.values()),
        signals=_rows(Signal.objects.all(), moments, "signal"),
        questions=_rows(Question.objects.all(), moments, "question"),
        children=children,
        hidden_of=names_of_runs({child.id: child.agent for child in children.values()}),
    )
    return {moment: _describe(moment, around) for moment in moments}


@dataclass(frozen=True)
class _Around:
    """The rows that moments speak about, by the text of their keys."""

    run: AgentRun
    hidden: frozenset[str]
    requests: Mapping[str, ControlRequest]
    calls: Mapping[str, GatewayCall]
    # What these calls became, by id.
    operations: Mapping[str, ToolOperation]
    signals: Mapping[str, Signal]
    questions: Mapping[str, Question]
    children: Mapping[str, AgentRun]
    # By child: what its own agent's tools declare.
    hidden_of: Mapping[UUID, frozenset[str]]

    def said(self, text: str) -> str:
        return scrub(text, {"input": self.run.input}, self.hidden)


def _operations(calls: Iterable[GatewayCall]) -> dict[str, ToolOperation]:
    taken = [one.operation_id for one in calls if one.operation_id and one.taken_at]
    return ToolOperation.objects.defer("result").in_bulk(taken) if taken else {}


def _rows(rows: QuerySet[Any], moments: Iterable[Moment], kind: str) -> dict[str, Any]:
    keys = {moment.row for moment in moments if moment.kind.startswith(f"{kind}.")}
    return {str(row.pk): row for row in rows.filter(pk__in=keys)} if keys else {}


# -- Where moments stand -----------------------------------------------------------


def _union(subject: Subject, beyond: Q | None) -> Any:
    run_id, operation_id = subject.run_id, subject.operation_id
    children = AgentRun.objects.filter(parent_id=run_id)
    calls = GatewayCall.objects.filter(run_id=run_id)
    of_call = Concat(Value("gateway."), "kind", output_field=CharField())
    if operation_id is not None:
        # The rest speaks about the run, or about a step that waits and calls nothing.
        children = children.filter(parent_operation=operation_id)
        calls = calls.filter(Q(operation_id=operation_id) | Q(same_as__operation_id=operation_id))
        return _moments(calls, "received_at", of_call, beyond).union(
            _moments(children, "created_at", Value("child.started"), beyond),
            _moments(children, "finished_at", Value("child.ended"), beyond),
            all=True,
        )
    signals = Signal.objects.filter(run_id=run_id)
    questions = Question.objects.filter(run_id=run_id)
    requests = ControlRequest.objects.filter(run_id=run_id)
    of_request = Concat(Value("request."), "kind", output_field=CharField())
    of_end = Concat(Value("question."), "status", output_field=CharField())
    first, *others = (
        _moments(requests, "at", of_request, beyond),
        _moments(calls, "received_at", of_call, beyond),
        _moments(signals, "sent_at", Value("signal.sent"), beyond),
        _moments(signals, "delivered_at", Value("signal.delivered"), beyond),
        _moments(questions, "asked_at", Value("question.asked"), beyond),
        _moments(questions, "ended_at", of_end, beyond),
        _moments(children, "created_at", Value("child.started"), beyond),
        _moments(children, "finished_at", Value("child.ended"), beyond),
    )
    return first.union(*others, all=True)


def _moments(rows: QuerySet[Any], column: str, kind: Any, beyond: Q | None) -> Any:
    found = (
        rows.filter(**{f"{column}__isnull": False})
        .order_by()
        .annotate(moment=F(column), what=Cast(kind, TextField()), named=Cast("pk", TextField()))
    )
    return found.filter(beyond or Q()).values_list("moment", "what", "named")


def _beyond(key: Key, side: str, *, itself: bool) -> Q:
    at, kind, row = key
    last = f"{side}e" if itself else side
    return Q(**{f"moment__{side}": at}) | Q(moment=at) & (
        Q(**{f"what__{side}": kind}) | Q(**{"what": kind, f"named__{last}": row})
    )


# -- What they say -----------------------------------------------------------------


def _describe(moment: Moment, around: _Around) -> TimelineEntry:
    group = moment.kind.partition(".")[0]
    match group:
        case "request":
            return _of_request(moment, around.requests[moment.row], around)
        case "gateway":
            return _of_call(moment, around.calls[moment.row], around)
        case "signal":
            return _of_signal(moment, around.signals[moment.row], around)
        case "question":
            return _of_question(moment, around.questions[moment.row], around)
        case "child":
            return _of_child(moment, around.children[moment.row], around)
    raise AssertionError(f"no moment is called {moment.kind}")


def _of_request(moment: Moment, row: ControlRequest, around: _Around) -> TimelineEntry:
    label = ControlRequest.Kind(row.kind).label
    reason = around.said(row.reason)
    return _entry(
        moment,
        around,
        actor=row.by,
        reason=f"{label}: {reason}" if reason else label,
        evidence={"request": row.kind, **row.details},
    )


def _of_call(moment: Moment, row: GatewayCall, around: _Around) -> TimelineEntry:
    again = "again " if row.kind == GatewayCall.Kind.AGAIN else ""
    wants_end = row.kind == GatewayCall.Kind.FINISH
    about: dict[str, Any] = {"asked_by": asker_of(row), "key_digest": digest_of_key(row)}
    if row.rationale:
        operation = around.operations.get(row.operation_id or "")
        known = row.arguments if operation is None else operation.arguments
        hidden = around.hidden | names_of_call(row.tool)
        about["rationale"] = scrub(row.rationale, known or {}, hidden)
    return _entry(
        moment,
        around,
        actor=row.created_by,
        operation=(row.same_as or row).operation_id,
        reason=GatewayCall.Kind.FINISH.label if wants_end else f"asked {again}for {row.tool}",
        evidence=about,
    )


def _of_signal(moment: Moment, row: Signal, around: _Around) -> TimelineEntry:
    name = around.said(row.name)
    about = {"signal": name, "event_id": row.event_id}
    if moment.kind == "signal.sent":
        payload = redact(row.payload, around.hidden)
        return _entry(
            moment,
            around,
            actor=row.sent_by,
            reason=f"signal {name}",
            evidence={**about, "payload": payload},
        )
    return _entry(
        moment,
        around,
        actor="kernel",
        step=row.delivered_step,
        reason=f"signal {name} of {row.sent_by}",
        evidence=about,
    )


def _of_question(moment: Moment, row: Question, around: _Around) -> TimelineEntry:
    about: dict[str, Any] = {"question": str(row.id)}
    status = Question.Status(row.status)
    actor, reason = "kernel", status.label
    match moment.kind, status:
        case "question.asked", _:
            reason = around.said(row.text)
            about |= {
                "groups": row.groups,
                "answer_by": row.answer_by.isoformat() if row.answer_by else None,
            }
        case _, Question.Status.ANSWERED:
            actor = row.answered_by
            about["answer"] = redact(row.answer, around.hidden)
        case _, Question.Status.EXPIRED | Question.Status.CANCELLED | Question.Status.OPEN:
            pass
        case _, never:
            assert_never(never)
    return _entry(moment, around, actor=actor, step=row.step_number, reason=reason, evidence=about)


def _of_child(moment: Moment, row: AgentRun, around: _Around) -> TimelineEntry:
    about: dict[str, Any] = {"child_id": str(row.id), "agent": row.agent}
    reason = f"run {row.id} of {row.agent}"
    ended = moment.kind == "child.ended" and row.state in FINAL_STATES
    if ended:
        hidden = around.hidden | around.hidden_of[row.id]
        about |= {"state": row.state, "result": redact(row.result, hidden)}
        error = bound_text(scrub(row.error, {"input": row.input}, hidden), TEXT_LIMIT)
        reason = f"{reason} {row.state}{f': {error}' if error else ''}"
    return _entry(
        moment,
        around,
        actor="kernel",
        operation=row.parent_operation,
        to_state=row.state if ended else None,
        reason=reason,
        evidence=about,
    )


def _entry(
    moment: Moment,
    around: _Around,
    *,
    actor: str,
    reason: str,
    evidence: dict[str, Any],
    step: int | None = None,
    operation: str | None = None,
    to_state: str | None = None,
) -> TimelineEntry:
    return TimelineEntry(
        at=moment.at,
        seq=0,
        kind=moment.kind,
        actor=actor,
        run_id=around.run.pk,
        # 0: it is about the run, and no step of it.
        step_number=step or 0,
        attempt=None,
        operation_id=operation,
        fence_token=0,
        from_state=None,
        to_state=to_state,
        reason=reason,
        prompt_version=None,
        llm_version=None,
        tool_version=None,
        policy_version=None,
        approval_id=None,
        external_ref=None,
        timeout_stage=None,
        reconciliation_result=None,
        evidence=evidence,
    )
