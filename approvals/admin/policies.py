"""Policies: what counts now, how it came to be, and the pages that write the next version.

Guarantees: a GET changes nothing; what is written goes through `approvals.policies`, by those
who have `tools.edit_policies`; no version is edited in place, by nobody. Whoever saves on the
ground of a version that somebody has replaced since is shown what changed, and asked again,
with nothing lost of what they typed.

The switches that stop sending are on a page of their own: `stops.py`.
"""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from approvals.admin.policy_forms import may_edit, retire_view, write_view
from approvals.admin.stops import stopped_notice, stops_view
from approvals.policies import history_of, say_target
from approvals.policy_shapes import LABELS, fields_shown, say_changes, say_field, say_scope
from runs.admin.readonly import Action, Cell, Fact, Notice, Part, ReadOnlyAdmin, Record, Table
from runs.admin.show import PARAGRAPH, Tone, badge, line, link, text_block, when
from tools.models import ToolPolicy

TONES: dict[str, Tone] = {
    "allow": "success",
    "require_approval": "warning",
    "refuse": "danger",
    "stop": "danger",
}
MEANINGS: dict[str, str] = {
    "allow": "Calls that match are sent without a signature, if no other policy asks for one.",
    "require_approval": "Calls that match wait until everybody who must has signed.",
    "refuse": "Calls that match are not sent, and the agent is told so.",
    "stop": "Nothing that this concerns is sent.",
}


@admin.register(ToolPolicy)
class ToolPolicyAdmin(ReadOnlyAdmin):
    list_display = ("policy", "outcome", "about", "condition", "signers", "author", "changed")
    change_list_template = "admin/approvals/policies.html"
    empty = (
        "No policy yet: every tool's own approval_policy decides. Write one: python manage.py "
        "save_policy NAME, or the button above for those who may."
    )
    empty_link = None
    list_only = (
        *("name", "version", "outcome", "active", "tool", "provider", "agent", "when"),
        *("groups", "quorum", "author", "created_at"),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_edit(request) or super().has_view_permission(request, obj)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The newest version of every policy, retired ones too; stops have their own page."""
        newer = ToolPolicy.objects.filter(name=OuterRef("name"), version__gt=OuterRef("version"))
        rows = super().get_queryset(request)
        return rows.exclude(outcome=ToolPolicy.Outcome.STOP).filter(~Exists(newer))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        name = "tools_toolpolicy"
        return [
            path("write/", view(self.write_view), name=f"{name}_write"),
            path("stops/", view(self.stops_view), name=f"{name}_stops"),
            path("<int:pk>/write/", view(self.write_view), name=f"{name}_rewrite"),
            path("<int:pk>/retire/", view(self.retire_view), name=f"{name}_retire"),
            *super().get_urls(),
        ]

    def write_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        return write_view(self, request, pk)

    def retire_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return retire_view(self, request, pk)

    def stops_view(self, request: HttpRequest) -> HttpResponse:
        return stops_view(self, request)

    def not_found(self, request: HttpRequest, key: str) -> HttpResponse:
        messages.warning(request, f"There is no policy {line(key, 80)}.")
        return HttpResponseRedirect(reverse("admin:tools_toolpolicy_changelist"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {
            "may_edit": may_edit(request),
            "stopped": stopped_notice(),
            "write_url": reverse("admin:tools_toolpolicy_write"),
            "stops_url": reverse("admin:tools_toolpolicy_stops"),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    @admin.display(description="policy")
    def policy(self, row: ToolPolicy) -> Cell:
        return link(version_url(row), line(f"{row.name} v{row.version}", 120))

    @admin.display(description="outcome")
    def outcome(self, row: ToolPolicy) -> Cell:
        return state_of(row)

    @admin.display(description="about")
    def about(self, row: ToolPolicy) -> Cell:
        return line(say_scope(row), 120)

    @admin.display(description="when")
    def condition(self, row: ToolPolicy) -> Cell:
        return format_html('<code class="ao-code">{}</code>', line(row.when, 120))

    @admin.display(description="who signs")
    def signers(self, row: ToolPolicy) -> Cell:
        return line(_signers(row), 120)

    @admin.display(description="author")
    def author(self, row: ToolPolicy) -> Cell:
        return line(row.author, 60)

    @admin.display(description="changed")
    def changed(self, row: ToolPolicy) -> Cell:
        return when(row.created_at)

    def record(self, request: HttpRequest, row: ToolPolicy) -> Record:
        versions = history_of(row.name)
        newest = versions[0]
        is_policy = row.outcome != ToolPolicy.Outcome.STOP
        action, links = None, []
        if is_policy and may_edit(request):
            words = "Write a new version" if newest.active else "Bring it back, as a new version"
            action = Action(reverse("admin:tools_toolpolicy_rewrite", args=[newest.pk]), words)
            if newest.active:
                links.append(
                    (reverse("admin:tools_toolpolicy_retire", args=[newest.pk]), "Retire…")
                )
        if not is_policy:
            links.append((reverse("admin:tools_toolpolicy_stops"), "What is stopped now"))
        return Record(
            title=f"Policy {row.name} v{row.version}" if is_policy else f"Stop: {say_target(row)}",
            state=state_of(row),
            meaning=MEANINGS[row.outcome] if row.active else "It does not count.",
            facts=_facts(row),
            parts=[*_not_newest(row, newest), text_block("When", row.when), _history(versions)],
            action=action,
            links=links,
        )


def version_url(row: ToolPolicy) -> str:
    return reverse("admin:tools_toolpolicy_change", args=[row.pk])


def state_of(row: ToolPolicy) -> Cell:
    if not row.active:
        return badge("Lifted" if row.outcome == "stop" else "Retired", "neutral")
    return badge(row.get_outcome_display(), TONES[row.outcome])


def _signers(row: ToolPolicy) -> str:
    if row.outcome != ToolPolicy.Outcome.REQUIRE_APPROVAL:
        return ""
    people = f"{row.quorum} people" if row.quorum > 1 else ""
    return " · ".join(filter(None, (", ".join(row.groups), people))) or "anybody who may sign"


def _facts(row: ToolPolicy) -> list[Fact]:
    # The condition is a block of its own, and the outcome the record's state.
    names = [name for name in fields_shown(row) if name not in {"when", "outcome"}]
    return [
        *(Fact(LABELS[name].capitalize(), line(say_field(row, name), 300)) for name in names),
        Fact("Author", line(row.author, 100)),
        Fact("Reason", line(row.reason, PARAGRAPH)),
        Fact("Saved", when(row.created_at)),
    ]


def _not_newest(row: ToolPolicy, newest: ToolPolicy) -> list[Part]:
    if row.pk == newest.pk:
        return []
    told = link(version_url(newest), f"version {newest.version}")
    return [
        Notice(
            tone="warning",
            title="This version does not count any more",
            lines=[format_html("The newest is {}, by {}.", told, line(newest.author, 100))],
        )
    ]


def _history(versions: Sequence[ToolPolicy]) -> Table:
    return Table(
        title="History",
        headers=("version", "saved", "author", "reason", "what changed"),
        rows=[
            (
                link(version_url(row), f"v{row.version}"),
                when(row.created_at),
                line(row.author, 60),
                line(row.reason, 300),
                line(say_changes(before, row), 500),
            )
            for row, before in zip(versions, [*versions[1:], None], strict=True)
        ],
    )
