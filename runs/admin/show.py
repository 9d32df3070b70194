"""Turns values into what an operator's page shows.

Guarantees: everything returned as `SafeString` is escaped; text of strangers is cut
to a stated length, and characters that hide, or turn the direction of, other text
are written out as escapes. A state is never told by colour alone.

Does not hide secrets: `runs/sensitive.py` says which names are, `json_block` applies it.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runs.models import (
    AgentRun,
    Approval,
    Checkpoint,
    ControlRequest,
    Definition,
    EffectAudit,
    GatewayCall,
    Handoff,
    Incident,
    LlmRequest,
    ModelDecision,
    Release,
    Signal,
    Step,
    StepAttempt,
    ToolObservation,
    ToolOperation,
    Transition,
    Worker,
)
from runs.shapes import MARKS
from runs.state import OperationStatus, RunState
from tools.redaction import bound_text, redact

Tone = Literal["neutral", "info", "success", "warning", "danger", "uncertain"]
Row = (
    AgentRun
    | Approval
    | Step
    | StepAttempt
    | ModelDecision
    | ToolOperation
    | ToolObservation
    | Checkpoint
    | Transition
    | Incident
    | Worker
    | ControlRequest
    | Signal
    | LlmRequest
    | Handoff
    | Definition
    | Release
    | GatewayCall
    | EffectAudit
)

NOTHING: Final = "–"
LINE: Final = 160
PARAGRAPH: Final = 2_000
# A block longer than the first is closed until opened; beyond the second it is cut.
COLLAPSED_OVER: Final = 4_096
CUT_OVER: Final = 65_536

# Controls, soft hyphen, zero-width and direction marks, line separators, tag characters.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

RUN_TONES: Final[dict[RunState, Tone]] = {
    RunState.READY: "info",
    RunState.DECIDING: "info",
    RunState.DECISION_RECORDED: "info",
    RunState.TOOL_PREPARED: "info",
    RunState.TOOL_RUNNING: "info",
    RunState.TOOL_STATUS_UNKNOWN: "uncertain",
    RunState.TOOL_COMMITTED: "info",
    RunState.WAITING_FOR_APPROVAL: "warning",
    RunState.WAITING_FOR_RESOLUTION: "uncertain",
    RunState.WAITING: "neutral",
    RunState.COMPENSATING: "warning",
    RunState.COMPLETED: "success",
    RunState.FAILED: "danger",
    RunState.CANCELLED: "neutral",
}
OPERATION_TONES: Final[dict[OperationStatus, Tone]] = {
    OperationStatus.AWAITING_APPROVAL: "warning",
    OperationStatus.PREPARED: "info",
    OperationStatus.RUNNING: "info",
    OperationStatus.UNKNOWN: "uncertain",
    OperationStatus.COMMITTED: "success",
    OperationStatus.REJECTED: "danger",
    OperationStatus.CANCELLED: "neutral",
}


@dataclass(frozen=True)
class Block:
    """A long value under its own heading. `note` says what of it is not shown."""

    template: ClassVar[str] = "admin/runs/_block.html"
    title: str
    text: str
    size: int
    note: str = ""

    @property
    def collapsed(self) -> bool:
        return self.size > COLLAPSED_OVER


def visible(text: str) -> str:
    """`text` with every unseen character as its escape, so that it cannot mislead."""
    return _UNSEEN.sub(_escape, text.replace("\r\n", "\n"))


def line(text: str, limit: int = LINE) -> str:
    """One bounded line of a stranger's text; a template escapes it."""
    return visible(bound_text(" ".join(text[: 4 * limit].split()), limit)) or NOTHING


def quote(text: str, limit: int = PARAGRAPH) -> SafeString | str:
    """A provider's or a tool's words, marked as such."""
    said = line(text, limit)
    return said if said == NOTHING else format_html('<q class="ao-said">{}</q>', said)


def references(seen: ToolObservation) -> str:
    """What the provider calls the effect that was seen, and those that it has besides."""
    return line(", ".join(filter(None, (seen.external_ref, *(seen.also or ())))), PARAGRAPH)


def text_block(title: str, text: str) -> Block:
    """A stranger's text in full, up to the cut."""
    return _block(title, text)


def json_block(title: str, value: Any, hidden: Collection[str]) -> Block:
    """A JSON value, indented, with the values of `hidden` names replaced."""
    return _block(title, json.dumps(redact(value, hidden), indent=2, ensure_ascii=False))


def badge(text: str, tone: Tone) -> SafeString:
    return format_html('<span class="ao-badge ao-{}">{}</span>', tone, text)


