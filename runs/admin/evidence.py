"""Everything that is known about what became of an operation, as tables.

Guarantees: every send stands there with its worker, its window and whether it may yet take
effect; every look-up with what it said and what that counts for, up to a bound; then late
answers, take-overs and what persons said. Words of a provider or a tool are quoted, escaped
and bounded. At most six queries, whatever there is.

Does not conclude anything: the kernel does (`runs/evidence.py`), or the person who reads it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone
from django.utils.html import format_html, format_html_join

from runs.admin.observations import source_badge, verdict_badge
from runs.admin.readonly import Cell, Table
from runs.admin.show import (
    NOTHING,
    badge,
    line,
    link,
    list_url,
    quote,
    record_url,
    references,
    when,
    window_cell,
)
from runs.evidence import read_sends
from runs.models import ToolObservation, ToolOperation, Transition, Worker
from runs.sensitive import names_of_operation, without_secrets
from runs.settling import Send
from runs.state import OperationEvent, OperationStatus
from tools.errors import UnknownTool
from tools.redaction import redact
from tools.registry import get_tool

LOOK_UPS: Final = 10
RESULT: Final = 500

Source = ToolObservation.Source
Verdict = ToolObservation.Verdict

COUNTS_FOR: Final[Mapping[str, str]] = {
    Verdict.COMMITTED: "proof that it happened",
    Verdict.REJECTED: "a refusal",
    Verdict.NOT_FOUND: "one “not found”, which is no proof: a request may land later",
    Verdict.INDETERMINATE: "nothing: the provider could not say",
    Verdict.FAILED: "nothing: the look-up itself failed",
}


@dataclass(frozen=True)
class Evidence:
    """The tables in the order in which they are read, and a mark of how far they go.

    `open_senders` are the workers of sends that are not known to have ended.
    """

    tables: Sequence[Table]
    mark: "Mark"
    open_senders: Sequence[str]


@dataclass(frozen=True)
class Mark:
    """The newest journal row and the newest observation that a reader has seen."""

    edge: int = 0
    observation: int = 0

    def __str__(self) -> str:
        return f"{self.edge}.{self.observation}"

    @classmethod
    def read(cls, text: str) -> "Mark":
        """The mark that `str` wrote; one that was not made here has seen nothing."""
        edge, _, observation = text.partition(".")
        if not all(part.isascii() and part.isdigit() for part in (edge, observation)):
            return cls()
        return cls(int(edge[:18]), int(observation[:18]))


def gather(operation: ToolOperation) -> Evidence:
    """All of it, as it stands now."""
    edges = list(_edges(operation))
    seen = list(operation.observations.exclude(source=Source.LOOK_UP).order_by("id"))
    look_ups = list(
        operation.observations.filter(source=Source.LOOK_UP).order_by("-id")[: LOOK_UPS + 1]
    )
    sends = read_sends(operation, seen)
    return Evidence(
        tables=[
            _sends(operation, sends, edges, seen),
            _look_ups(operation, look_ups),
            _words(operation, edges, seen),
        ],
        mark=Mark(
            edge=max((edge.pk for edge in edges), default=0),
            observation=max((one.pk for one in (*seen, *look_ups)), default=0),
        ),
        open_senders=[send.worker for send in sends if send.ended_at is None],
    )


def news_since(operation: ToolOperation, mark: Mark) -> list[Table]:
    """What was journaled or learned after `mark`; look-ups that prove nothing are no news."""
    edges = [edge for edge in _edges(operation) if edge.pk > mark.edge]
    seen = [
        one
        for one in operation.observations.filter(pk__gt=mark.observation).order_by("id")
        if one.source != Source.LOOK_UP or one.verdict == Verdict.COMMITTED
    ]
    rows: list[tuple[datetime, list[Cell]]] = [
        *((edge.at, _news_of_edge(edge, operation)) for edge in edges),
        *((one.observed_at, _news_of_observation(one, operation)) for one in seen),
    ]
    if not rows:
        return []
    rows.sort(key=lambda row: row[0])
    return [
        Table(
            headers=("what", "by", "in words", "when"),
            rows=[cells for _, cells in rows],
            title="What changed since you opened this page",
        )
    ]


def _news_of_edge(edge: Transition, operation: ToolOperation) -> list[Cell]:
    what = edge.event.replace("_", " ").capitalize()
    why = quote(without_secrets(edge.why, operation), RESULT)
    return [what, line(edge.actor, 100), why, when(edge.at)]


def _news_of_observation(seen: ToolObservation, operation: ToolOperation) -> list[Cell]:
    return [verdict_badge(seen), source_badge(seen), _said(seen, operation), when(seen.observed_at)]


def _edges(operation: ToolOperation) -> Iterable[Transition]:
    # Through the run, whose index of the journal there is.
    return Transition.objects.filter(run_id=operation.run_id, operation_id=operation.pk).order_by(
        "version", "id"
    )


# -- Sends ---------------------------------------------------------------------


def _sends(
    operation: ToolOperation,
    sends: Sequence[Send],
    edges: Sequence[Transition],
    seen: Sequence[ToolObservation],
) -> Table:
    sent = [
        edge for edge in edges if edge.event in (OperationEvent.SEND, OperationEvent.SEND_AGAIN)
    ]
    known = {send.number: send for send in sends}
    ends = Worker.objects.in_bulk({edge.actor for edge in sent})
    window = _settle_window(operation)
    rows: list[list[Cell]] = []
    for number, edge in enumerate(sent, start=1):
        about = [one for one in seen if one.attempt == number and one.source in _OF_A_SEND]
        rows.append(
            [
                str(number),
                _worker(edge, ends.get(edge.actor)),
                _may_land(operation, known.get(number), window),
                _sender(known.get(number), about, ends.get(edge.actor)),
                _came_back(about, operation),
                _window(edge, about),
            ]
        )
    return Table(
        headers=(
            "send",
            "worker",
            "may still be in flight",
            "its sender",
            "came back",
            "on its way",
        ),
        rows=rows,
        title="Sends",
        empty="Nothing was sent.",
    )


_OF_A_SEND: Final = (Source.WORKER, Source.STALE_WORKER, Source.TAKE_OVER)


def _worker(edge: Transition, worker: Worker | None) -> Cell:
    name: Cell = line(edge.actor, 100)
    if worker is not None:
        name = link(record_url(Worker, worker.pk), name)
    return format_html("{} <small>token {}</small>", name, edge.fence_token)


def _window(edge: Transition, about: Sequence[ToolObservation]) -> Cell:
    marks = {"opened_at": edge.at.isoformat()}
    for one in about:
        marks |= {name: at for name, at in (one.window or {}).items() if at}
    return window_cell(marks)


def _came_back(about: Sequence[ToolObservation], operation: ToolOperation) -> Cell:
    answers = [one for one in about if one.source != Source.TAKE_OVER]
    if not answers:
        return "nothing"
    # What it said first, and its last word if it said more.
    told = [answers[0], *answers[1:][-1:]]
    words = ((verdict_badge(one), _said(one, operation)) for one in told)
    return format_html_join(" ", "{} {}", words)


def _sender(send: Send | None, about: Sequence[ToolObservation], worker: Worker | None) -> Cell:
    if send is not None and send.ended_at is not None and not send.worker:
        return format_html("came back {}", when(send.ended_at))
    if worker is not None and worker.ended_at is not None:
        how = f"{worker.get_ended_by_display()}: {line(worker.evidence, 200)}"
        return format_html("ended {} <small>{}</small>", when(worker.ended_at), how)
    if any(one.stage == "deadline" for one in about):
        return "went on past its deadline and has not come back"
    return "not known to have ended"


def _may_land(operation: ToolOperation, send: Send | None, window: timedelta | None) -> Cell:
    if operation.status == OperationStatus.COMMITTED:
        return NOTHING
    if send is None or send.ended_at is None:
        return badge("yes: it may yet leave", "uncertain")
    if window is None:
        return badge("nobody here knows: its tool is not registered", "uncertain")
    settles = send.ended_at + window
    if settles > timezone.now():
        return format_html("{} over {}", badge("yes", "uncertain"), when(settles))
    return "no"


def _settle_window(operation: ToolOperation) -> timedelta | None:
    try:
        return get_tool(operation.tool).settle_window
    except UnknownTool:
        return None


# -- Look-ups and words ----------------------------------------------------------


def _look_ups(operation: ToolOperation, found: Sequence[ToolObservation]) -> Table:
    shown = found[:LOOK_UPS]
    more = len(found) > LOOK_UPS
    return Table(
        headers=("when", "it said", "which counts for", "in its words", "references"),
        rows=[
            [
                when(one.observed_at),
                verdict_badge(one),
                COUNTS_FOR.get(one.verdict, NOTHING),
                _said(one, operation),
                references(one),
            ]
            for one in shown
        ],
        title="Look-ups",
        empty="The provider was not asked, or cannot be.",
        more_url=list_url(ToolObservation, operation=operation.pk) if more else "",
        more_text=f"The newest {LOOK_UPS} are shown; see all",
    )


def _words(
    operation: ToolOperation, edges: Sequence[Transition], seen: Sequence[ToolObservation]
) -> Table:
    # What a person or a take-over says is written together with the edge it leads to.
    speakers = {edge.at: edge.actor for edge in edges}
    words = [one for one in seen if one.source != Source.WORKER]
    return Table(
        headers=("learned from", "about send", "verdict", "in its words", "result", "when"),
        rows=[
            [
                _speaker(one, speakers),
                str(one.attempt),
                verdict_badge(one),
                _said(one, operation),
                _result(one, operation),
                when(one.observed_at),
            ]
            for one in words
        ],
        title="Late answers, take-overs and words of persons",
        empty="None.",
    )


def _speaker(seen: ToolObservation, speakers: Mapping[datetime, str]) -> Cell:
    if seen.source not in (Source.PERSON, Source.TAKE_OVER):
        return source_badge(seen)
    return format_html("{} {}", source_badge(seen), line(speakers.get(seen.observed_at, ""), 100))


def _said(seen: ToolObservation, operation: ToolOperation) -> Cell:
    return quote(without_secrets(seen.detail, operation), RESULT)


def _result(seen: ToolObservation, operation: ToolOperation) -> Cell:
    if seen.result is None:
        return references(seen)
    shown = json.dumps(redact(seen.result, names_of_operation(operation)), ensure_ascii=False)
    if not (seen.external_ref or seen.also):
        return quote(shown, RESULT)
    return format_html("{} {}", references(seen), quote(shown, RESULT))
