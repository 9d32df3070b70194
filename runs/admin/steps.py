"""Steps, and what stands under each: attempts, the decision and the checkpoint."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html

from runs.admin import filters
from runs.admin.llms import LlmRequestAdmin
from runs.admin.readonly import Cell, Fact, Part, ReadOnlyAdmin, Record, Table
from runs.admin.show import (
    Tone,
    badge,
    json_block,
    line,
    link,
    list_url,
    record_url,
    run_link,
    step_link,
    version_link,
    when,
)
from runs.models import (
    AgentRun,
    Checkpoint,
    LlmRequest,
    ModelDecision,
    Step,
    StepAttempt,
    ToolOperation,
    Transition,
)
from runs.sensitive import Secrets, names_of_run

OUTCOME_TONES: dict[str, Tone] = {
    StepAttempt.Outcome.DONE: "success",
    StepAttempt.Outcome.PARKED: "neutral",
    StepAttempt.Outcome.LOST: "warning",
    StepAttempt.Outcome.FAILED: "danger",
}


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    list_display = ("step", "run", "open", "opened", "closed")
    list_filter = (filters.OfRun,)
    list_only = ("run_id", "number", "opened_at", "closed_at")
    record_related = ("run",)
    empty = "No step yet: a worker opens the first one when it takes a run."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        # Of one run, the index of its steps gives the order; of all, the primary key.
        return ("-run_id", "-number") if "run" in request.GET else ("-id",)

    @admin.display(description="step")
    def step(self, step: Step) -> Cell:
        return step_link(step.pk, step.number)

    @admin.display(description="run")
    def run(self, step: Step) -> Cell:
        return run_link(step.run_id)

    @admin.display(description="state")
    def open(self, step: Step) -> Cell:
        return badge("Closed", "success") if step.closed_at else badge("Open", "info")

    @admin.display(description="opened")
    def opened(self, step: Step) -> Cell:
        return when(step.opened_at)

    @admin.display(description="closed")
    def closed(self, step: Step) -> Cell:
        return when(step.closed_at)

    def record(self, request: HttpRequest, step: Step) -> Record:
        decision = ModelDecision.objects.filter(pk=step.pk).only("kind").first()
        checkpoint = Checkpoint.objects.filter(pk=step.pk).only("pk").first()
        hidden = names_of_run(run_id=step.run_id, agent=step.run.agent)
        return Record(
            title=f"Step {step.number}",
            state=self.open(step),
            facts=[
                Fact("Run", run_link(step.run_id)),
                Fact("Number", str(step.number)),
                Fact("Opened", when(step.opened_at)),
                Fact("Closed", when(step.closed_at)),
                Fact(
                    "Decision",
                    link(record_url(ModelDecision, step.pk), line(decision.kind))
                    if decision
                    else "none recorded yet",
                ),
                Fact(
                    "Checkpoint",
                    link(record_url(Checkpoint, step.pk), f"after step {step.number}")
                    if checkpoint
                    else "none yet",
                ),
            ],
            parts=[
                *self.requests(request, step, run=step.run, hidden=hidden),
                *self.operations(request, step),
                *self.section(
                    request,
                    StepAttempt,
                    step.attempts.order_by("-fence_token"),
                    title="Attempts",
                    more_url=list_url(StepAttempt, step=step.pk),
                    empty="No attempt.",
                    without=("run", "step"),
                ),
                *self.section(
                    request,
                    Transition,
                    Transition.objects.filter(run_id=step.run_id, step_number=step.number).order_by(
                        "-version", "-id"
                    ),
                    title="Journal",
                    more_url=list_url(Transition, step=step.pk),
                    empty="No journal row.",
                ),
            ],
        )

    def requests(
        self, request: HttpRequest, step: Step, *, run: AgentRun, hidden: frozenset[str]
    ) -> list[Table]:
        """What llms were asked for the step's decision, and what they said."""
        of_llms = self.admin_site.get_model_admin(LlmRequest)
        assert isinstance(of_llms, LlmRequestAdmin)
        return of_llms.table_with_words(
            request,
            run,
            LlmRequest.objects.filter(step_id=step.pk),
            hidden=hidden,
            more_url=list_url(LlmRequest, step=step.pk),
            without=("run", "place"),
        )

    def operations(self, request: HttpRequest, step: Step) -> list[Any]:
        """The table of what the step's decision called, as every page below a step shows it."""
        return self.section(
            request,
            ToolOperation,
            ToolOperation.objects.filter(run_id=step.run_id, step_number=step.number).order_by(
                "ordinal"
            ),
            title="Operations",
            more_url=list_url(ToolOperation, step=step.pk),
            empty="No operation: the decision called no tool.",
        )


