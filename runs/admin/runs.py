"""The page of a run: where it stands, what is uncertain, who moves it next, what happened.

Guarantees: the answer to "may something have happened twice, or not at all?" comes
first. What may be asked of a run is in `run_requests.py`.

Does not load a whole run: the newest rows of each kind are shown, with a link to all.
"""

from functools import partial
from typing import Any, Final
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin import filters
from runs.admin.handoffs import HandoffAdmin
from runs.admin.incidents import incident_notices
from runs.admin.lists import PER_PAGE, among_newest
from runs.admin.llms import LlmRequestAdmin
from runs.admin.readonly import Cell, Fact, Notice, Part, ReadOnlyAdmin, Record, Table
from runs.admin.run_requests import (
    REQUESTS,
    RunRequest,
    carry_out,
    may_request,
    offered,
    page_of,
)
from runs.admin.run_standing import (
    agent_of,
    family_of,
    questions_of,
    standing_facts,
    standing_notices,
)
from runs.admin.show import (
    LINE,
    Row,
    asked_again,
    in_flight_badge,
    json_block,
    line,
    link,
    list_url,
    operation_link,
    record_url,
    run_badge,
    text_block,
    when,
)
from runs.admin.timeline import timeline_link, timeline_urls
from runs.models import (
    NAME,
    AgentRun,
    Approval,
    Checkpoint,
    ControlRequest,
    GatewayCall,
    Handoff,
    Incident,
    LlmRequest,
    ModelDecision,
    Signal,
    Step,
    StepAttempt,
    ToolObservation,
    ToolOperation,
    Transition,
)
from runs.sensitive import names_of_run, without_secrets
from runs.state import FINAL_STATES, PERSON_STATES, OperationStatus, RunState
from tools.redaction import scrub

ROWS: Final = 20
JOURNAL_ROWS: Final = 200

OF_A_RUN: Final[dict[str, type[Row]]] = {
    "Operations": ToolOperation,
    "Steps": Step,
    "Attempts": StepAttempt,
    "Decisions": ModelDecision,
    "Llm requests": LlmRequest,
    "Handoffs": Handoff,
    "Observations": ToolObservation,
    "Checkpoints": Checkpoint,
    "Journal": Transition,
    "Incidents": Incident,
    "Requests": ControlRequest,
    "Signals": Signal,
    "Gateway calls": GatewayCall,
}

MEANINGS: Final[dict[RunState, str]] = {
    RunState.READY: "A worker opens the next step when the run is due.",
    RunState.DECIDING: "The decider is being asked what to do next.",
    RunState.DECISION_RECORDED: "A decision is recorded; a worker carries it out.",
    RunState.TOOL_PREPARED: "A call is recorded and has not been sent.",
    RunState.TOOL_RUNNING: "A call is under way; its effect is not known yet.",
    RunState.TOOL_STATUS_UNKNOWN: (
        "A call may or may not have taken effect. Reconciliation asks the provider."
    ),
    RunState.TOOL_COMMITTED: "The effect of a call is recorded; a worker goes on after it.",
    RunState.WAITING_FOR_APPROVAL: "A call needs a signature and has not been sent.",
    RunState.WAITING_FOR_RESOLUTION: (
        "A call may or may not have taken effect, and nothing that may be asked or sent can "
        "settle it. A person must."
    ),
    RunState.WAITING: "The run waits for a time, a signal, an answer or another run.",
    RunState.COMPENSATING: "Committed effects are being corrected.",
    RunState.COMPLETED: "The run finished.",
    RunState.FAILED: "The run ended without reaching its goal.",
    RunState.CANCELLED: "The run was cancelled.",
}


