"""Incidents: what should not have happened and did, newest first, and where it is told."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, Notice, ReadOnlyAdmin, Record
from runs.admin.show import (
    PARAGRAPH,
    badge,
    line,
    link,
    list_url,
    operation_link,
    record_url,
    run_link,
    step_link,
    when,
)
from runs.models import AgentRun, Incident, ToolOperation
from runs.sensitive import without_secrets

TOLD = 5

MEANINGS: dict[str, str] = {
    Incident.Kind.LATE_COMMIT: (
        "The provider has an effect of an operation that was closed as if it had none. "
        "Decide whether to correct it there."
    ),
    Incident.Kind.DUPLICATE: (
        "The provider has more than one effect of one operation. Decide which of them to undo."
    ),
    Incident.Kind.OVERDUE: (
        "The provider could not be made to say what happened within the tool's objective. "
        "Settle the operation by hand."
    ),
    Incident.Kind.UNAPPROVED: (
        "A call was sent that nobody signed, though a policy asks for a signature. Find out by "
        "which way it left, and stop sending with that tool until then."
    ),
}


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin):
    list_display = ("incident", "operation", "run", "reference", "detail", "at")
    list_filter = (filters.Kind, filters.OfRun, filters.OfOperation)
    list_select_related = ("operation",)
    list_only = (
        "operation__tool",
        "operation__arguments",
        "operation__tool_version",
        "operation__sensitive",
        "run_id",
        "kind",
        "external_ref",
        "detail",
        "at",
    )
    record_related = ("operation",)
    empty = "No incident: no effect came late, twice or unsigned, or stayed unknown for too long."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-run_id", "-id") if "run" in request.GET else ("-at", "-id")

    @admin.display(description="incident")
    def incident(self, incident: Incident) -> Cell:
        shown = _kind_badge(incident)
        return format_html(
            '<a class="ao-link" href="{}">{}</a>', record_url(Incident, incident.pk), shown
        )

    @admin.display(description="operation")
    def operation(self, incident: Incident) -> Cell:
        return format_html(
            "{} {}", line(incident.operation.tool, 60), operation_link(incident.operation_id)
        )

    @admin.display(description="run")
    def run(self, incident: Incident) -> Cell:
        return run_link(incident.run_id)

    @admin.display(description="reference")
    def reference(self, incident: Incident) -> Cell:
        return line(incident.external_ref, 60)

    @admin.display(description="detail")
    def detail(self, incident: Incident) -> Cell:
        return line(_detail(incident), 100)

    @admin.display(description="at")
    def at(self, incident: Incident) -> Cell:
        return when(incident.at)

    def record(self, request: HttpRequest, incident: Incident) -> Record:
        operation = incident.operation
        return Record(
            title=f"Incident of {operation.tool}",
            state=_kind_badge(incident),
            meaning=MEANINGS[incident.kind],
            facts=[
                Fact("What", incident.get_kind_display()),
                Fact(
                    "Operation", link(record_url(ToolOperation, operation.pk), line(str(operation)))
                ),
                Fact("Run", run_link(incident.run_id)),
                Fact("Step", step_link(operation.step_id, operation.step_number)),
                Fact("External reference", line(incident.external_ref, 255)),
                Fact("Detail", line(_detail(incident), PARAGRAPH)),
                Fact("At", when(incident.at)),
            ],
            links=[
                (record_url(AgentRun, incident.run_id), "run"),
                (list_url(Incident, run=incident.run_id), "incidents of the run"),
            ],
        )


def incident_notices(incidents: "QuerySet[Incident]", *, run: UUID | None = None) -> list[Notice]:
    """The newest incidents of a run or an operation as one notice; nothing without any."""
    found = list(incidents.order_by("-id")[: TOLD + 1])
    if not found:
        return []
    lines: list[Any] = [
        _told(incident, with_operation=run is not None) for incident in found[:TOLD]
    ]
    if len(found) > TOLD and run is not None:
        lines.append(link(list_url(Incident, run=run), "All incidents of this run"))
    return [Notice("danger", "Incident" if len(found) == 1 else "Incidents", lines)]


def _told(incident: Incident, *, with_operation: bool) -> SafeString:
    operation = incident.operation
    where = (
        format_html("{} {}. ", line(operation.tool, 60), operation_link(operation.pk))
        if with_operation
        else ""
    )
    return format_html(
        '<a class="ao-link" href="{}">{}</a>: {}{} {} {}',
        record_url(Incident, incident.pk),
        incident.get_kind_display(),
        where,
        line(incident.external_ref, 60) if incident.external_ref else "",
        line(_detail(incident), 300) if incident.detail else "",
        when(incident.at),
    )


def _kind_badge(incident: Incident) -> SafeString:
    return badge(incident.kind.replace("_", " ").capitalize(), "danger")


def _detail(incident: Incident) -> str:
    return without_secrets(incident.detail, incident.operation)