def run_badge(state: str) -> SafeString:
    """The run's state; an uncertain one says in words what is uncertain."""
    return _state_badge(state, RUN_TONES[RunState(state)])


def operation_badge(status: str) -> SafeString:
    return _state_badge(status, OPERATION_TONES[OperationStatus(status)])


def in_flight_badge(operation: ToolOperation) -> SafeString | str:
    """Whether an earlier send may yet take effect; nothing if none can."""
    if not operation.may_be_in_flight:
        return ""
    return badge("may still be in flight", "uncertain")


def asked_again(operation: ToolOperation) -> SafeString | str:
    """When the provider is asked next about an unknown operation."""
    if operation.next_reconcile_at is None:
        return "the provider is not asked again"
    return format_html("asked again {}", when(operation.next_reconcile_at))


def edge_badges(edge: Transition) -> SafeString:
    """Where an edge came from and led to, as states of the run or of the operation."""
    came_from, led_to = (
        badge(_words(state) if state else "nothing", _edge_tone(edge, state))
        for state in (edge.from_state, edge.to_state)
    )
    return format_html("{} → {}", came_from, led_to)


def when(moment: datetime | None, *, now: datetime | None = None) -> SafeString | str:
    """A time as a person says it and as a machine does, both on the page."""
    if moment is None:
        return NOTHING
    now = now or timezone.now()
    return format_html(
        '<time class="ao-time" datetime="{}">{} <small>{} UTC</small></time>',
        moment.isoformat(),
        relative(moment, now=now),
        f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
    )


def window_cell(window: Mapping[str, Any] | None) -> SafeString | str:
    """When the bytes of a request may have left, mark by mark."""
    marks = [
        (words, datetime.fromisoformat(at))
        for name, words in MARKS.items()
        if (at := (window or {}).get(name))
    ]
    if not marks:
        return NOTHING
    return format_html_join(
        "",
        '<span class="ao-mark"><small>{}</small> '
        '<time datetime="{}" title="{} UTC">{}</time></span>',
        (
            (words, at.isoformat(), f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}", _clock(at))
            for words, at in marks
        ),
    )


def relative(moment: datetime, *, now: datetime) -> str:
    """`3 min ago`, `in 12 s`: one unit, rounded down."""
    distance = abs(now - moment)
    for unit, length in _UNITS:
        if distance >= length:
            amount = f"{distance // length} {unit}"
            return f"in {amount}" if moment > now else f"{amount} ago"
    return "now"


def link(url: str, text: str) -> SafeString:
    return format_html('<a class="ao-link" href="{}">{}</a>', url, text)


def record_url(model: type[Row], pk: object) -> str:
    return reverse(f"admin:runs_{model._meta.model_name}_change", args=[pk])


def list_url(model: type[Row], **filters: object) -> str:
    """The list of `model`, narrowed by its filters' parameters."""
    return reverse(f"admin:runs_{model._meta.model_name}_changelist", query=filters)


def run_link(run_id: object) -> SafeString:
    return link(record_url(AgentRun, run_id), f"…{str(run_id)[-12:]}")


def operation_link(operation_id: str | None) -> SafeString | str:
    if operation_id is None:
        return NOTHING
    return link(record_url(ToolOperation, operation_id), f"{operation_id[:11]}…")


def version_link(version: str) -> SafeString | str:
    """A version's content, among all that were served."""
    if not version:
        return NOTHING
    return link(list_url(Definition, q=version), visible(version))


def step_link(step_id: int, number: int) -> SafeString:
    return link(record_url(Step, step_id), f"step {number}")


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S.%f}"[:-3]


def _state_badge(state: str, tone: Tone) -> SafeString:
    shown = badge(_words(state), tone)
    if tone == "uncertain":
        return format_html("{} {}", shown, badge("effect uncertain", tone))
    return shown


def _edge_tone(edge: Transition, state: str) -> Tone:
    if not state:
        return "neutral"
    if edge.operation_id is None:
        return RUN_TONES[RunState(state)]
    return OPERATION_TONES[OperationStatus(state)]


def _words(state: str) -> str:
    return state.replace("_", " ").capitalize()


def _block(title: str, text: str) -> Block:
    size = len(text)
    note = ""
    if size > CUT_OVER:
        note = f"Cut: the first {CUT_OVER:,} of {size:,} characters. The API returns it whole."
        text = text[:CUT_OVER]
    return Block(title=title, text=visible(text), size=size, note=note)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


_UNITS: Final = (
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("min", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
)
