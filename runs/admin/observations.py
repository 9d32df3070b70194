"""Observations: the evidence about operations, one page each."""

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin import filters
from runs.admin.readonly import Cell, Fact, ReadOnlyAdmin, Record
from runs.admin.show import (
    NOTHING,
    Tone,
    badge,
    json_block,
    line,
    link,
    operation_link,
    quote,
    record_url,
    references,
    run_link,
    step_link,
    when,
    window_cell,
)
from runs.models import ToolObservation, ToolOperation
from runs.sensitive import names_of_operation, without_secrets

VERDICT_TONES: dict[str, Tone] = {
    ToolObservation.Verdict.COMMITTED: "success",
    ToolObservation.Verdict.REJECTED: "danger",
    ToolObservation.Verdict.NOT_SENT: "neutral",
    ToolObservation.Verdict.UNKNOWN: "uncertain",
    ToolObservation.Verdict.NOT_FOUND: "warning",
    ToolObservation.Verdict.INDETERMINATE: "warning",
    ToolObservation.Verdict.FAILED: "warning",
    ToolObservation.Verdict.CORRECTED: "success",
}


@admin.register(ToolObservation)
class ObservationAdmin(ReadOnlyAdmin):
    list_display = (
        "observation",
        "run",
        "operation",
        "source",
        "detail",
        "send",
        "token",
        "observed",
    )
    list_filter = (
        filters.Source,
        filters.Verdict,
        filters.OfRunByOperation,
        filters.OfOperation,
    )
    list_select_related = ("operation",)
    list_only = (
        "operation__tool",
        "operation__arguments",
        "operation__tool_version",
        "operation__sensitive",
        "run_id",
        "source",
        "verdict",
        "stage",
        "detail",
        "attempt",
        "fence_token",
        "observed_at",
    )
    record_related = ("operation",)
    empty = "No observation yet: one is recorded when a call comes back or a provider is asked."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",)

    @admin.display(description="verdict")
    def observation(self, seen: ToolObservation) -> Cell:
        return format_html(
            '<a class="ao-link" href="{}">{}</a>',
            record_url(ToolObservation, seen.pk),
            verdict_badge(seen),
        )

    @admin.display(description="run")
    def run(self, seen: ToolObservation) -> Cell:
        return run_link(seen.run_id)

    @admin.display(description="operation")
    def operation(self, seen: ToolObservation) -> Cell:
        return format_html(
            "{} {}", line(seen.operation.tool, 60), operation_link(seen.operation_id)
        )

    @admin.display(description="learned from")
    def source(self, seen: ToolObservation) -> Cell:
        return source_badge(seen)

    @admin.display(description="detail")
    def detail(self, seen: ToolObservation) -> Cell:
        return line(without_secrets(seen.detail, seen.operation), 100)

    @admin.display(description="about send")
    def send(self, seen: ToolObservation) -> Cell:
        return str(seen.attempt)

    @admin.display(description="token")
    def token(self, seen: ToolObservation) -> Cell:
        return str(seen.fence_token)

    @admin.display(description="observed")
    def observed(self, seen: ToolObservation) -> Cell:
        return when(seen.observed_at)

    def record(self, request: HttpRequest, seen: ToolObservation) -> Record:
        operation = seen.operation
        hidden = names_of_operation(operation)
        detail = without_secrets(seen.detail, operation)
        return Record(
            title=f"Observation of {operation.tool}",
            state=verdict_badge(seen),
            meaning="Evidence: it moves no state by itself.",
            facts=[
                Fact("Operation", _operation_cell(operation)),
                Fact("Run", run_link(seen.run_id)),
                Fact("Step", step_link(operation.step_id, operation.step_number)),
                Fact("Learned from", source_badge(seen)),
                Fact("Stage", seen.stage or NOTHING),
                Fact("About send", str(seen.attempt)),
                Fact("Fencing token", str(seen.fence_token)),
                Fact("External references", references(seen)),
                Fact("Observed", when(seen.observed_at)),
                Fact("On its way", window_cell(seen.window)),
                Fact("Detail", quote(detail)),
            ],
            parts=[json_block("Result", seen.result, hidden)],
        )


def _operation_cell(operation: ToolOperation) -> SafeString:
    return link(record_url(ToolOperation, operation.pk), line(str(operation)))


def verdict_badge(seen: ToolObservation) -> SafeString:
    return badge(seen.get_verdict_display(), VERDICT_TONES[seen.verdict])


def source_badge(seen: ToolObservation) -> SafeString:
    late = seen.source == ToolObservation.Source.STALE_WORKER
    return badge(seen.get_source_display(), "warning" if late else "neutral")
