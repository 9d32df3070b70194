"""The entries of a timeline as a story: chapters of steps, scenes of operations, and gaps.

Guarantees: pure; the order of the entries stays as it is, so a step or an operation that comes up
again, because several are under way at once or because something came late, has another chapter or
scene that says so. Nothing is left out: the edge of a run that only repeats the edge of its
operation in the same commit stands on the same line.

Does not say what entries mean (`timeline_words.py`), and shows nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from runs.shapes import TimelineEntry
from runs.state import PERSON_STATES, RunState
from runs.timeline_lanes import Lane

# Between two entries this is worth a word: a third of a lease, and longer than most calls take.
LONG_SILENCE: Final = timedelta(seconds=10)

# By the edge of an operation: the edge of its run that says the same.
_SAME: Final[Mapping[str, str]] = {
    "operation.intend": "run.prepare",
    "operation.hold": "run.hold",
    "operation.approve": "run.approve",
    "operation.deny": "run.deny",
    "operation.expire": "run.deny",
    "operation.replace": "run.deny",
    "operation.refuse": "run.deny",
    "operation.send": "run.send",
    "operation.send_again": "run.send",
    "operation.replay": "run.replay",
    "operation.commit": "run.commit",
    "operation.reject": "run.reject",
    "operation.not_sent": "run.not_sent",
    "operation.give_up": "run.give_up",
    "operation.lose_outcome": "run.lose_outcome",
}
_PARKED: Final = PERSON_STATES | {RunState.READY, RunState.WAITING, RunState.TOOL_STATUS_UNKNOWN}


@dataclass(frozen=True)
class Gap:
    """Nothing was recorded for so long. `lost_token`: its holder was gone, and was taken over
    from; `is_parked`: nobody was to do anything meanwhile."""

    length: timedelta
    state: str | None
    lost_token: int | None = None

    @property
    def is_parked(self) -> bool:
        return self.lost_token is None and self.state in _PARKED


@dataclass(frozen=True)
class Line:
    """One entry, how long after the run's start it stands, and the gap before it."""

    entry: TimelineEntry
    after: timedelta
    gap: Gap | None = None
    # The run's own edge in the same commit.
    run_edge: TimelineEntry | None = None


@dataclass(frozen=True)
class Scene:
    """Lines about one operation, or about the run itself (None)."""

    operation_id: str | None
    again: bool
    lines: list[Line] = field(default_factory=list)

    @property
    def tool(self) -> str:
        """What the operation calls, as far as its entries tell."""
        told = ((line.entry.evidence or {}).get("tool") for line in self.lines)
        return next((str(tool) for tool in told if tool), "")

    @property
    def compensates(self) -> str | None:
        """The operation that this one corrects."""
        told = ((line.entry.evidence or {}).get("compensates") for line in self.lines)
        return next((str(one) for one in told if one), None)


@dataclass(frozen=True)
class Chapter:
    """Scenes of one step; 0 comes before the first."""

    step: int
    again: bool
    scenes: list[Scene] = field(default_factory=list)


def tell(
    entries: Sequence[TimelineEntry], *, start: datetime, lanes: Sequence[Lane] = ()
) -> list[Chapter]:
    """The story of these entries; `start` is when the run began."""
    told: set[str | int | None] = set()
    chapters: list[Chapter] = []
    step = 0
    for line in _lines(entries, start=start, lanes=lanes):
        entry = line.entry
        # What is about the run as a whole stands where it happened.
        step = entry.step_number or step
        if not chapters or chapters[-1].step != step:
            chapters.append(Chapter(step, again=step in told))
        scenes = chapters[-1].scenes
        if not scenes or scenes[-1].operation_id != entry.operation_id:
            again = entry.operation_id is not None and entry.operation_id in told
            scenes.append(Scene(entry.operation_id, again=again))
        scenes[-1].lines.append(line)
        told |= {step, entry.operation_id}
    return chapters


def turn(chapters: Sequence[Chapter]) -> list[Chapter]:
    """The same story, newest first. The gap of a line is then below it."""
    return [
        Chapter(
            chapter.step,
            chapter.again,
            [
                Scene(scene.operation_id, scene.again, scene.lines[::-1])
                for scene in reversed(chapter.scenes)
            ],
        )
        for chapter in reversed(chapters)
    ]


def _lines(
    entries: Sequence[TimelineEntry], *, start: datetime, lanes: Sequence[Lane]
) -> Iterator[Line]:
    lost = {lane.ended: lane for lane in lanes if lane.is_lost and lane.ended is not None}
    told_silences: set[int] = set()
    before: TimelineEntry | None = None
    state: str | None = None
    skipped: set[int] = set()
    for place, entry in enumerate(entries):
        if place in skipped:
            continue
        gap = None
        if (lane := lost.get(entry.at)) is not None and lane.token not in told_silences:
            told_silences.add(lane.token)
            gap = Gap(lane.silent or timedelta(0), state, lost_token=lane.token)
        elif before is not None and entry.at - before.at >= LONG_SILENCE:
            gap = Gap(entry.at - before.at, state)
        twin = _twin(entries, place)
        if twin is not None:
            skipped.add(twin)
        run_edge = None if twin is None else entries[twin]
        yield Line(entry, entry.at - start, gap, run_edge)
        before = entry
        for edge in (entry, run_edge):
            if edge is not None and edge.kind.startswith("run."):
                state = edge.to_state


def _twin(entries: Sequence[TimelineEntry], place: int) -> int | None:
    """Where the run's edge stands that says the same as this operation's; in its commit alone."""
    entry = entries[place]
    wanted = _SAME.get(entry.kind)
    if wanted is None:
        return None
    for other in range(place + 1, min(place + 3, len(entries))):
        twin = entries[other]
        if (twin.at, twin.fence_token) != (entry.at, entry.fence_token):
            return None
        if twin.kind == wanted:
            return other
    return None
