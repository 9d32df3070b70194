"""The pages on which a policy is written, and retired.

Guarantees: as for `policies.py`. What does not fit is named at its field, all of it at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from approvals.durations import parse_duration, say_duration
from approvals.policies import (
    InvalidPolicy,
    PolicyChanged,
    UnknownPolicy,
    find_policy,
    retire_policy,
    save_policy,
)
from approvals.policy_shapes import LABELS, SIGNATURE_FIELDS, changes
from approvals.policy_text import PolicyText
from runs.access import POLICIES_WRITE, Actor
from runs.admin.readonly import Table
from runs.admin.show import line, visible
from runs.agents import all_agents
from runs.errors import InvalidInput, RunsError
from runs.models import NAME, TEXT_LIMIT
from tools.expressions import LONGEST_EXPRESSION
from tools.models import ToolPolicy
from tools.registry import all_tools

if TYPE_CHECKING:
    from approvals.admin.policies import ToolPolicyAdmin

PERMISSION: Final = "tools.edit_policies"
TEXTS: Final = ("outcome", "tool", "provider", "agent", "when", "window_by", "window_money")
TIMES: Final = ("approve_by", "execute_by", "escalate_after", "remind_after")
LISTS: Final = ("groups", "escalate_to")
OUTCOMES: Final = (
    ("require_approval", "Require approval", "Calls that match wait for signatures."),
    ("refuse", "Refuse", "Calls that match are never sent; the agent is told so."),
    (
        "allow",
        "Allow",
        "Waives what the tool itself asks for, and the signature that irreversible tools need. "
        "Never what another policy asks for.",
    ),
)


@dataclass
class Form:
    """What was typed, and what is wrong with it by field; `other` concerns none of them."""

    given: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    other: str = ""

    @property
    def is_refused(self) -> bool:
        return bool(self.errors or self.other)

    @property
    def labelled_errors(self) -> list[tuple[str, str, str]]:
        labels: Mapping[str, str] = {**LABELS, "name": "name", "reason": "reason"}
        return [(name, labels[name].capitalize(), told) for name, told in self.errors.items()]

    def refuse(self, name: str, told: str) -> None:
        """Note what is wrong at a field, after what is known of it."""
        if name in LABELS or name in {"name", "reason"}:
            self.errors[name] = f"{self.errors.get(name, '')} {visible(told)}".strip()
        else:
            self.other = f"{self.other} {visible(told)}".strip()


def may_edit(request: HttpRequest) -> bool:
    return request.user.has_perm(PERMISSION)


def actor_of(request: HttpRequest) -> Actor:
    """The person at the page. Raises PermissionDenied for those who may not edit."""
    if not may_edit(request):
        raise PermissionDenied
    assert isinstance(request.user, User)
    return Actor(
        name=request.user.get_username()[:NAME],
        scopes=frozenset({POLICIES_WRITE}),
        user_id=request.user.pk,
    )


def posted(request: HttpRequest, name: str) -> str:
    """A field as it may be shown again: browsers send line ends of their own."""
    return (
        request.POST.get(name, "").replace("\r\n", "\n").replace("\0", "\N{REPLACEMENT CHARACTER}")
    )


def write_view(page: "ToolPolicyAdmin", request: HttpRequest, pk: int | None) -> HttpResponse:
    """GET asks; POST saves the next version and leads to it."""
    actor = actor_of(request)
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    row = page.find(str(pk)) if pk is not None else None
    if pk is not None and (row is None or row.outcome == ToolPolicy.Outcome.STOP):
        return page.not_found(request, str(pk))
    if request.method != "POST":
        return _ask(page, request, row, _filled(row), based_on=row.version if row else 0)
    form = _read(request)
    name = row.name if row else form.given["name"].strip()
    based_on = _number(posted(request, "based_on"))
    try:
        saved = save_policy(
            actor=actor,
            name=name,
            text=_text_from(form),
            reason=form.given["reason"],
            based_on=based_on,
        )
    except _Unreadable:
        return _ask(page, request, row, form, based_on=based_on, status=400)
    except InvalidPolicy as error:
        for problem in error.problems:
            given = f"{problem.value}: " if problem.value else ""
            form.refuse(problem.field, f"{given}{problem.fix}")
        return _ask(page, request, row, form, based_on=based_on, status=400)
    except PolicyChanged as error:
        if row is None:
            # Else a second try would replace a policy that the author never looked at.
            form.refuse("name", "A policy has this name; open it to write its next version.")
            return _ask(page, request, row, form, based_on=0, status=409)
        form.other = visible(str(error))
        return _ask(page, request, row, form, based_on=based_on, status=409)
    except UnknownPolicy as error:
        form.other = visible(str(error))
        return _ask(page, request, row, form, based_on=based_on, status=400)
    messages.success(request, f"Saved {saved}. Workers follow it from their next commit on.")
    return HttpResponseRedirect(reverse("admin:tools_toolpolicy_change", args=[saved.pk]))


def retire_view(page: "ToolPolicyAdmin", request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks; POST retires the policy and leads to its last version."""
    actor = actor_of(request)
    if request.method not in {"GET", "HEAD", "POST"}:
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    row = page.find(str(pk))
    if row is None or row.outcome == ToolPolicy.Outcome.STOP:
        return page.not_found(request, str(pk))
    form = Form({"reason": posted(request, "reason")})
    status = 200
    if request.method == "POST":
        try:
            retired = retire_policy(
                actor=actor, name=row.name, reason=form.given["reason"], based_on=row.version
            )
        except InvalidPolicy as error:
            for problem in error.problems:
                form.refuse(problem.field, problem.fix)
            status = 400
        except RunsError as error:
            form.other = visible(str(error))
            status = 409
        else:
            messages.success(request, f"{row.name} is retired; it counts no more.")
            return HttpResponseRedirect(reverse("admin:tools_toolpolicy_change", args=[retired.pk]))
    context = page.page_context(request, title=f"Retire {row.name}") | {
        "policy": row,
        "form": form,
        "text_limit": TEXT_LIMIT,
        "back": reverse("admin:tools_toolpolicy_change", args=[row.pk]),
    }
    return TemplateResponse(request, "admin/approvals/retire_policy.html", context, status=status)


