"""Operations: the answer to "did it happen?".

Guarantees: an unknown operation says so before anything else, with what is asked
next and a way to settle it for those who may; incidents stand there too. Arguments,
results and errors are shown without the secrets declared for them.
"""

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from runs.admin import filters
from runs.admin.correct import correct_link, correct_view
from runs.admin.incidents import incident_notices
from runs.admin.lists import among_newest
from runs.admin.readonly import Action, Cell, Fact, Notice, ReadOnlyAdmin, Record
from runs.admin.resolve import may_resolve, resolve_view
from runs.admin.show import (
    NOTHING,
    PARAGRAPH,
    Tone,
    asked_again,
    badge,
    in_flight_badge,
    json_block,
    line,
    link,
    list_url,
    operation_badge,
    operation_link,
    record_url,
    run_link,
    step_link,
    when,
)
from runs.admin.timeline import timeline_link, timeline_urls
from runs.agents import may_be_called
from runs.models import (
    AgentRun,
    Approval,
    GatewayCall,
    Incident,
    ModelDecision,
    ToolObservation,
    ToolOperation,
    Transition,
)
from runs.presenting_calls import asker_of
from runs.sensitive import names_of_operation, without_secrets
from runs.state import OperationStatus

MEANINGS: dict[OperationStatus, str] = {
    OperationStatus.AWAITING_APPROVAL: "Held for a signature; nothing was sent.",
    OperationStatus.PREPARED: "Intended and recorded; not sent, or known not to have left.",
    OperationStatus.RUNNING: "Being sent; its effect is not known yet.",
    OperationStatus.UNKNOWN: "It may or may not have happened.",
    OperationStatus.COMMITTED: "It happened.",
    OperationStatus.REJECTED: "It did not happen: it was refused for good.",
    OperationStatus.CANCELLED: "It was never sent.",
}


