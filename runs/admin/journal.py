"""The journal: every edge that a run and its operations took, newest first."""

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import (
    PARAGRAPH,
    edge_badges,
    line,
    link,
    list_url,
    operation_link,
    record_url,
    run_link,
    when,
)
from runs.models import AgentRun, Transition
from runs.sensitive import without_secrets


@admin.register(Transition)
class JournalAdmin(ReadOnlyAdmin):
    list_display = ("event", "run", "operation", "edge", "reason", "actor", "place", "token", "at")
    list_filter = (filters.OfRun, filters.OfStepOfRun, filters.OfOperationOfRun)
    list_only = (
        "run_id",
        "version",
        "operation_id",
        "operation__tool",
        "operation__arguments",
        "operation__tool_version",
        "operation__sensitive",
        "event",
        "from_state",
        "to_state",
        "reason",
        "actor",
        "fence_token",
        "step_number",
        "attempt",
        "at",
    )
    list_select_related = ("operation",)
    record_related = ("operation",)
    empty = "The journal is empty: its first row is written with the first run."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if {"run", "step", "operation"} & set(request.GET):
            return ("-version", "-id")
        return ("-id",)

    @admin.display(description="event")
    def event(self, edge: Transition) -> Cell:
        return link(record_url(Transition, edge.pk), edge.event.replace("_", " ").capitalize())

    @admin.display(description="run")
    def run(self, edge: Transition) -> Cell:
        return run_link(edge.run_id)

    @admin.display(description="operation")
    def operation(self, edge: Transition) -> Cell:
        return operation_link(edge.operation_id)

    @admin.display(description="from → to")
    def edge(self, edge: Transition) -> Cell:
        return edge_badges(edge)

    @admin.display(description="reason")
    def reason(self, edge: Transition) -> Cell:
        return line(_reason(edge))

    @admin.display(description="actor")
    def actor(self, edge: Transition) -> Cell:
        return line(edge.actor, 60)

    @admin.display(description="step")
    def place(self, edge: Transition) -> Cell:
        return _place(edge)

    @admin.display(description="token")
    def token(self, edge: Transition) -> Cell:
        return str(edge.fence_token)

    @admin.display(description="at")
    def at(self, edge: Transition) -> Cell:
        return when(edge.at)

    def record(self, request: HttpRequest, edge: Transition) -> Record:
        return Record(
            title=edge.event.replace("_", " ").capitalize(),
            state=edge_badges(edge),
            meaning="Journal rows are never changed.",
            facts=[
                Fact("Run", run_link(edge.run_id)),
                Fact("Operation", operation_link(edge.operation_id)),
                Fact("Event", line(edge.event)),
                Fact("Reason", line(_reason(edge), PARAGRAPH)),
                Fact("Actor", line(edge.actor)),
                Fact("Fencing token", str(edge.fence_token)),
                Fact("Step and attempt", _place(edge)),
                Fact("Run version after it", str(edge.version)),
                Fact("At", when(edge.at)),
            ],
            links=[
                (record_url(AgentRun, edge.run_id), "run"),
                (list_url(Transition, run=edge.run_id), "journal of the run"),
            ],
        )


def _place(edge: Transition) -> Cell:
    if not edge.step_number:
        return "none yet"
    return format_html("step {} <small>attempt {}</small>", edge.step_number, edge.attempt)


def _reason(edge: Transition) -> str:
    return without_secrets(edge.why, edge.operation)
