"""The lines of a timeline as a page shows them.

Guarantees: everything that an llm, a tool, a provider or a person wrote is escaped, bounded, closed
until it is opened, and labelled where it was never checked; what is hidden in the entries stays so.

Does not order or group (`runs/timeline_story.py`), and reads no rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils.html import format_html

from runs.admin.readonly import Cell, Fact
from runs.admin.show import (
    NOTHING,
    PARAGRAPH,
    Tone,
    line,
    link,
    operation_link,
    record_url,
    run_link,
    version_link,
    visible,
    window_cell,
)
from runs.models import Approval
from runs.shapes import TimelineEntry
from runs.state import edge_line
from runs.timeline_story import Chapter, Gap, Scene
from runs.timeline_story import Line as ToldLine
from runs.timeline_words import Phase, phase_of, say_meanwhile, title_of

# A page holds a hundred lines: of each value there is a start, and the export has the rest.
MOST_SHOWN: Final = 6_000

TONES: Final[Mapping[str, Tone]] = {
    "operation.commit": "success",
    "operation.reject": "danger",
    "operation.deny": "danger",
    "operation.refuse": "danger",
    "operation.lose_outcome": "uncertain",
    "run.take_over": "uncertain",
    "run.need_person": "uncertain",
    "operation.hold": "warning",
    "operation.send_again": "warning",
    "run.fail": "danger",
    "run.complete": "success",
    "llm.failed": "warning",
    "llm.unusable": "warning",
}
_VERDICTS: Final[Mapping[str, Tone]] = {
    "committed": "success",
    "rejected": "danger",
    "unknown": "uncertain",
    "not_found": "warning",
    "indeterminate": "warning",
    "failed": "warning",
}


@dataclass(frozen=True)
class Detail:
    """A long value that is opened at will. `note` says what of it is not shown."""

    key: str
    title: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class ShownGap:
    text: Cell
    lost: bool


@dataclass(frozen=True)
class ShownLine:
    """One entry as cells."""

    key: str
    seq: int
    at: datetime
    clock: str
    day: str
    after: str
    phase: str
    tone: Tone
    title: str
    edges: Sequence[str]
    actor: str
    token: int
    reason: str
    facts: Sequence[Fact]
    details: Sequence[Detail]
    gap: ShownGap | None


@dataclass(frozen=True)
class ShownScene:
    heading: Cell
    corrects: Cell
    lines: Sequence[ShownLine]


@dataclass(frozen=True)
class ShownChapter:
    key: str
    title: str
    scenes: Sequence[ShownScene]


def show_story(chapters: Sequence[Chapter]) -> list[ShownChapter]:
    """The chapters as they stand on a page."""
    return [
        ShownChapter(
            key=f"chapter-{chapter.scenes[0].lines[0].entry.seq}",
            title=_chapter_title(chapter),
            scenes=[_show_scene(scene) for scene in chapter.scenes],
        )
        for chapter in chapters
    ]


def say_length(length: timedelta) -> str:
    """`43 s`, `2 min 5 s`, `3 h 12 min`, `2 d 4 h`; below a minute with its tenths if short."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for big, small, size in (("d", "h", 86_400), ("h", "min", 3_600), ("min", "s", 60)):
        if whole >= size:
            rest = whole % size // (size // {"d": 24, "h": 60, "min": 60}[big])
            return f"{whole // size} {big} {rest} {small}" if rest else f"{whole // size} {big}"
    return f"{whole} s"


def _chapter_title(chapter: Chapter) -> str:
    if not chapter.step:
        return "Before the first step"
    return f"Step {chapter.step}{', later' if chapter.again else ''}"


def _show_scene(scene: Scene) -> ShownScene:
    heading: Cell = ""
    if scene.operation_id is not None:
        heading = format_html(
            "{} {}{}",
            line(scene.tool, 100) if scene.tool else "operation",
            operation_link(scene.operation_id),
            " goes on" if scene.again else "",
        )
    corrects = operation_link(scene.compensates) if scene.compensates else ""
    return ShownScene(heading, corrects, [_show_line(one, scene) for one in scene.lines])


def _show_line(told: ToldLine, scene: Scene) -> ShownLine:
    entry = told.entry
    at = entry.at.astimezone(UTC)
    phase = phase_of(entry)
    if scene.compensates and phase in (Phase.POLICY, Phase.SEND):
        phase = Phase.COMPENSATION
    key = f"entry-{entry.seq}"
    return ShownLine(
        key=key,
        seq=entry.seq,
        at=entry.at,
        clock=f"{at:%H:%M:%S.%f}"[:-3],
        day=f"{at:%Y-%m-%d}",
        after=f"+{say_length(told.after)}",
        phase=phase.value,
        tone=_tone(entry),
        title=line(title_of(entry)),
        edges=[_edge(one) for one in (entry, told.run_edge) if one is not None and one.to_state],
        actor=line(entry.actor, 60),
        token=entry.fence_token,
        reason=_reason(entry, phase),
        facts=list(_facts(entry)),
        details=list(_details(entry, key)),
        gap=_show_gap(told.gap) if told.gap is not None else None,
    )


def _show_gap(gap: Gap) -> ShownGap:
    length = say_length(gap.length)
    if gap.lost_token is not None:
        return ShownGap(f"No sign of life under token {gap.lost_token} for {length}", lost=True)
    meanwhile = say_meanwhile(gap.state)
    said = f"Nothing was recorded for {length}"
    return ShownGap(f"{said}: {meanwhile}" if meanwhile else said, lost=False)


