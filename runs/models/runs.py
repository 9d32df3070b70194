"""Runs: a goal, its steps and attempts, what was decided, and where it continues."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from runs.models.shared import NAME, choices, sql_check
from runs.state import UNCERTAIN_STATES, RunState
from runs.triggers import RUN_TRIGGERS, append_only


class AgentRun(models.Model):
    """One durable goal of one agent."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.CharField(max_length=NAME)
    agent_version = models.CharField(max_length=64)
    state = models.CharField(max_length=32, choices=choices(RunState), default=RunState.READY)
    objective = models.TextField(blank=True)
    input = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    created_by = models.CharField(max_length=NAME)
    created_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        help_text="the same person under whatever name: who started it may not sign in it",
    )
    idempotency_key = models.CharField(max_length=255, null=True)
    request_digest = models.CharField(max_length=64)
    version = models.BigIntegerField(default=1)
    step_number = models.IntegerField(default=0, help_text="the newest step; 0 before the first")
    failures = models.IntegerField(default=0, help_text="tries without a usable decision in a row")
    setbacks = models.IntegerField(
        db_default=0, help_text="errors in a row between two steps, where no attempt shows them"
    )
    # The lease. The token only grows; it is the generation that may advance the run.
    fence_token = models.BigIntegerField(default=0)
    lease_owner = models.CharField(max_length=NAME, blank=True)
    lease_expires_at = models.DateTimeField(null=True)
    # When a worker is due; and when the sweep looks next, which is later while
    # somebody was just told or holds the lease, so that one sweep tells each run once.
    wake_at = models.DateTimeField(null=True)
    sweep_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=NAME, blank=True)
    cancel_compensates = models.BooleanField(
        db_default=False, help_text="what it did is corrected before it is cancelled"
    )
    # Paused: no step is opened and nothing is sent until somebody resumes it.
    paused_at = models.DateTimeField(null=True)
    pause_reason = models.TextField(blank=True)
    priority = models.SmallIntegerField(db_default=0, help_text="higher goes first")
    # A child run is started by one operation of its parent, which it answers when it ends.
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="children", db_index=False
    )
    parent_operation = models.CharField(max_length=64, null=True)
    root = models.UUIDField(null=True, help_text="the run at the top of its tree; null: itself")
    depth = models.SmallIntegerField(db_default=0, help_text="0 for a run without a parent")
    parent_told_at = models.DateTimeField(
        null=True, help_text="when the parent was made due after this run's end"
    )
    # A fork inherits what its origin had done by the end of a step, and never repeats it.
    forked_from = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="forks", db_index=False
    )
    forked_at_step = models.IntegerField(null=True)
    lineage = models.UUIDField(
        null=True, help_text="names the runs whose intents count as this one's; null: its own"
    )
    # Where in its plan a run is: its steps, less those taken back by a retry, and those inherited.
    inherited_steps = models.IntegerField(db_default=0)
    voided_steps = models.IntegerField(db_default=0)
    # Compensating: set while the run corrects what it did, with the state that it ends in.
    compensating_since = models.DateTimeField(null=True)
    compensation_reason = models.TextField(db_default="", blank=True)
    compensation_ending = models.CharField(max_length=32, db_default="", blank=True)
    # What it and its children have spent, what is reserved for them included.
    spent_steps = models.IntegerField(db_default=0)
    spent_tokens = models.BigIntegerField(db_default=0)
    spent_cost_usd = models.DecimalField(max_digits=16, decimal_places=6, db_default=0)
    budget = models.JSONField(
        null=True, help_text="limits of this very run, in place of its agent's: runs.budgets"
    )
    # The circuit breaker: the newest action with what it came to, and how often in a row.
    newest_action = models.CharField(max_length=64, db_default="", blank=True)
    repeats = models.IntegerField(db_default=0)
    traceparent = models.CharField(
        max_length=55,
        db_default="",
        blank=True,
        help_text="the W3C trace context of the request that started it; empty: its own",
    )
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "run"
        constraints = [
            models.CheckConstraint(
                name="run_has_a_next_mover",
                condition=Q(wake_at__isnull=False)
                | Q(paused_at__isnull=False)
                | Q(sql_check("runs_may_be_undated", "state")),
            ),
            models.CheckConstraint(
                name="run_final_has_no_date",
                condition=Q(finished_at__isnull=True) | Q(wake_at__isnull=True),
            ),
            models.CheckConstraint(
                name="run_lease_has_owner",
                condition=Q(lease_expires_at__isnull=True, lease_owner="")
                | (Q(lease_expires_at__isnull=False) & ~Q(lease_owner="")),
            ),
            models.UniqueConstraint(
                name="run_unique_idempotency_key",
                fields=["idempotency_key", "created_by"],
                condition=Q(idempotency_key__isnull=False),
            ),
            # One operation starts one child, whoever tries again.
            models.UniqueConstraint(
                name="run_one_per_parent_operation",
                fields=["parent_operation"],
                condition=Q(parent_operation__isnull=False),
            ),
        ]
        indexes = [
            # `state` stands in no index here, so that most commits stay heap-only.
            # Who is due, by whose turn it is (`turns.py`). Claims and renewals leave it alone.
            models.Index(
                name="run_due",
                fields=["agent", "-priority", "wake_at", "id"],
                condition=Q(wake_at__isnull=False),
            ),
            # Which versions runs are pinned to: who goes on with them, and are there such workers.
            models.Index(
                name="run_active",
                fields=["agent", "agent_version", "id"],
                condition=Q(finished_at__isnull=True),
            ),
            models.Index(name="run_held", fields=["agent"], condition=~Q(lease_owner="")),
            models.Index(
                name="run_paused",
                fields=["paused_at"],
                condition=Q(paused_at__isnull=False, finished_at__isnull=True),
            ),
            # Whom somebody else has to make due: where one is stuck, it is among these.
            models.Index(
                name="run_undated",
                fields=["id"],
                condition=Q(wake_at__isnull=True, paused_at__isnull=True, finished_at__isnull=True),
            ),
            models.Index(name="run_newest", fields=["-created_at", "-id"]),
            models.Index(name="run_children", fields=["parent"], condition=Q(parent__isnull=False)),
            models.Index(name="run_tree", fields=["root"], condition=Q(root__isnull=False)),
            models.Index(
                name="run_forks", fields=["forked_from"], condition=Q(forked_from__isnull=False)
            ),
            models.Index(
                name="run_untold",
                fields=["finished_at"],
                condition=Q(
                    parent__isnull=False, finished_at__isnull=False, parent_told_at__isnull=True
                ),
            ),
        ]
        triggers = RUN_TRIGGERS

    def __str__(self) -> str:
        return f"{self.agent} {self.id}"

    @property
    def uncertain(self) -> bool:
        """Whether an external effect of this run may or may not have happened."""
        return self.state in UNCERTAIN_STATES


