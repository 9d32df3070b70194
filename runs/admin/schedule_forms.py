"""The page on which a schedule is written, with a look at its next starts.

Guarantees: a preview saves nothing; what does not fit is named at its field, all of it at once,
and nothing that was typed is lost; whoever saves on the ground of a version that somebody has
replaced since is told so.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from runs.access import SCHEDULES_WRITE, Actor
from runs.admin.readonly import Table
from runs.admin.show import relative, visible
from runs.agents import all_agents
from runs.cron import LONGEST_CRON, next_slots, problems_of_cron, problems_of_zone
from runs.errors import InvalidSchedule, ScheduleChanged
from runs.models import NAME, SCHEDULE_NAME, Schedule
from runs.requests import MalformedJson, read_json
from runs.schedule_commands import save_schedule
from runs.schedule_text import ScheduleText, problems_of, problems_of_name
from tools.errors import Problem

if TYPE_CHECKING:
    from runs.admin.schedules import ScheduleAdmin

PERMISSION: Final = "runs.change_schedule"
PREVIEWED: Final = 5
LABELS: Final = {
    "name": "Name",
    "agent": "Agent",
    "objective": "Objective",
    "input": "Input",
    "labels": "Labels",
    "priority": "Priority",
    "cron": "Cron expression",
    "time_zone": "Time zone",
    "catch_up": "Missed starts",
}


@dataclass
class Form:
    """What was typed, and what is wrong with it by field; `other` concerns none of them."""

    given: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    other: str = ""

    @property
    def labelled_errors(self) -> list[tuple[str, str, str]]:
        return [(name, LABELS[name], self.errors[name]) for name in LABELS if name in self.errors]

    def refuse(self, problem: Problem) -> None:
        """Note what is wrong at a field, after what is known of it."""
        name = problem.field.partition(".")[0]
        given = f"{problem.value}: " if problem.value.strip("'") else ""
        told = visible(f"{given}{problem.fix}")
        if name in LABELS:
            self.errors[name] = f"{self.errors.get(name, '')} {told}".strip()
        else:
            self.other = f"{self.other} {told}".strip()


def may_edit(request: HttpRequest) -> bool:
    return request.user.has_perm(PERMISSION)


def actor_of(request: HttpRequest) -> Actor:
    """The person at the page. Raises PermissionDenied for those who may not edit."""
    if not may_edit(request):
        raise PermissionDenied
    assert isinstance(request.user, User)
    return Actor(
        name=request.user.get_username()[:NAME],
        scopes=frozenset({SCHEDULES_WRITE}),
        user_id=request.user.pk,
    )


def starts_table(slots: Sequence[datetime], zone: ZoneInfo, *, now: datetime) -> Table:
    """Slots as the clock on the wall shows them there, and in UTC."""
    return Table(
        title="Next starts",
        headers=("in", f"there ({zone.key})", "UTC"),
        rows=[
            (
                relative(slot, now=now),
                f"{slot.astimezone(zone):%a %Y-%m-%d %H:%M %Z}",
                f"{slot:%Y-%m-%d %H:%M}",
            )
            for slot in slots
        ],
    )


def write_view(page: "ScheduleAdmin", request: HttpRequest, pk: int | None) -> HttpResponse:
    """GET asks; POST previews, or saves and leads to the schedule."""
    actor = actor_of(request)
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    row = page.find(str(pk)) if pk is not None else None
    if pk is not None and row is None:
        return page.not_found(request, str(pk))
    if request.method != "POST":
        based_on = row.version if row else 0
        return _ask(page, request, row, Form(_filled(row)), based_on=based_on)
    form = Form({name: _posted(request, name) for name in (*LABELS, "enabled")})
    name = row.name if row else form.given["name"].strip()
    based_on = _version(_posted(request, "based_on"))
    text = _text_from(form)
    problems = [*problems_of_name(name), *(() if text is None else problems_of(text))]
    for problem in problems:
        form.refuse(problem)
    if text is None or problems or "preview" in request.POST:
        status = 400 if form.errors or form.other else 200
        return _ask(page, request, row, form, based_on=based_on, status=status)
    try:
        saved = save_schedule(actor=actor, name=name, text=text, based_on=based_on)
    except InvalidSchedule as error:
        for problem in error.problems:
            form.refuse(problem)
        return _ask(page, request, row, form, based_on=based_on, status=400)
    except ScheduleChanged as error:
        if row is None:
            form.errors["name"] = "A schedule has this name; open it to change it."
        else:
            form.other = visible(str(error))
        return _ask(page, request, row, form, based_on=based_on, status=409)
    messages.success(request, f"Saved {saved.name}.")
    return HttpResponseRedirect(reverse("admin:runs_schedule_change", args=[saved.pk]))


# -- The form ------------------------------------------------------------------


def _filled(row: Schedule | None) -> dict[str, str]:
    text = ScheduleText.of(row) if row else ScheduleText(agent="", cron="")
    return {
        "name": row.name if row else "",
        "agent": text.agent,
        "objective": text.objective,
        "input": json.dumps(text.input, indent=2, ensure_ascii=False),
        "labels": json.dumps(text.labels, indent=2, ensure_ascii=False),
        "priority": "" if text.priority is None else str(text.priority),
        "cron": text.cron,
        "time_zone": text.time_zone,
        "catch_up": text.catch_up,
        "enabled": "on" if text.enabled else "",
    }


def _posted(request: HttpRequest, name: str) -> str:
    """A field as it may be shown again: browsers send line ends of their own."""
    given = request.POST.get(name, "").replace("\r\n", "\n")
    return given.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _text_from(form: Form) -> ScheduleText | None:
    """What was typed as a schedule; None where a field cannot be read, and the form says which."""
    given = form.given
    values: dict[str, Any] = {
        name: given[name].strip() for name in ("agent", "cron", "time_zone", "catch_up")
    }
    for name in ("input", "labels"):
        try:
            values[name] = read_json(given[name], field=name) if given[name].strip() else {}
        except MalformedJson as error:
            form.refuse(Problem(name, "", f"It is no JSON: {error.why}."))
    if not isinstance(values.get("labels", {}), dict):
        form.refuse(Problem("labels", "", 'Write an object of texts, such as {"team": "web"}.'))
    values["priority"] = None
    if given["priority"].strip():
        try:
            values["priority"] = int(given["priority"][:10])
        except ValueError:
            fix = "Write a whole number, or nothing for the agent's."
            form.refuse(Problem("priority", ascii(given["priority"][:20]), fix))
    if form.errors:
        # The rest is told all the same, so that nobody mends one field at a time.
        values |= {name: {} for name in ("input", "labels") if name in form.errors}
        for problem in problems_of(ScheduleText(**values)):
            form.refuse(problem)
        return None
    return ScheduleText(**values, objective=given["objective"], enabled=bool(given["enabled"]))


def _version(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _ask(
    page: "ScheduleAdmin",
    request: HttpRequest,
    row: Schedule | None,
    form: Form,
    *,
    based_on: int,
    status: int = 200,
) -> HttpResponse:
    newest = Schedule.objects.filter(pk=row.pk).first() if row and status == 409 else None
    names = [agent.name for agent in all_agents()]
    chosen = form.given["agent"]
    context = page.page_context(request, title=f"Edit {row.name}" if row else "A new schedule") | {
        "schedule": row,
        "form": form,
        # After a conflict the author has been told.
        "based_on": newest.version if newest else based_on,
        "agents": [(one, one == chosen) for one in {**dict.fromkeys(names), chosen: None} if one],
        "catch_ups": Schedule.CatchUp.choices,
        "starts": _preview(form),
        "name_limit": SCHEDULE_NAME,
        "cron_limit": LONGEST_CRON,
        "back": reverse("admin:runs_schedule_change", args=[row.pk])
        if row
        else reverse("admin:runs_schedule_changelist"),
    }
    return TemplateResponse(request, "admin/runs/schedule_form.html", context, status=status)


def _preview(form: Form) -> Table | None:
    cron, zone = form.given["cron"].strip(), form.given["time_zone"].strip()
    if problems_of_cron(cron) or problems_of_zone(zone):
        return None
    now = timezone.now()
    slots = next_slots(cron, ZoneInfo(zone), now, count=PREVIEWED)
    return starts_table(slots, ZoneInfo(zone), now=now)
