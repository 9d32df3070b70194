"""Audits at providers: what each was asked to list, and what of it is not accounted for.

Guarantees: what a provider named is quoted as it came, escaped and bounded.

Does not ask a provider: `manage.py audit_effects` and the hourly sweep do.
"""

from typing import Final

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, Notice, Part, ReadOnlyAdmin, Record
from runs.admin.show import PARAGRAPH, badge, json_block, line, link, list_url, record_url, when
from runs.models import EffectAudit, Incident, ToolOperation

# Each count of findings, in words.
FOUND: Final = {
    "duplicates": "second effects of one operation",
    "late": "effects of operations that were closed as not done",
    "unaccounted": "effects that name no operation that is known",
    "missing": "operations known as committed that the provider does not list",
}


class OfTool(filters.Tool):
    by = "id"


@admin.register(EffectAudit)
class EffectAuditAdmin(ReadOnlyAdmin):
    list_display = ("audit", "outcome", "effects", "since", "until", "at")
    list_filter = (OfTool,)
    list_only = ("tool", "since", "until", "effects", "matched", "error", "at", *FOUND)
    empty = (
        "No audit yet: declare an audit_handler on a tool whose provider can list its effects, "
        "and ask for them: python manage.py audit_effects."
    )
    empty_link = None

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="tool")
    def audit(self, audit: EffectAudit) -> Cell:
        return link(record_url(EffectAudit, audit.pk), line(audit.tool, 60))

    @admin.display(description="outcome")
    def outcome(self, audit: EffectAudit) -> Cell:
        if audit.error:
            return badge("Could not be asked", "warning")
        if not (open_ends := _count_findings(audit)):
            return badge("All accounted for", "success")
        return badge(f"{open_ends} not accounted for", "danger")

    @admin.display(description="effects")
    def effects(self, audit: EffectAudit) -> Cell:
        return format_html("{} <small>{} matched</small>", audit.effects, audit.matched)

    @admin.display(description="from")
    def since(self, audit: EffectAudit) -> Cell:
        return when(audit.since)

    @admin.display(description="until")
    def until(self, audit: EffectAudit) -> Cell:
        return when(audit.until)

    @admin.display(description="asked")
    def at(self, audit: EffectAudit) -> Cell:
        return when(audit.at)

    def record(self, request: HttpRequest, audit: EffectAudit) -> Record:
        return Record(
            title=f"Audit of {audit.tool}",
            state=self.outcome(audit),
            meaning="What the provider listed, beside what is known here. Rows never change.",
            facts=[
                Fact("Tool", line(audit.tool)),
                Fact("From", when(audit.since)),
                Fact("Until", when(audit.until)),
                Fact("Effects that it listed", str(audit.effects)),
                Fact("Of operations known as committed", str(audit.matched)),
                *(
                    Fact(said.capitalize(), str(getattr(audit, name)))
                    for name, said in FOUND.items()
                ),
                Fact("Asked", when(audit.at)),
            ],
            parts=[*_what_to_do(audit), json_block("Findings", audit.findings, ())],
            links=[
                (list_url(ToolOperation, q=audit.tool), "operations of the tool"),
                (list_url(Incident), "incidents"),
            ],
        )


def _count_findings(audit: EffectAudit) -> int:
    return sum(int(getattr(audit, name)) for name in FOUND)


def _what_to_do(audit: EffectAudit) -> list[Part]:
    if audit.error:
        said = line(audit.error, PARAGRAPH)
        return [Notice("warning", "The provider could not be asked", [said])]
    if not _count_findings(audit):
        return []
    return [
        Notice(
            "danger",
            "Not everything is accounted for",
            [
                "Second and late effects are incidents: decide whether to correct them. What names "
                "no operation was made by somebody else, or past this project: ask who has the key."
            ],
        )
    ]