@admin.register(StepAttempt)
class AttemptAdmin(ReadOnlyAdmin):
    list_display = ("attempt", "run", "step", "outcome", "token", "worker", "started", "ended")
    list_filter = (filters.OfRunByStep, filters.OfStep)
    list_select_related = ("step",)
    list_only = (
        "step__run_id",
        "step__number",
        "number",
        "fence_token",
        "worker",
        "started_at",
        "ended_at",
        "outcome",
    )
    record_related = ("step",)
    empty = "No attempt yet: a worker makes the first one when it takes a run."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if "step" in request.GET:
            return ("-step_id", "-fence_token")
        return ("-step__number", "-fence_token") if "run" in request.GET else ("-id",)

    @admin.display(description="attempt")
    def attempt(self, attempt: StepAttempt) -> Cell:
        return link(record_url(StepAttempt, attempt.pk), f"attempt {attempt.number}")

    @admin.display(description="run")
    def run(self, attempt: StepAttempt) -> Cell:
        return run_link(attempt.step.run_id)

    @admin.display(description="step")
    def step(self, attempt: StepAttempt) -> Cell:
        return step_link(attempt.step_id, attempt.step.number)

    @admin.display(description="outcome")
    def outcome(self, attempt: StepAttempt) -> Cell:
        if not attempt.outcome:
            return badge("Under way", "info")
        return badge(attempt.outcome.capitalize(), OUTCOME_TONES[attempt.outcome])

    @admin.display(description="token")
    def token(self, attempt: StepAttempt) -> Cell:
        return str(attempt.fence_token)

    @admin.display(description="worker")
    def worker(self, attempt: StepAttempt) -> Cell:
        return line(attempt.worker, 100)

    @admin.display(description="started")
    def started(self, attempt: StepAttempt) -> Cell:
        return when(attempt.started_at)

    @admin.display(description="ended")
    def ended(self, attempt: StepAttempt) -> Cell:
        return when(attempt.ended_at)

    def record(self, request: HttpRequest, attempt: StepAttempt) -> Record:
        return Record(
            title=f"Attempt {attempt.number} of step {attempt.step.number}",
            state=self.outcome(attempt),
            meaning=attempt.get_outcome_display() if attempt.outcome else "",
            facts=[
                Fact("Run", run_link(attempt.step.run_id)),
                Fact("Step", step_link(attempt.step_id, attempt.step.number)),
                Fact("Number", str(attempt.number)),
                Fact("Fencing token", str(attempt.fence_token)),
                Fact("Worker", line(attempt.worker)),
                Fact("Started", when(attempt.started_at)),
                Fact("Ended", when(attempt.ended_at)),
            ],
            parts=self.section(
                request,
                Transition,
                Transition.objects.filter(
                    run_id=attempt.step.run_id,
                    step_number=attempt.step.number,
                    attempt=attempt.number,
                ).order_by("-version", "-id"),
                title="Journal of this attempt",
                more_url=list_url(Transition, step=attempt.step_id),
                empty="No journal row.",
            ),
        )