def _tone(entry: TimelineEntry) -> Tone:
    if entry.kind.startswith("incident."):
        return "danger"
    if entry.kind.startswith("observation."):
        return _VERDICTS.get(str((entry.evidence or {}).get("verdict")), "neutral")
    return TONES.get(entry.kind, "neutral")


def _edge(entry: TimelineEntry) -> str:
    whose = "run" if entry.kind.startswith("run.") else "call"
    if entry.kind.startswith("child."):
        whose = "child"
    if entry.from_state == entry.to_state:
        return f"{whose} stays {_words(entry.to_state)}"
    return f"{whose} {_words(entry.from_state)} → {_words(entry.to_state)}"


def _words(state: str | None) -> str:
    return (state or "nothing").replace("_", " ").capitalize()


def _reason(entry: TimelineEntry, phase: Phase) -> str:
    """What was written down, unless the title says it: a verdict's own words, or the line that the
    pure table has for an edge of the steady path."""
    group, _, event = entry.kind.partition(".")
    if group == "observation" and title_of(entry).casefold().endswith(entry.reason.casefold()):
        return ""
    if group in ("run", "operation") and phase not in _EXPLAINED:
        usual = edge_line(
            from_state=entry.from_state or "",
            event=event.upper(),
            of_operation=group == "operation",
        )
        if entry.reason == usual:
            return ""
    return line(entry.reason, PARAGRAPH)


# Where even the usual line tells somebody what was decided.
_EXPLAINED: Final = (Phase.RECOVERY, Phase.COMPENSATION, Phase.APPROVAL)


# -- Facts -------------------------------------------------------------------------


def _facts(entry: TimelineEntry) -> Iterator[Fact]:
    about = entry.evidence or {}
    if about.get("decider"):
        yield Fact("Decider", line(str(about["decider"])))
        yield Fact("Decided", line(str(about.get("decision", "")).replace("_", " ")))
        yield Fact("Agent version", version_link(str(about.get("agent_version") or "")))
    if entry.llm_version:
        yield Fact("Llm", line(entry.llm_version))
    if entry.prompt_version:
        yield Fact("Prompt version", version_link(entry.prompt_version))
    if about.get("policy"):
        yield Fact("Policy says", line(str(about["policy"]).replace("_", " ")))
    if about.get("rule"):
        yield Fact("Rule", line(str(about["rule"]), 500))
    if entry.policy_version and ("policy" in about or "decider" in about or "rule" in about):
        yield Fact("Policy version", line(entry.policy_version))
    yield from _facts_of_approval(entry, about)
    if entry.timeout_stage:
        yield Fact("Interrupted while", line(entry.timeout_stage.replace("_", " ")))
    if about.get("send"):
        yield Fact("About send", str(about["send"]))
    if window := about.get("window"):
        yield Fact("Send window" if about.get("source") != "look_up" else "Asked", _window(window))
    if entry.external_ref:
        yield Fact("Provider's reference", line(entry.external_ref, 255))
    if about.get("also"):
        yield Fact("Besides", line(", ".join(map(str, about["also"])), PARAGRAPH))
    for name, label in (("repeats", "Repeats"), ("compensates", "Corrects")):
        if about.get(name):
            yield Fact(label, operation_link(str(about[name])))
    for name, label in (
        ("child_id", "Child run"),
        ("parent_id", "Parent"),
        ("forked_from", "Fork of"),
    ):
        if about.get(name):
            yield Fact(label, run_link(about[name]))


def _facts_of_approval(entry: TimelineEntry, about: Mapping[str, Any]) -> Iterator[Fact]:
    if entry.approval_id:
        yield Fact("Request", link(record_url(Approval, entry.approval_id), "signature request"))
    if about.get("fingerprint"):
        yield Fact("Fingerprint", line(str(about["fingerprint"]), 100))
    if about.get("groups") is not None and "quorum" in about:
        groups = " and ".join(map(str, about["groups"])) or "whoever may sign"
        yield Fact("Must sign", line(f"{about['quorum']} of {groups}", 300))
    if about.get("approve_by"):
        yield Fact("Until", _clock(str(about["approve_by"])))
    if about.get("decided_by"):
        yield Fact("Signed or refused by", line(str(about["decided_by"]), 300))
    if about.get("decided_at"):
        yield Fact("Decided at", _clock(str(about["decided_at"])))
    if about.get("changed"):
        yield Fact("Changed since", line(", ".join(map(str, about["changed"])), PARAGRAPH))


def _window(window: Any) -> Cell:
    try:
        return window_cell(window)
    except (TypeError, ValueError, AttributeError):
        return NOTHING


def _clock(at: str) -> Cell:
    return format_html('<time datetime="{}">{} UTC</time>', at, at[:19].replace("T", " "))


# -- Details -----------------------------------------------------------------------

_TITLES: Final[Mapping[str, str]] = {
    "said": "Written by the llm: not checked",
    "reviewed": "What the reviewer saw",
    "result": "Result",
    "payload": "What it carried",
    "answer": "The answer",
    "artifact": "The handoff",
    "rationale": "Written by the llm: not checked",
    "tool_versions": "Tool versions",
    "shown": "What the llm was shown",
}


def _details(entry: TimelineEntry, key: str) -> Iterator[Detail]:
    for name, title in _TITLES.items():
        if value := (entry.evidence or {}).get(name):
            text = value if isinstance(value, str) else _json(value)
            yield _detail(f"{key}-{name}", title, text)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _detail(key: str, title: str, text: str) -> Detail:
    if len(text) <= MOST_SHOWN:
        return Detail(key, title, visible(text))
    note = f"The first {MOST_SHOWN:,} of {len(text):,} characters; the export has all of them."
    return Detail(key, title, visible(text[:MOST_SHOWN]), note)
