"""The lanes and the family of a timeline as a page shows them.

Guarantees: a bar is never thinner than can be seen, and never leaves its lane. Reads no rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin.readonly import Cell
from runs.admin.show import Tone, badge, line, run_badge, when
from runs.admin.timeline_lines import say_length
from runs.admin.timeline_moves import say_time
from runs.models import AgentRun, StepAttempt
from runs.shapes import TimelineEntry
from runs.timeline_family import Relative
from runs.timeline_lanes import Hold, Lane, draw_lanes
from runs.timeline_subject import Subject

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
class ShownRelative:
    """A run of the family; `level` is 0 for the top."""

    level: int
    what: str
    name: Cell
    state: Cell
    is_this: bool = False


def lanes_of(subject: Subject, entries: Sequence[TimelineEntry]) -> list[Lane]:
    """Who held the run while these entries, which were read for the subject, came about."""
    holds = (
        Hold(
            token=one.fence_token,
            worker=one.worker,
            step=one.step.number,
            began=one.started_at,
            ended=one.ended_at,
            outcome=one.outcome,
        )
        for one in subject.held.values()
    )
    return draw_lanes(holds, entries)


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
        ended = format_html(words, say_time(run.lease_expires_at, now=now))
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


def show_family(run: AgentRun, around: Sequence[Relative]) -> list[ShownRelative]:
    """The tree that the run stands in, and its forks; empty for a run that is alone."""
    if not around:
        return []
    this = ShownRelative(1, "this run", line(run.agent, 100), run_badge(run.state), is_this=True)
    above = [_show_relative(one) for one in around if one.kind in ("parent", "origin")]
    below = [_show_relative(one) for one in around if one.kind in ("child", "fork")]
    return [*above, this, *below]


def relative_link(one: Relative) -> SafeString:
    """Its name, which leads to its own timeline."""
    return format_html(
        '<a class="ao-link" href="{}">{} <small>…{}</small></a>',
        reverse("admin:runs_agentrun_timeline", args=[one.run_id]),
        line(one.agent, 60),
        str(one.run_id)[-12:],
    )


def _show_relative(one: Relative) -> ShownRelative:
    what = {
        "parent": "started it",
        "origin": f"forked from its step {one.step}",
        "fork": f"fork after step {one.step}",
    }.get(one.kind, "child")
    level = 0 if one.kind in ("parent", "origin") else max(one.level, 1) + 1
    return ShownRelative(level, what, relative_link(one), run_badge(one.state))
