"""The lanes and the family of a timeline as a page shows them.

Guarantees: one query for the attempts of the entries on the page and at most two for the family,
whatever there is; a bar is never thinner than can be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html

from runs.admin.readonly import Cell
from runs.admin.show import Tone, badge, line, run_badge, when
from runs.admin.timeline_lines import say_length
from runs.family import MOST, Descendant
from runs.models import AgentRun, StepAttempt
from runs.shapes import TimelineEntry
from runs.timeline_lanes import Hold, Lane, draw_lanes

MOST_LANES: Final = 40
# A bar's place in thousandths of the time that the page covers.
WIDTH: Final = 1_000
THINNEST: Final = 6

_OUTCOMES: Final[dict[str, tuple[str, Tone]]] = {
    "": ("holds the run", "info"),
    StepAttempt.Outcome.DONE: ("done", "success"),
    StepAttempt.Outcome.PARKED: ("parked", "neutral"),
    StepAttempt.Outcome.LOST: ("lost", "danger"),
    StepAttempt.Outcome.FAILED: ("no usable decision", "warning"),
}


@dataclass(frozen=True)
class Bar:
    """A stretch of a lane: text, so that no locale gets at the numbers."""

    x: str
    width: str


@dataclass(frozen=True)
class ShownLane:
    """Who held the run under one token, in words and as bars."""

    token: int
    worker: str
    steps: str
    began: Cell
    ended: Cell
    outcome: Cell
    said: str
    is_lost: bool
    held: Bar
    silent: Bar | None


@dataclass(frozen=True)
class Relative:
    """A run of the family; `level` is 0 for the top."""

    level: int
    what: str
    name: Cell
    state: Cell
    is_this: bool = False


def read_lanes(run_id: UUID, entries: Sequence[TimelineEntry]) -> list[Lane]:
    """Who held the run while these entries came about."""
    held = {(one.step_number, one.fence_token) for one in entries if one.fence_token}
    attempts = StepAttempt.objects.filter(
        step__run_id=run_id,
        step__number__in={step for step, _ in held},
        fence_token__in={token for _, token in held},
    ).select_related("step")
    return draw_lanes(
        (
            Hold(
                token=one.fence_token,
                worker=one.worker,
                step=one.step.number,
                began=one.started_at,
                ended=one.ended_at,
                outcome=one.outcome,
            )
            for one in attempts
        ),
        entries,
    )


def show_lanes(lanes: Sequence[Lane], run: AgentRun, *, now: datetime) -> list[ShownLane]:
    """The newest of them, oldest first."""
    shown = lanes[-MOST_LANES:]
    if not shown:
        return []
    begin = min(lane.began for lane in shown)
    end = max(_end(lane, now) for lane in shown)
    return [_show_lane(lane, run, begin=begin, end=end, now=now) for lane in shown]


def _show_lane(
    lane: Lane, run: AgentRun, *, begin: datetime, end: datetime, now: datetime
) -> ShownLane:
    text, tone = _OUTCOMES[lane.outcome]
    is_lost, last_sign = lane.is_lost, _end(lane, now)
    said, ended = "", when(lane.ended, now=now)
    if lane.silent is not None:
        last_sign = lane.last_sign
        said = f"no sign of life for {say_length(lane.silent)}, then taken over"
    if lane.ended is None and run.fence_token == lane.token and run.lease_expires_at is not None:
        is_lost = run.lease_expires_at <= now
        words = "its lease is over since {}" if is_lost else "now; its lease lasts until {}"
        ended = format_html(words, when(run.lease_expires_at, now=now))
    if lane.ended is None and is_lost:
        text, tone, last_sign = "lease over", "danger", lane.last_sign
        said = f"no sign of life for {say_length(now - lane.last_sign)}, and nobody took over yet"
    if lane.late:
        late = "a late answer came" if lane.late == 1 else f"{lane.late} late answers came"
        said = f"{said}; {late} under this token" if said else f"{late} under this token"
    first, last = lane.steps
    return ShownLane(
        token=lane.token,
        worker=line(lane.worker, 100),
        steps=f"step {first}" if first == last else f"steps {first}–{last}",
        began=when(lane.began, now=now),
        ended=ended,
        outcome=badge(text, tone),
        said=said,
        is_lost=is_lost,
        held=_bar(lane.began, last_sign, begin=begin, end=end),
        silent=_bar(last_sign, _end(lane, now), begin=begin, end=end) if is_lost else None,
    )


def _end(lane: Lane, now: datetime) -> datetime:
    return max(lane.ended or now, lane.began)


def _bar(start: datetime, stop: datetime, *, begin: datetime, end: datetime) -> Bar:
    whole = max(end - begin, timedelta(microseconds=1))
    width = max(THINNEST, round(WIDTH * ((stop - start) / whole)))
    x = min(round(WIDTH * ((start - begin) / whole)), WIDTH - THINNEST)
    return Bar(x=str(x), width=str(min(width, WIDTH - x)))


# -- The family --------------------------------------------------------------------


def show_family(run: AgentRun, below: Sequence[Descendant]) -> list[Relative]:
    """The tree that the run stands in, and its forks; empty for a run that is alone."""
    named = [pk for pk in (run.parent_id, run.forked_from_id) if pk is not None]
    around = AgentRun.objects.filter(Q(pk__in=named) | Q(forked_from=run.pk)).order_by("created_at")
    found = list(around.only("agent", "state", "forked_from_id", "forked_at_step")[:MOST])
    above = [_relative(0, "parent", one) for one in found if one.pk == run.parent_id]
    origin = [_relative(0, "forked from", one) for one in found if one.pk == run.forked_from_id]
    forks = [
        _relative(1, f"fork after step {one.forked_at_step}", one)
        for one in found
        if one.forked_from_id == run.pk
    ]
    children = [
        Relative(one.level + 1, "child", _name(one.run_id, one.agent), run_badge(one.state))
        for one in below
    ]
    if not (above or origin or forks or children):
        return []
    this = Relative(1, "this run", line(run.agent, 100), run_badge(run.state), is_this=True)
    return [*above, *origin, this, *children, *forks]


def _relative(level: int, what: str, run: AgentRun) -> Relative:
    return Relative(level, what, _name(run.pk, run.agent), run_badge(run.state))


def _name(run_id: UUID, agent: str) -> Cell:
    return format_html(
        '<a class="ao-link" href="{}">{} <small>…{}</small></a>',
        reverse("admin:runs_agentrun_timeline", args=[run_id]),
        line(agent, 60),
        str(run_id)[-12:],
    )
