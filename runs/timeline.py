"""The incident timeline: what happened to one run, or to one operation, and why, oldest first.

Guarantees: it is read from the journal, the observations, the incidents, what llms were asked,
the handoffs and the requests, all append-only, and from the times at which signals, answers and
child runs came; the edges of a run and of its operations come in the order in which they were
committed, and what was learned, said or asked for stands before the edges it led to. A page costs
the same number of queries however long the run is.

Does not word the entries (`timeline_entries.py`), and does not read traces or logs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Annotated, Any, Final, TypeAlias, assert_never
from uuid import UUID

from django.db.models import Q, QuerySet
from pydantic import AwareDatetime, Field

from runs.models import Handoff, Incident, LlmRequest, ToolObservation, ToolOperation, Transition
from runs.paging import Cursor, Page
from runs.shapes import TimelineEntry
from runs.timeline_entries import Row, describe
from runs.timeline_moments import Moment, all_moments, moments_after, moments_before
from runs.timeline_subject import Subject, count_rows

PAGE_SIZE: Final = 500
# Beyond every version and id.
FAR: Final = 2**62
FAR_MOMENT: Final = (datetime(9999, 1, 1, tzinfo=UTC), "far", "far")

_Finding: TypeAlias = ToolObservation | Incident | LlmRequest | Handoff | Moment
_Word: TypeAlias = Annotated[str, Field(pattern=r"^[\w.-]{1,64}$")]


# The kinds whose rows have numbers, as a place names them.
_NUMBERED: Final = ("transition", "observation", "incident", "llm_request", "handoff")


class _Place(Cursor):
    """Between two entries: how many come before it, and the last of each kind among them."""

    seq: int = Field(default=0, ge=0, le=FAR)
    version: int = Field(default=0, ge=0, le=FAR)
    transition: int = Field(default=0, ge=0, le=FAR)
    observation: int = Field(default=0, ge=0, le=FAR)
    incident: int = Field(default=0, ge=0, le=FAR)
    llm_request: int = Field(default=0, ge=0, le=FAR)
    handoff: int = Field(default=0, ge=0, le=FAR)
    # Moments are not numbered: this one is the last before the place, or the first behind it.
    moment: tuple[AwareDatetime, _Word, _Word] | None = None
    is_behind: bool = True


def read_timeline(
    *,
    run_id: UUID,
    operation: ToolOperation | None = None,
    cursor: str | None = None,
    size: int = PAGE_SIZE,
    subject: Subject | None = None,
) -> Page[TimelineEntry]:
    """One page of the run's timeline, or of its `operation`'s. Raises InvalidInput for a foreign
    cursor. Who reads the run too gives a `subject` in place of the operation."""
    subject = subject or Subject(run_id, operation=operation)
    place = _Place.decode(cursor) if cursor is not None else _Place()
    if place.back:
        return _read_back(subject, place, size)
    rows = _rows_after(subject, place, size + 1)
    shown = rows[:size]
    return Page(
        items=describe(subject, shown, first=place.seq + 1),
        next=_place_after(shown, place).encode() if len(rows) > size else None,
        previous=place.model_copy(update={"back": True}).encode() if place.seq else None,
    )


def read_newest(
    *,
    run_id: UUID,
    operation: ToolOperation | None = None,
    size: int,
    subject: Subject | None = None,
) -> Page[TimelineEntry]:
    """The last page of the same, oldest first like every other."""
    subject = subject or Subject(run_id, operation=operation)
    kinds = (
        subject.edges(),
        subject.observations(),
        subject.incidents(),
        subject.llm_requests(),
        subject.handoffs(),
    )
    counts = count_rows(*(rows.values("pk") for rows in kinds), all_moments(subject))
    subject.absent = frozenset(
        name for name, count in zip(_NUMBERED, counts, strict=False) if not count
    )
    # Nothing comes before 0: a kind of which there is no row is not looked for.
    numbers = {name: 0 if name in subject.absent else FAR for name in _NUMBERED}
    moment = FAR_MOMENT if counts[-1] else None
    end = _Place(back=True, seq=sum(counts), version=FAR, moment=moment).model_copy(update=numbers)
    page = _read_back(subject, end, size)
    return Page(items=page.items, next=None, previous=page.previous)


def _read_back(subject: Subject, place: _Place, size: int) -> Page[TimelineEntry]:
    rows = _rows_before(subject, place, size + 1)
    shown = rows[-size:]
    first = _place_before(shown, place)
    return Page(
        items=describe(subject, shown, first=first.seq + 1),
        next=place.model_copy(update={"back": False}).encode(),
        previous=first.encode() if len(rows) > size else None,
    )


# -- Rows ----------------------------------------------------------------------


def _rows_after(subject: Subject, place: _Place, limit: int) -> list[Row]:
    # The first condition says nothing new; it lets the index find the place.
    later = Q(version__gte=place.version) & (
        Q(version__gt=place.version) | Q(id__gt=place.transition)
    )
    edges = subject.edges().filter(later).order_by("version", "id")
    seen = subject.observations().filter(id__gt=place.observation).order_by("id")
    incidents = subject.incidents().filter(id__gt=place.incident).order_by("id")
    asked = subject.llm_requests().filter(id__gt=place.llm_request).order_by("id")
    handoffs = subject.handoffs().filter(number__gt=place.handoff).order_by("number")
    moments = moments_after(subject, place.moment, limit, itself=not place.is_behind)
    found = _by_time(seen[:limit], incidents[:limit], asked[:limit], handoffs[:limit], moments)
    return list(islice(_merge(edges[:limit], found), limit))


def _rows_before(subject: Subject, place: _Place, limit: int) -> list[Row]:
    earlier = Q(version__lte=place.version) & (
        Q(version__lt=place.version) | Q(id__lte=place.transition)
    )
    edges = subject.edges().filter(earlier).order_by("-version", "-id")
    kinds: tuple[QuerySet[Any], ...] = (
        subject.observations().filter(id__lte=place.observation).order_by("-id"),
        subject.incidents().filter(id__lte=place.incident).order_by("-id"),
        subject.llm_requests().filter(id__lte=place.llm_request).order_by("-id"),
        subject.handoffs().filter(number__lte=place.handoff).order_by("-number"),
    )
    numbers = (place.observation, place.incident, place.llm_request, place.handoff)
    newest = (rows[:limit][::-1] for rows, number in zip(kinds, numbers, strict=True) if number)
    moments = moments_before(subject, place.moment, limit, itself=place.is_behind)
    return list(_merge(edges[:limit][::-1], _by_time(*newest, moments)))[-limit:]


def _by_time(*findings: Iterable[_Finding]) -> Iterator[_Finding]:
    """All of them, each kind in its own order; at one time kind by kind, as they are given."""
    return merge(*findings, key=_time_of)


def _time_of(finding: _Finding) -> datetime:
    match finding:
        case ToolObservation():
            return finding.observed_at
        case Handoff():
            return finding.created_at
        case Incident() | LlmRequest() | Moment():
            return finding.at
        case _ as never:
            assert_never(never)


def _merge(edges: Iterable[Transition], found: Iterable[_Finding]) -> Iterator[Row]:
    """Both in their own order, by time; at one time what was found comes first."""
    waiting = deque(found)
    for edge in edges:
        while waiting and _time_of(waiting[0]) <= edge.at:
            yield waiting.popleft()
        yield edge
    yield from waiting


def _place_after(rows: Sequence[Row], place: _Place) -> _Place:
    """The place behind `rows`, which begin at `place`."""
    moved: dict[str, Any] = {"seq": place.seq + len(rows)}
    for row in rows:
        match row:
            case Transition():
                moved |= {"version": row.version, "transition": row.pk}
            case ToolObservation():
                moved["observation"] = row.pk
            case Incident():
                moved["incident"] = row.pk
            case LlmRequest():
                moved["llm_request"] = row.pk
            case Handoff():
                moved["handoff"] = row.number
            case Moment():
                moved |= {"moment": row.key, "is_behind": True}
    return place.model_copy(update=moved)


def _place_before(rows: Sequence[Row], place: _Place) -> _Place:
    """The place in front of `rows`, which end at `place`; reads back from there."""
    moved: dict[str, Any] = {"seq": max(0, place.seq - len(rows))}
    for row in reversed(rows):
        match row:
            case Transition():
                moved |= {"version": row.version, "transition": row.pk - 1}
            case ToolObservation():
                moved["observation"] = row.pk - 1
            case Incident():
                moved["incident"] = row.pk - 1
            case LlmRequest():
                moved["llm_request"] = row.pk - 1
            case Handoff():
                moved["handoff"] = row.number - 1
            case Moment():
                moved |= {"moment": row.key, "is_behind": False}
    return place.model_copy(update=moved)
