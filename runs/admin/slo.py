"""Service levels: what was promised, how it is kept, and what is left of each error budget.

Guarantees: a GET that reads rollups and nothing else, through the same `build_report` as the API
and the command; a window, agent or tool that nothing is known of is named, and the default shown
in its place. The charts' figures are also there as text.

Does not word the figures: `slo_words.py` does.
"""

from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from runs.admin.readonly import Notice, ReadOnlyAdmin, Table
from runs.admin.show import line, link, list_url, when
from runs.admin.slo_words import (
    card_of,
    counted_facts,
    say_duplicates,
    say_people,
    spread_rows,
    summed_facts,
)
from runs.agents import all_agents
from runs.errors import InvalidInput
from runs.models import EffectAudit, Incident, Rollup
from runs.slo.measures import Measure
from runs.slo.report import build_report
from runs.slo.shapes import Levels, Report
from runs.slo.windows import DEFAULT, OFFERED
from tools.registry import all_tools

GROUPED: Final = {
    "": "no grouping",
    "agent": "by agent",
    "version": "by version",
    "tool": "by tool",
}
_ASKED: Final = ("window", "by", "agent", "tool")


@admin.register(Rollup)
class ServiceLevelAdmin(ReadOnlyAdmin):
    """One page over all rollups: a single one says nothing to anybody."""

    empty = (
        "Nothing was counted yet: a worker does it every half minute, when beat asks. Start both: "
        "python manage.py up."
    )

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.levels_view), name="runs_rollup_changelist"),
            path("<path:object_id>/change/", view(self.to_levels), name="runs_rollup_change"),
        ]

    def to_levels(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:runs_rollup_changelist"))

    def levels_view(self, request: HttpRequest) -> HttpResponse:
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = {name: request.GET.get(name, "") for name in _ASKED}
        report, refused = _build(asked)
        context = self.page_context(request, title="Service levels") | {
            "report": report,
            "asked": asked,
            "refused": refused,
            "empty": self.empty if report.counted_at is None else "",
            "counted": when(report.counted_at),
            "windows": dict.fromkeys((*OFFERED, report.window)),
            "grouped": GROUPED,
            "agents": sorted(one.name for one in all_agents()),
            "tools": sorted(one.name for one in all_tools()),
            **_parts(report),
        }
        return TemplateResponse(request, "admin/runs/slo.html", context)


def _build(asked: dict[str, str]) -> tuple[Report, Notice | None]:
    """The report that is asked for; or the default one, and why."""
    try:
        return (
            build_report(
                window=asked["window"] or DEFAULT,
                by=asked["by"] or None,
                agent=asked["agent"] or None,
                tool=asked["tool"] or None,
            ),
            None,
        )
    except InvalidInput as error:
        asked |= dict.fromkeys(asked, "")
        return build_report(), Notice("danger", "Not shown", [line(str(error), 500)])


def _parts(report: Report) -> dict[str, Any]:
    every = report.all
    is_of_tool = report.tool is not None
    return {
        "cards": [card_of(one, report) for one in every.indicators],
        "people": None if is_of_tool else say_people(every),
        "people_facts": counted_facts(every, _PEOPLE),
        "duplicates": say_duplicates(every),
        "duplicate_facts": counted_facts(every, _DUPLICATES, lists=_lists()),
        "llm_facts": summed_facts(every),
        "unknown_facts": counted_facts(every, _UNKNOWN),
        "spreads": Table(
            headers=("per", "how many", "mean", "half are at most", "95 of 100 at most", "in all"),
            rows=spread_rows(every),
            title="Time and cost",
            empty="Nothing ended in this window.",
        ),
        "groups": _groups(report) if report.by else None,
    }


def _lists() -> dict[Measure, str]:
    """Where what should not have happened is listed, one by one."""
    kinds = Incident.Kind
    return {
        _M.DUPLICATES: list_url(Incident, kind=kinds.DUPLICATE),
        _M.LATE_COMMITS: list_url(Incident, kind=kinds.LATE_COMMIT),
        _M.UNAPPROVED: list_url(Incident, kind=kinds.UNAPPROVED),
        _M.EFFECTS_UNACCOUNTED: list_url(EffectAudit),
        _M.EFFECTS_MISSING: list_url(EffectAudit),
    }


def _groups(report: Report) -> Table:
    shown = [one.name for one in report.all.indicators]
    if report.by == "tool":
        shown = [one.name for group in report.groups[:1] for one in group.indicators]
    titles = {one.name: one.title for one in report.all.indicators}
    return Table(
        headers=(report.by or "", *(titles[name].lower() for name in shown)),
        rows=[
            [_name_of(group, report), *(card_of(one, report).short for one in group.indicators)]
            for group in report.groups
        ],
        title=GROUPED[report.by or ""].capitalize(),
        empty="Nothing was counted in this window.",
    )


def _name_of(group: Levels, report: Report) -> Any:
    if report.by == "version":
        return line(f"{group.agent} {group.name[:12]}")
    narrowed = urlencode({"window": report.window, str(report.by): group.name})
    return link(f"?{narrowed}", line(group.name))


_M = Measure
_PEOPLE: Final = (
    _M.APPROVALS_UNCHANGED,
    _M.APPROVALS_CHANGED,
    _M.APPROVALS_DENIED,
    _M.APPROVALS_EXPIRED,
    _M.APPROVALS_MISMATCHED,
    _M.QUESTIONS_ANSWERED,
    _M.UNKNOWN_SETTLED_BY_PERSON,
)
_DUPLICATES: Final = (
    _M.OPERATIONS_SENT,
    _M.OPERATIONS_RESENT,
    _M.REPEATS_ANSWERED,
    _M.REPEATS_REFUSED,
    _M.DUPLICATES,
    _M.LATE_COMMITS,
    _M.UNAPPROVED,
    _M.EFFECTS_UNACCOUNTED,
    _M.EFFECTS_MISSING,
)
_UNKNOWN: Final = (
    _M.UNKNOWN_IN_TIME,
    _M.UNKNOWN_OVER_OBJECTIVE,
    _M.UNKNOWN_SETTLED_BY_LOOK_UP,
    _M.UNKNOWN_SETTLED_BY_PERSON,
    _M.COMPENSATIONS_COMMITTED,
    _M.COMPENSATIONS_FAILED,
)
