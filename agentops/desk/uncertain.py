"""What may or may not have happened: the headline, and each operation that makes it up.

Guarantees: the oldest come first; an operation that a person must settle, that is over its
tool's objective, that is not asked about when it should be, or whose key is about to end at the
provider, is marked so; who may settle it is led to the page that does. While there is nobody to
find out, the headline says so, and promises nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.urls import reverse
from django.utils.html import format_html

from agentops.desk.machines import PROMPT_SECONDS, Machines
from agentops.desk.shapes import Section, Viewer, joined, meter, say_count, say_length, say_many
from runs.admin.readonly import Cell, Table
from runs.admin.resolve import PERMISSION
from runs.admin.show import Tone, badge, line, link, list_url, record_url, run_link, when
from runs.desk import Uncertain, Unknown, read_uncertain
from runs.models import AgentRun, ToolOperation
from runs.state import OperationStatus

# Whoever is asked to settle something sees the first ones in full.
MOST: Final = 20


@dataclass(frozen=True)
class Headline:
    """How many runs have an uncertain effect, what about them presses, and where to begin."""

    number: str
    is_none: bool
    text: str
    presses: list[str]
    url: str
    # Why nobody finds out what became of a call; empty if somebody does.
    warning: str
    action_url: str = ""
    action: str = ""

    @property
    def tone(self) -> Tone:
        if not self.is_none:
            return "uncertain"
        return "danger" if self.warning else "success"


def describe_uncertain(viewer: Viewer, machines: Machines) -> tuple[Headline, list[Section]]:
    """The headline, and the operations behind it, for whoever may see operations."""
    found = read_uncertain(most=MOST)
    headline = Headline(
        number=say_count(found.runs),
        is_none=found.runs == 0,
        text=_headline(found.runs),
        presses=_presses(found),
        url=_list_url(viewer),
        warning=machines.warning,
        **_begin(found.oldest, viewer),
    )
    if not viewer.may("runs.view_tooloperation") or not found.oldest:
        return headline, []
    return headline, [_section(found, viewer, machines)]


def _list_url(viewer: Viewer) -> str:
    if viewer.may("runs.view_agentrun"):
        return list_url(AgentRun, effect="uncertain")
    return list_url(ToolOperation, status=str(OperationStatus.UNKNOWN))


def _headline(runs: int) -> str:
    return "run has an uncertain effect" if runs == 1 else "runs have an uncertain effect"


def _presses(found: Uncertain) -> list[str]:
    """What about them cannot wait. Of more than are listed, that much at least."""
    least = "" if found.operations == len(found.oldest) else "at least "
    counts = {
        "for a person to settle": sum(bool(one.needs_person_since) for one in found.oldest),
        "over the objective": sum(one.is_overdue for one in found.oldest),
        "not asked about in time": sum(_is_left_alone(one) for one in found.oldest),
        "with a key that ends soon, or has": sum(one.key_is_ending for one in found.oldest),
    }
    return [f"{least}{count} {what}" for what, count in counts.items() if count]


def _begin(unknown: Sequence[Unknown], viewer: Viewer) -> dict[str, str]:
    """Where to begin: what only a person can settle, else what is unknown longest."""
    if not unknown or not viewer.may("runs.view_tooloperation"):
        return {}
    first = next((one for one in unknown if one.needs_person_since is not None), unknown[0])
    may_settle = viewer.may(PERMISSION)
    return {
        "action_url": _settle_url(first) if may_settle else _url(first),
        "action": "Settle the first one" if may_settle else "Look at the first one",
    }


def _section(found: Uncertain, viewer: Viewer, machines: Machines) -> Section:
    more = found.operations - len(found.oldest)
    may_settle = viewer.may(PERMISSION)
    headers = ["operation", "unknown for", "what comes next", "key at the provider"]
    table = Table(
        headers=[*headers, "settle"] if may_settle else headers,
        rows=[_row(one, machines, may_settle=may_settle) for one in found.oldest],
        more_url=list_url(ToolOperation, status=str(OperationStatus.UNKNOWN)) if more else "",
        more_text=say_many(more, "more is unknown; see all", "more are unknown; see all"),
    )
    note = (
        "The provider is asked until a tool's objective is over; then a person is. Settle one "
        "by hand only with evidence from the provider."
    )
    return Section("unknown", "May or may not have happened", table, note=note, tone="uncertain")


def _row(one: Unknown, machines: Machines, *, may_settle: bool) -> list[Cell]:
    cells: list[Cell] = [
        format_html(
            "{} <small>{} of {}</small>",
            link(_url(one), line(one.tool, 60)),
            run_link(one.run_id),
            line(one.agent, 60),
        ),
        _age(one),
        _next(one, machines),
        _key(one),
    ]
    if may_settle:
        cells.append(_settle_button(one))
    return cells


def _settle_button(one: Unknown) -> Cell:
    return format_html(
        '<a class="ao-button ao-small{}" href="{}">Settle<span class="ao-unseen"> {} {}</span></a>',
        "" if one.needs_person_since else " ao-quiet",
        _settle_url(one),
        line(one.tool, 60),
        one.operation_id[:11],
    )


def _age(one: Unknown) -> Cell:
    if one.objective is None:
        return f"{say_length(one.age)}; its tool is not known here, and so no objective"
    part = one.age / one.objective if one.objective else 1.0
    words = f"{say_length(one.age)} of {say_length(one.objective)}"
    if one.is_overdue:
        return meter(
            1.0, f"{say_length(one.age)}, over its {say_length(one.objective)}", tone="danger"
        )
    return meter(part, words, tone="warning" if part > _MOST_OF_IT else "info")


_MOST_OF_IT: Final = 0.75


def _next(one: Unknown, machines: Machines) -> Cell:
    asked = _asked(one, machines)
    if one.needs_person_since is None:
        return asked
    person = badge("a person must settle it", "uncertain")
    return joined(person, format_html("<small>{}</small>", asked))


def _asked(one: Unknown, machines: Machines) -> Cell:
    """When the provider is asked next, as far as anybody is there to do it."""
    if one.next_asked_at is None:
        return "the provider is not asked again"
    reason = "" if machines.due.alive else "no worker is alive"
    if _is_left_alone(one):
        late = f"the provider should have been asked {say_length(one.now - one.next_asked_at)} ago"
        return badge(f"{late}: {reason}" if reason else late, "danger")
    if reason:
        return badge(f"nobody asks the provider: {reason}", "danger")
    if one.next_asked_at <= one.now + timedelta(seconds=1):
        return "the provider is asked now"
    return format_html("the provider is asked {}", when(one.next_asked_at, now=one.now))


def _is_left_alone(one: Unknown) -> bool:
    """Whether the provider was to be asked, and for long nobody did."""
    waited = one.now - (one.next_asked_at or one.now)
    return waited.total_seconds() > PROMPT_SECONDS


def _key(one: Unknown) -> Cell:
    if one.key_ends_at is None:
        return "none"
    if one.key_ends_at <= one.now:
        ended = badge("has ended", "danger")
        return joined(ended, format_html("<small>a repeat would be a new effect</small>"))
    words = f"ends in {say_length(one.key_ends_at - one.now)}"
    return badge(words, "warning") if one.key_is_ending else words


def _url(one: Unknown) -> str:
    return record_url(ToolOperation, one.operation_id)


def _settle_url(one: Unknown) -> str:
    return reverse("admin:runs_tooloperation_resolve", args=[one.operation_id])