class UnderStepAdmin(ReadOnlyAdmin):
    """Rows that share their step's number as their key: the decision and the checkpoint."""

    list_filter = (filters.OfRunByStep,)
    list_select_related = ("step",)
    record_related = ("step", "run")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-step__number", "-step_id") if "run" in request.GET else ("-step_id",)

    @admin.display(description="run")
    def run(self, row: ModelDecision | Checkpoint) -> Cell:
        return run_link(row.run_id)

    @admin.display(description="step")
    def step(self, row: ModelDecision | Checkpoint) -> Cell:
        return step_link(row.step_id, row.step.number)

    @admin.display(description="token")
    def token(self, row: ModelDecision | Checkpoint) -> Cell:
        return str(row.fence_token)


@admin.register(ModelDecision)
class DecisionAdmin(UnderStepAdmin):
    list_display = ("decision", "run", "step", "decider", "token", "recorded")
    list_only = (
        "step__number",
        "run_id",
        "kind",
        "decider",
        "fence_token",
        "recorded_at",
    )
    empty = "No decision yet: the first one is recorded when a run's decider has answered."

    @admin.display(description="decision")
    def decision(self, decision: ModelDecision) -> Cell:
        return link(record_url(ModelDecision, decision.pk), line(decision.kind))

    @admin.display(description="decider")
    def decider(self, decision: ModelDecision) -> Cell:
        return line(decision.decider, 100)

    @admin.display(description="recorded")
    def recorded(self, decision: ModelDecision) -> Cell:
        return when(decision.recorded_at)

    def record(self, request: HttpRequest, decision: ModelDecision) -> Record:
        run, step = decision.run, decision.step
        hidden = names_of_run(run_id=run.pk, agent=run.agent)
        steps = self.admin_site.get_model_admin(Step)
        assert isinstance(steps, StepAdmin)
        parts: list[Part] = [
            json_block("Body", Secrets([run.input, decision.body], hidden).hide(decision.body), ()),
            *steps.requests(request, step, run=run, hidden=hidden),
            *steps.operations(request, step),
            json_block("Tool versions", decision.tool_versions, ()),
        ]
        return Record(
            title=f"Decision of step {step.number}",
            state=badge(line(decision.kind), "info"),
            meaning="The first decision recorded for a step stands; it is never asked for again.",
            facts=[
                Fact("Run", run_link(run.pk)),
                Fact("Step", step_link(step.pk, step.number)),
                Fact("Decider", line(decision.decider)),
                Fact(
                    "Agent",
                    format_html(
                        "{} <small>version {}</small>",
                        run.agent,
                        version_link(decision.agent_version),
                    ),
                ),
                Fact("Llm, as it answered", line(decision.llm_version)),
                Fact("Prompt version", version_link(decision.prompt_version)),
                Fact("Policy version", line(decision.policy_version)),
                Fact("Fencing token", str(decision.fence_token)),
                Fact("Recorded", when(decision.recorded_at)),
            ],
            parts=parts,
        )


@admin.register(Checkpoint)
class CheckpointAdmin(UnderStepAdmin):
    list_display = ("checkpoint", "run", "step", "token", "created")
    list_only = ("step__number", "run_id", "fence_token", "created_at")
    empty = "No checkpoint yet: one is written when a step closes."

    @admin.display(description="checkpoint")
    def checkpoint(self, checkpoint: Checkpoint) -> Cell:
        return link(record_url(Checkpoint, checkpoint.pk), f"after step {checkpoint.step.number}")

    @admin.display(description="created")
    def created(self, checkpoint: Checkpoint) -> Cell:
        return when(checkpoint.created_at)

    def record(self, request: HttpRequest, checkpoint: Checkpoint) -> Record:
        run, step = checkpoint.run, checkpoint.step
        hidden = names_of_run(run_id=run.pk, agent=run.agent)
        return Record(
            title=f"Checkpoint after step {step.number}",
            state=badge("Recorded", "success"),
            meaning="Any worker continues the run from here.",
            facts=[
                Fact("Run", run_link(run.pk)),
                Fact("Step", step_link(step.pk, step.number)),
                Fact("Fencing token", str(checkpoint.fence_token)),
                Fact("Created", when(checkpoint.created_at)),
            ],
            parts=[json_block("State", checkpoint.state, hidden)],
        )