@admin.register(AgentRun)
class RunAdmin(ReadOnlyAdmin):
    list_display = ("run", "state", "objective", "held_by", "next", "created")
    list_filter = (
        filters.Effect,
        filters.Pause,
        filters.State,
        filters.Agent,
        filters.Created,
        filters.OfParent,
    )
    ordering = ("-created_at", "-id")
    search_fields = ("id",)
    search_help_text = "run id, idempotency key or agent, exactly"
    list_only = (
        "agent",
        "state",
        "lease_owner",
        "lease_expires_at",
        "fence_token",
        "wake_at",
        "paused_at",
        "finished_at",
        "created_at",
    )
    empty = "No run yet. Start one: python manage.py start_run AGENT, or POST /api/v1/runs/."
    empty_link = ("docs", "See the API")

    @admin.display(description="run")
    def run(self, run: AgentRun) -> Cell:
        return format_html(
            '<a class="ao-link" href="{}">{} <small>…{}</small></a>',
            record_url(AgentRun, run.pk),
            run.agent,
            str(run.pk)[-12:],
        )

    @admin.display(description="state")
    def state(self, run: AgentRun) -> Cell:
        return run_badge(run.state)

    @admin.display(description="objective")
    def objective(self, run: AgentRun) -> Cell:
        return line(getattr(run, "objective_start", ""), 100)

    @admin.display(description="held by")
    def held_by(self, run: AgentRun) -> Cell:
        return line(run.lease_owner, 60)

    @admin.display(description="next")
    def next(self, run: AgentRun) -> Cell:
        return _next_move(run)

    @admin.display(description="created")
    def created(self, run: AgentRun) -> Cell:
        return when(run.created_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        # The rest of an objective may be long and is on the run's page.
        start = Left("objective", 4 * LINE)
        rows: QuerySet[Any] = super().get_queryset(request).annotate(objective_start=start)
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """A run's id; or an idempotency key; or, among the newest runs, an agent."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if (run_id := filters.as_uuid(term)) is not None:
            return queryset.filter(id=run_id), False
        keyed = AgentRun.objects.filter(idempotency_key=term).values_list("id", flat=True)
        if found := list(keyed[:PER_PAGE]):
            return queryset.filter(id__in=found), False
        return among_newest(queryset.filter(agent=term), by="created_at"), False

    def get_urls(self) -> list[URLPattern]:
        asks = [
            path(
                f"<uuid:run_id>/{asked.name}/",
                self.admin_site.admin_view(partial(self.request_view, asked=asked)),
                name=f"runs_agentrun_{asked.name}",
            )
            for asked in REQUESTS
        ]
        return [*asks, *timeline_urls(self), *super().get_urls()]

    def record(self, request: HttpRequest, run: AgentRun) -> Record:
        hidden = names_of_run(run_id=run.pk, agent=run.agent)
        return Record(
            title=str(run),
            state=run_badge(run.state),
            meaning=MEANINGS[RunState(run.state)],
            facts=_facts(run),
            parts=[
                *_notices(run, hidden),
                *standing_notices(run, hidden),
                *incident_notices(run.incidents.select_related("operation"), run=run.pk),
                *family_of(run),
                *questions_of(request, run, hidden),
                *self._of_llms(request, run, hidden),
                *self._tables(request, run),
                text_block("Objective", run.objective),
                json_block("Input", run.input, hidden),
                json_block("Result", run.result, hidden),
                json_block("Labels", run.labels, ()),
            ],
            links=[
                *timeline_link(request, run),
                *((list_url(model, run=run.pk), text) for text, model in OF_A_RUN.items()),
            ],
            actions=offered(request, run),
        )

    def request_view(
        self, request: HttpRequest, run_id: UUID, *, asked: RunRequest
    ) -> HttpResponse:
        """GET asks; POST calls the command, as the API would."""
        if not may_request(request):
            raise PermissionDenied
        if request.method not in {"GET", "HEAD", "POST"}:
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        run = self.find(str(run_id))
        if run is None:
            return self.not_found(request, str(run_id))
        shown = page_of(asked, run)
        if request.method == "POST":
            answer = carry_out(request, run, asked)
            if isinstance(answer, HttpResponse):
                return answer
            shown = answer
        context = self.page_context(request, title=asked.title) | {
            "run": run,
            "state": run_badge(run.state),
            "back": record_url(AgentRun, run.pk),
            **shown,
        }
        return TemplateResponse(request, "admin/runs/run_request.html", context)

    def _of_llms(self, request: HttpRequest, run: AgentRun, hidden: frozenset[str]) -> list[Table]:
        """What its llms were asked, and what replaced old context; nothing where none decides."""
        requests = self.admin_site.get_model_admin(LlmRequest)
        handoffs = self.admin_site.get_model_admin(Handoff)
        assert isinstance(requests, LlmRequestAdmin)
        assert isinstance(handoffs, HandoffAdmin)
        return [
            *handoffs.newest_of(request, run, hidden=hidden),
            *requests.table_with_words(
                request,
                run,
                LlmRequest.objects.filter(run_id=run.pk),
                hidden=hidden,
                more_url=list_url(LlmRequest, run=run.pk),
            ),
        ]

    def _tables(self, request: HttpRequest, run: AgentRun) -> list[Part]:
        return [
            *self.section(
                request,
                ToolOperation,
                run.operations.order_by("-step_number", "-ordinal"),
                title="Operations",
                limit=ROWS,
                more_url=list_url(ToolOperation, run=run.pk),
                empty="No operation: no decision of this run has called a tool yet.",
            ),
            *self.section(
                request,
                Step,
                run.steps.order_by("-number"),
                title="Steps",
                limit=ROWS,
                more_url=list_url(Step, run=run.pk),
                empty="No step: no worker has taken this run yet. Is one running?",
            ),
            *self.section(
                request,
                Transition,
                run.journal.order_by("-version", "-id"),
                title="Journal",
                limit=JOURNAL_ROWS,
                more_url=list_url(Transition, run=run.pk),
                empty="No journal row.",
            ),
        ]


def _facts(run: AgentRun) -> list[Fact]:
    facts = [
        Fact("Held by", _holder(run)),
        Fact("Fencing token", str(run.fence_token)),
        Fact("Next", _next_move(run)),
        Fact("Agent", agent_of(run)),
        Fact("Step", str(run.step_number)),
        Fact("Created", format_html("{} by {}", when(run.created_at), line(run.created_by))),
        Fact("Last change", format_html("{} version {}", when(run.updated_at), run.version)),
    ]
    facts += standing_facts(run)
    if run.failures:
        facts.append(Fact("Tries without a decision", f"{run.failures} in a row"))
    if run.idempotency_key is not None:
        facts.append(Fact("Idempotency key", line(run.idempotency_key, 255)))
    facts.append(Fact("Run id", str(run.pk)))
    return facts


def _notices(run: AgentRun, hidden: frozenset[str]) -> list[Notice]:
    notices = []
    if run.uncertain:
        unknown = run.operations.filter(status=OperationStatus.UNKNOWN).order_by(
            "step_number", "ordinal"
        )
        lines = [_uncertain(operation) for operation in unknown[:ROWS]]
        notices.append(Notice("uncertain", "Effect uncertain", lines))
    if run.state == RunState.WAITING_FOR_APPROVAL:
        pending = run.approvals.filter(status=Approval.Status.PENDING).select_related("operation")
        waiting = [_unsigned(approval) for approval in pending.order_by("approve_by")[:ROWS]]
        notices.append(Notice("warning", "Waits for a signature", waiting))
    if run.error:
        error = scrub(run.error, {"input": run.input}, hidden)
        notices.append(Notice("danger", "Error", [line(error, 2_000)]))
    return notices


def _unsigned(approval: Approval) -> SafeString:
    return format_html(
        "{}: {} until {}",
        line(approval.operation.tool, NAME),
        link(record_url(Approval, approval.pk), "look and decide"),
        when(approval.approve_by),
    )


def _uncertain(operation: ToolOperation) -> SafeString:
    return format_html(
        "{} {}: it may or may not have happened. {} Unknown since {}, {}. {}",
        line(operation.tool, NAME),
        operation_link(operation.pk),
        in_flight_badge(operation),
        when(operation.unknown_since),
        asked_again(operation),
        line(without_secrets(operation.error, operation), 500),
    )


def _holder(run: AgentRun) -> Cell:
    if run.lease_expires_at is None:
        return "nobody"
    over = run.lease_expires_at <= timezone.now()
    return format_html(
        "{} {} {}",
        line(run.lease_owner),
        "· its lease is over since" if over else "· until",
        when(run.lease_expires_at),
    )


def _next_move(run: AgentRun) -> Cell:
    """Who is due to move the run, and when."""
    if run.state in FINAL_STATES:
        return format_html("nothing; ended {}", when(run.finished_at))
    if run.lease_expires_at is not None and run.lease_expires_at > timezone.now():
        return "its holder is at work"
    if run.paused_at is not None and run.wake_at is None:
        return "a person: it is paused"
    if run.wake_at is not None:
        return format_html("a worker, due {}", when(run.wake_at))
    if run.state in PERSON_STATES:
        return "a person"
    return "what it waits for"