@admin.register(ToolOperation)
class OperationAdmin(ReadOnlyAdmin):
    list_display = ("operation", "run", "step", "status", "effect", "sends", "token", "created")
    list_filter = (
        filters.Status,
        filters.Tool,
        filters.OfRun,
        filters.OfStepOfRun,
        filters.Intent,
        filters.Created,
    )
    search_fields = ("id",)
    search_help_text = "operation id, run id, external reference or tool, exactly"
    list_only = (
        "run_id",
        "step_id",
        "step_number",
        "ordinal",
        "status",
        "tool",
        "effect_type",
        "attempts",
        "fence_token",
        "external_ref",
        "settles_at",
        "repeats_id",
        "created_at",
    )
    record_related = ("run",)
    empty = "No operation yet: one appears when a decision calls a tool."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if {"run", "step"} & set(request.GET):
            return ("-run_id", "-step_number", "-ordinal")
        return ("-created_at", "-id")

    @admin.display(description="operation")
    def operation(self, operation: ToolOperation) -> Cell:
        return format_html(
            '<a class="ao-link" href="{}">{} <small>{}…</small></a>',
            record_url(ToolOperation, operation.pk),
            line(operation.tool, 60),
            operation.pk[:11],
        )

    @admin.display(description="run")
    def run(self, operation: ToolOperation) -> Cell:
        return run_link(operation.run_id)

    @admin.display(description="step")
    def step(self, operation: ToolOperation) -> Cell:
        return step_link(operation.step_id, operation.step_number)

    @admin.display(description="status")
    def status(self, operation: ToolOperation) -> Cell:
        shown = operation_badge(operation.status)
        if operation.repeats_id is not None:
            return format_html("{} {}", shown, badge("repeats an earlier one", "neutral"))
        return format_html("{} {}", shown, in_flight_badge(operation))

    @admin.display(description="effect")
    def effect(self, operation: ToolOperation) -> Cell:
        kind = operation.effect_type.replace("_", " ").lower() or NOTHING
        if not operation.external_ref:
            return kind
        return format_html("{} <small>{}</small>", kind, line(operation.external_ref, 40))

    @admin.display(description="sends")
    def sends(self, operation: ToolOperation) -> Cell:
        return str(operation.attempts)

    @admin.display(description="token")
    def token(self, operation: ToolOperation) -> Cell:
        return str(operation.fence_token)

    @admin.display(description="created")
    def created(self, operation: ToolOperation) -> Cell:
        return when(operation.created_at)

    def get_urls(self) -> list[URLPattern]:
        ask = path(
            "<str:operation_id>/resolve/",
            self.admin_site.admin_view(self.resolve_view),
            name="runs_tooloperation_resolve",
        )
        correct = path(
            "<str:operation_id>/correct/",
            self.admin_site.admin_view(self.correct_view),
            name="runs_tooloperation_correct",
        )
        return [ask, correct, *timeline_urls(self), *super().get_urls()]

    def resolve_view(self, request: HttpRequest, operation_id: str) -> HttpResponse:
        """GET shows the evidence and asks; POST settles the operation, as the API would."""
        return resolve_view(self, request, operation_id)

    def correct_view(self, request: HttpRequest, operation_id: str) -> HttpResponse:
        """GET asks; POST records that it was corrected by hand, as the API would."""
        return correct_view(self, request, operation_id)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """An operation's or a run's id; or, among the newest, what the provider calls it."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if (run_id := filters.as_uuid(term)) is not None:
            return queryset.filter(run_id=run_id), False
        if ToolOperation.objects.filter(id=term).exists():
            return queryset.filter(id=term), False
        named = Q(external_ref=term) | Q(tool=term) | Q(idempotency_key=term)
        return among_newest(queryset.filter(named), by="created_at"), False

    def record(self, request: HttpRequest, operation: ToolOperation) -> Record:
        hidden = names_of_operation(operation)
        return Record(
            title=str(operation),
            state=operation_badge(operation.status),
            meaning=_meaning(operation),
            facts=_facts(operation),
            parts=[
                *_notices(operation),
                *incident_notices(operation.incidents.select_related("operation")),
                json_block("Arguments", operation.arguments, hidden),
                json_block("Result", operation.result, hidden),
                *self.section(
                    request,
                    ToolObservation,
                    operation.observations.order_by("-id"),
                    title="Observations",
                    more_url=list_url(ToolObservation, operation=operation.pk),
                    empty="Nothing was learned about it yet.",
                    without=("run", "operation"),
                ),
                *self.section(
                    request,
                    Transition,
                    # Through the run, whose index of the journal there is.
                    Transition.objects.filter(
                        run_id=operation.run_id, operation_id=operation.pk
                    ).order_by("-version", "-id"),
                    title="Journal",
                    more_url=list_url(Transition, operation=operation.pk),
                    empty="No journal row.",
                    without=("run", "operation"),
                ),
            ],
            links=[
                *timeline_link(request, operation),
                (record_url(AgentRun, operation.run_id), "run"),
                (record_url(ModelDecision, operation.step_id), "decision"),
                (list_url(Incident, operation=operation.pk), "incidents"),
                *_approval_link(operation),
            ],
            action=_settle_link(request, operation) or correct_link(request, operation),
        )


def _approval_link(operation: ToolOperation) -> list[tuple[str, str]]:
    if operation.approval_id is None:
        return []
    return [(record_url(Approval, operation.approval_id), "approval")]


def _settle_link(request: HttpRequest, operation: ToolOperation) -> Action | None:
    if operation.status != OperationStatus.UNKNOWN or not may_resolve(request):
        return None
    return Action(reverse("admin:runs_tooloperation_resolve", args=[operation.pk]), "Settle…")


def _meaning(operation: ToolOperation) -> str:
    if operation.repeats_id is not None and operation.status == OperationStatus.COMMITTED:
        return "Nothing was sent: it was answered with the result of the operation it repeats."
    return MEANINGS[OperationStatus(operation.status)]


def _facts(operation: ToolOperation) -> list[Fact]:
    where = " · ".join(part for part in (operation.provider, operation.account) if part)
    policy = " · ".join(
        part
        for part in (operation.policy_outcome, operation.policy_rule, operation.policy_version)
        if part
    )
    facts = [
        Fact("Run", run_link(operation.run_id)),
        Fact("Step", step_link(operation.step_id, operation.step_number)),
        Fact("Effect", operation.effect_type.replace("_", " ").lower() or NOTHING),
        Fact("Provider", line(where)),
        Fact("External reference", line(operation.external_ref, 255)),
        Fact("Idempotency key", _key(operation)),
        Fact("Sends", f"{operation.attempts}, the newest under token {operation.fence_token}"),
        Fact("First sent", when(operation.first_sent_at)),
        Fact("Last sent", when(operation.last_sent_at)),
        Fact("Look-ups", str(operation.look_ups)),
        Fact("Policy", line(policy, 300)),
        Fact("Created", when(operation.created_at)),
        Fact("Settled", when(operation.settled_at)),
        Fact("Tool version", line(operation.tool_version)),
        Fact("Place", f"call {operation.ordinal + 1} of the decision"),
        Fact("Operation id", operation.pk),
    ]
    if operation.status in _SENT_AND_OPEN:
        facts.insert(9, Fact("May still be in flight", _in_flight(operation)))
    if operation.repeats_id is not None:
        facts.insert(0, Fact("Repeats", operation_link(operation.repeats_id)))
    if operation.compensates_id is not None:
        facts.insert(0, Fact("Corrects", operation_link(operation.compensates_id)))
    for one in operation.compensated_by.order_by("step_number", "ordinal", "revision"):
        is_done = one.status == OperationStatus.COMMITTED
        label = "Corrected by" if is_done else "Compensation that is not committed"
        facts.append(Fact(label, operation_link(one.pk)))
    facts += _asked_for(operation)
    if operation.next_watch_at is not None:
        watched = format_html("next {}", when(operation.next_watch_at))
        facts.append(Fact("Watched for a late effect", watched))
    return facts


def _asked_for(operation: ToolOperation) -> list[Fact]:
    if not may_be_called(operation.run.agent):
        return []
    call = GatewayCall.objects.filter(operation_id=operation.pk).first()
    if call is None:
        return []
    asked = link(record_url(GatewayCall, call.pk), line(asker_of(call)))
    return [Fact("Asked for from outside", asked)]


_SENT_AND_OPEN = (OperationStatus.RUNNING, OperationStatus.UNKNOWN)


def _in_flight(operation: ToolOperation) -> Cell:
    if not operation.may_be_in_flight:
        return format_html("no; over {}", when(operation.settles_at))
    if operation.settles_at is None:
        return "yes, and nobody knows until when"
    return format_html("yes; over {}", when(operation.settles_at))


def _notices(operation: ToolOperation) -> list[Notice]:
    notices = []
    if operation.status == OperationStatus.UNKNOWN:
        asked = format_html(
            "Unknown since {}, {}. {}",
            when(operation.unknown_since),
            asked_again(operation),
            in_flight_badge(operation),
        )
        notices.append(Notice("uncertain", "Effect uncertain", [asked]))
    if operation.error:
        tone: Tone = "uncertain" if operation.status == OperationStatus.UNKNOWN else "danger"
        error = without_secrets(operation.error, operation)
        notices.append(Notice(tone, "Last error", [line(error, PARAGRAPH)]))
    return notices


def _key(operation: ToolOperation) -> Cell:
    if operation.key_expires_at is None:
        return line(operation.idempotency_key, 255)
    return format_html(
        "{} <small>kept by the provider until</small> {}",
        line(operation.idempotency_key, 255),
        when(operation.key_expires_at),
    )