class Step(models.Model):
    """One decision and what it caused. Closed by the checkpoint that follows it."""

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="steps", db_index=False)
    number = models.IntegerField()
    opened_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    voided_at = models.DateTimeField(
        null=True, help_text="taken back by a retry: it did nothing, and its plan is done again"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(name="step_unique_number", fields=["run", "number"]),
            models.UniqueConstraint(
                name="step_one_open_per_run", fields=["run"], condition=Q(closed_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"step {self.number}"


class StepAttempt(models.Model):
    """One execution of a step by one worker under one fencing token."""

    class Outcome(models.TextChoices):
        DONE = "done", "Step closed"
        PARKED = "parked", "Given back until something is due"
        LOST = "lost", "Its worker lost the lease or died"
        FAILED = "failed", "No usable decision"

    step = models.ForeignKey(Step, models.CASCADE, related_name="attempts", db_index=False)
    number = models.IntegerField()
    fence_token = models.BigIntegerField()
    worker = models.CharField(max_length=NAME)
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=16, blank=True, choices=Outcome.choices)

    class Meta:
        verbose_name = "attempt"
        constraints = [
            models.UniqueConstraint(name="attempt_unique_token", fields=["step", "fence_token"]),
            models.UniqueConstraint(
                name="attempt_one_open_per_step",
                fields=["step"],
                condition=Q(ended_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(name="attempt_lost", fields=["ended_at"], condition=Q(outcome="lost")),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} under token {self.fence_token}"


class ModelDecision(models.Model):
    """The recorded answer of the decider for a step. The first one recorded wins."""

    step = models.OneToOneField(Step, models.CASCADE, primary_key=True, related_name="decision")
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="+", db_index=False)
    fence_token = models.BigIntegerField()
    kind = models.CharField(max_length=32)
    body = models.JSONField(help_text="the decision, encoded by runs.decisions")
    decider = models.CharField(max_length=NAME)
    agent_version = models.CharField(max_length=64)
    tool_versions = models.JSONField(default=dict)
    prompt_version = models.CharField(max_length=64, db_default="", blank=True)
    llm_version = models.CharField(
        max_length=NAME, db_default="", blank=True, help_text="the llm, as it answered"
    )
    policy_version = models.CharField(
        max_length=64, db_default="", blank=True, help_text="of the policies in force"
    )
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "decision"
        triggers = append_only("decision")

    def __str__(self) -> str:
        return self.kind


class Checkpoint(models.Model):
    """The canonical state after a step, from which any worker continues."""

    step = models.OneToOneField(Step, models.CASCADE, primary_key=True, related_name="checkpoint")
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="+", db_index=False)
    state = models.JSONField(help_text="encoded by runs.context, with a schema version")
    fence_token = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        triggers = append_only("checkpoint")

    def __str__(self) -> str:
        return f"checkpoint {self.step_id}"
