"""What waits for whom: signatures and answers by group, operations to settle, paused runs.

Guarantees: each line leads to where it is settled, and is there for those who may see that; a
group's name and the reason of a pause are text of strangers: bounded and escaped.
"""

from collections.abc import Mapping
from typing import Final

from django.urls import reverse
from django.utils.html import format_html

from agentops.desk.shapes import ROWS, Figure, Section, Viewer, say_count, say_many, say_seconds
from runs.admin.readonly import Cell, Table
from runs.admin.show import NOTHING, badge, line, link, list_url, quote, run_link, when
from runs.desk import OfGroup, Waiting, What, count_by_group, count_waiting, find_paused
from runs.models import AgentRun, ToolOperation
from runs.state import OperationStatus

SEES: Final[Mapping[What, tuple[str, ...]]] = {
    What.OPERATION: ("runs.view_tooloperation", "runs.view_agentrun"),
    What.APPROVAL: ("runs.view_approval", "runs.decide_approval"),
    What.QUESTION: ("runs.view_question", "runs.answer_question"),
    What.PAUSE: ("runs.view_agentrun",),
}
GROUPS: Final = 12


def describe_waiting(viewer: Viewer) -> tuple[list[Figure], list[Section]]:
    """How much waits for people, and for whom it does."""
    may_see = [what for what in What if viewer.may(*SEES[what])]
    if not may_see:
        return [], []
    waiting = count_waiting()
    seen = {what: waiting[what] for what in may_see}
    count = sum(one.count for one in seen.values())
    figure = Figure(
        say_count(count),
        "waits for a person" if count == 1 else "wait for people",
        "#people",
        "warning" if count else "neutral",
    )
    asks = seen.keys() & {What.APPROVAL, What.QUESTION}
    groups = [one for one in count_by_group() if one.what in asks] if asks else []
    sections = [_section(viewer, seen, groups)]
    if What.PAUSE in seen and seen[What.PAUSE].count:
        sections.append(_paused(viewer, seen[What.PAUSE]))
    return [figure], sections


def _section(viewer: Viewer, seen: Mapping[What, Waiting], groups: list[OfGroup]) -> Section:
    rows: list[list[Cell]] = []
    if (one := seen.get(What.OPERATION)) and one.count:
        url = list_url(AgentRun, effect="uncertain")
        if viewer.may("runs.view_tooloperation"):
            url = list_url(ToolOperation, status=str(OperationStatus.UNKNOWN))
        rows.append(_row("an operation to settle", url, "whoever may settle", one))
    rows += [_row_of(one) for one in groups[:GROUPS]]
    if (one := seen.get(What.PAUSE)) and one.count:
        rows.append(_row("a run to resume", "#paused", "whoever may steer runs", one))
    if not rows:
        with_what = "" if seen.keys() == set(What) else " with what you may see"
        return Section("people", "Waits for people", well=f"Nobody is waited for{with_what}.")
    headers = ["what", "from whom", "how many", "longest", "first runs out"]
    left_out = len(groups) - GROUPS
    note = ""
    if left_out > 0:
        note = say_many(left_out, "more group is asked.", "more groups are asked.")
    return Section("people", "Waits for people", Table(headers, rows), note=note, tone="warning")


def _row(what: str, url: str, whom: str, one: Waiting) -> list[Cell]:
    longest = say_seconds(one.oldest_seconds)
    return [link(url, what), whom, say_count(one.count), longest, NOTHING]


def _row_of(one: OfGroup) -> list[Cell]:
    if one.what is What.APPROVAL:
        what = link(
            reverse("admin:runs_approval_changelist", query={"show": "pending"}), "a signature"
        )
        anybody = "whoever may sign"
    else:
        what = link(reverse("admin:runs_question_changelist", query={"show": "open"}), "an answer")
        anybody = "whoever may answer"
    whom = line(one.group, 80) if one.group else anybody
    longest = say_seconds((one.now - one.oldest).total_seconds())
    return [what, whom, say_count(one.count), longest, _until(one)]


def _until(one: OfGroup) -> Cell:
    if one.until is None:
        return NOTHING
    if one.until <= one.now:
        return badge("over", "danger")
    return when(one.until, now=one.now)


def _paused(viewer: Viewer, waiting: Waiting) -> Section:
    found = find_paused(most=ROWS)
    may_resume = viewer.may("runs.change_agentrun")
    headers = ["run", "paused", "reason"]
    table = Table(
        headers=[*headers, "go on"] if may_resume else headers,
        rows=[
            [
                format_html("{} <small>{}</small>", run_link(one.run_id), line(one.agent, 60)),
                when(one.since),
                quote(one.reason, 200),
                *([_resume(one.run_id)] if may_resume else []),
            ]
            for one in found
        ],
    )
    more = waiting.count - len(found)
    note: Cell = ""
    if more > 0:
        every = link(list_url(AgentRun, pause="paused"), "See all of them")
        note = format_html("{} {}.", say_many(more, "more is paused.", "more are paused."), every)
    return Section("paused", "Paused runs", table, note=note, tone="warning")


def _resume(run_id: object) -> Cell:
    return format_html(
        '<a class="ao-button ao-small ao-quiet" href="{}">Resume'
        '<span class="ao-unseen"> run {}</span></a>',
        reverse("admin:runs_agentrun_resume", args=[run_id]),
        str(run_id)[-12:],
    )