# -- The form ------------------------------------------------------------------


class _Unreadable(Exception):
    """A field is no number or no time; the form says which."""


def _filled(row: ToolPolicy | None) -> Form:
    text = PolicyText.of(row) if row else PolicyText(outcome="require_approval")
    given = {name: str(getattr(text, name)) for name in TEXTS}
    for name in TIMES:
        time: timedelta | None = getattr(text, name)
        given[name] = say_duration(time) if time is not None else ""
    window = text.window_seconds
    given["window_seconds"] = say_duration(timedelta(seconds=window)) if window else ""
    given |= {"quorum": str(text.quorum), "name": row.name if row else "", "reason": ""}
    return Form(given, {name: list(getattr(text, name)) for name in LISTS})


def _read(request: HttpRequest) -> Form:
    names = (*TEXTS, *TIMES, "window_seconds", "quorum", "name", "reason")
    given = {name: posted(request, name) for name in names}
    return Form(given, {name: request.POST.getlist(name) for name in LISTS})


def _text_from(form: Form) -> PolicyText:
    """What was typed as a policy. Raises _Unreadable."""
    given = form.given
    values: dict[str, Any] = {name: given[name].strip() for name in TEXTS}
    values["window_by"] = values["window_by"] or PolicyText.window_by
    values |= {name: tuple(form.lists[name]) for name in LISTS}
    default = PolicyText(outcome="")
    for name in TIMES:
        values[name] = _time(form, name) or getattr(default, name)
    window = _time(form, "window_seconds")
    values["window_seconds"] = None if window is None else int(window.total_seconds())
    values["quorum"] = _number(given["quorum"])
    if not values["quorum"]:
        form.refuse("quorum", "Write a number, from 1 on.")
    if form.errors:
        raise _Unreadable
    text = PolicyText(**values)
    if text.outcome == "require_approval":
        return text
    # These fields are about signing, and the page says that they are left out then.
    return replace(text, **{name: getattr(default, name) for name in SIGNATURE_FIELDS})


def _time(form: Form, name: str) -> timedelta | None:
    if not form.given[name].strip():
        return None
    try:
        return parse_duration(form.given[name], field=name)
    except InvalidInput as error:
        form.refuse(name, error.fix)
        return None


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _ask(
    page: "ToolPolicyAdmin",
    request: HttpRequest,
    row: ToolPolicy | None,
    form: Form,
    *,
    based_on: int,
    status: int = 200,
) -> HttpResponse:
    changed = find_policy(row.name) if row and status == 409 else None
    context = page.page_context(
        request, title=f"Next version of {row.name}" if row else "Write a policy"
    ) | {
        "policy": row,
        "form": form,
        "news": _news(changed, based_on),
        # After a conflict the author has seen what there is.
        "based_on": changed.version if changed else based_on,
        "outcomes": OUTCOMES,
        "windows_by": ToolPolicy.By.choices,
        "tools": _options(form, "tool", [spec.name for spec in all_tools()]),
        "providers": _options(
            form, "provider", sorted({spec.provider_name for spec in all_tools()} - {""})
        ),
        "agents": _options(form, "agent", [agent.name for agent in all_agents()]),
        "groups": _ticked(form, "groups"),
        "escalate_to": _ticked(form, "escalate_to"),
        "text_limit": TEXT_LIMIT,
        "longest_expression": LONGEST_EXPRESSION,
        "name_limit": NAME,
        "back": reverse("admin:tools_toolpolicy_change", args=[row.pk])
        if row
        else reverse("admin:tools_toolpolicy_changelist"),
    }
    return TemplateResponse(request, "admin/approvals/policy_form.html", context, status=status)


def _news(newest: ToolPolicy | None, based_on: int) -> list[Table]:
    """What others changed since the version that the author saw."""
    if newest is None:
        return []
    seen = ToolPolicy.objects.filter(name=newest.name, version=based_on).first()
    if seen is None:
        return []
    return [
        Table(
            title=f"What {newest.author} and others changed since version {based_on}",
            headers=("field", "you saw", "it is now"),
            rows=[
                (label, line(old, 300), line(new, 300)) for label, old, new in changes(seen, newest)
            ],
            empty="Nothing but the reason.",
        )
    ]


def _options(form: Form, name: str, known: list[str]) -> list[tuple[str, bool]]:
    """The names to choose from, and which is chosen; one that is gone stays until changed."""
    chosen = form.given.get(name, "")
    names = known if not chosen or chosen in known else [*known, chosen]
    return [(one, one == chosen) for one in names]


def _ticked(form: Form, name: str) -> list[tuple[str, bool]]:
    chosen = form.lists.get(name, [])
    known = list(Group.objects.order_by("name").values_list("name", flat=True))
    gone = [one for one in chosen if one not in known]
    return [(one, one in chosen) for one in (*known, *gone)]
