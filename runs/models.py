"""The execution model: the kinds of rows that say where every run stands.

Guarantees: with the triggers of `triggers.py`, every row here is either current
truth (run, step, attempt, operation, worker) or append-only evidence (decision,
observation, checkpoint, transition, incident). All times are the database's.

Does not decide anything: rows are written by `commit.py` (a lease holder) and
`commands.py` (a caller), and read by everybody.
"""

from typing import Any

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from uuid_utils.compat import uuid7

from runs.state import UNCERTAIN_STATES, OperationStatus, RunState, edge_line
from runs.triggers import OPERATION_TRIGGERS, RUN_TRIGGERS, append_only

NAME = 100
TEXT_LIMIT = 2_000


def _choices(values: type[RunState | OperationStatus]) -> list[tuple[str, str]]:
    return [(str(value), value.replace("_", " ").capitalize()) for value in values]


def _sql(function: str, *columns: str) -> models.Func:
    """A CHECK by one of the functions of the first migration.

    Not spelled out in the constraint, because the server parses a constraint's text anew
    for every statement: the list of legal edges alone cost 0.2 ms that way.
    """
    return models.Func(*columns, function=function, output_field=models.BooleanField())


class AgentRun(models.Model):
    """One durable goal of one agent."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agent = models.CharField(max_length=NAME)
    agent_version = models.CharField(max_length=64)
    state = models.CharField(max_length=32, choices=_choices(RunState), default=RunState.READY)
    objective = models.TextField(blank=True)
    input = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    created_by = models.CharField(max_length=NAME)
    idempotency_key = models.CharField(max_length=255, null=True)
    request_digest = models.CharField(max_length=64)
    version = models.BigIntegerField(default=1)
    step_number = models.IntegerField(default=0, help_text="the newest step; 0 before the first")
    failures = models.IntegerField(default=0, help_text="tries without a usable decision in a row")
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
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "run"
        constraints = [
            models.CheckConstraint(
                name="run_has_a_next_mover",
                condition=Q(wake_at__isnull=False) | Q(_sql("runs_may_be_undated", "state")),
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
        ]
        indexes = [
            # `state` stands in no index here, so that most commits stay heap-only.
            models.Index(
                name="run_sweep", fields=["sweep_at"], condition=Q(sweep_at__isnull=False)
            ),
            models.Index(name="run_newest", fields=["-created_at", "-id"]),
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
    recorded_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "decision"
        triggers = append_only("decision")

    def __str__(self) -> str:
        return self.kind


class OperationIdField(models.CharField):  # type: ignore[type-arg]  # not generic at run time
    """Text that is only ever compared whole: spelled so, Django adds no index for LIKE."""

    def db_type(self, connection: Any) -> str:
        return f"character varying({self.max_length})"


class ToolOperation(models.Model):
    """One intended external effect, with one id for life."""

    id = OperationIdField(primary_key=True, max_length=64)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="operations", db_index=False)
    step = models.ForeignKey(Step, models.CASCADE, related_name="operations", db_index=False)
    step_number = models.IntegerField()
    ordinal = models.IntegerField(help_text="the call's place in the recorded decision, from 0")
    run_version = models.BigIntegerField(help_text="the run's version at the last write")
    status = models.CharField(max_length=32, choices=_choices(OperationStatus))
    tool = models.CharField(max_length=NAME)
    tool_version = models.CharField(max_length=64, blank=True)
    effect_type = models.CharField(max_length=32, blank=True)
    provider = models.CharField(max_length=NAME, blank=True)
    account = models.CharField(max_length=NAME, blank=True)
    arguments = models.JSONField()
    arguments_digest = models.CharField(max_length=64)
    sensitive = models.JSONField(default=list)
    intent = models.CharField(max_length=64, blank=True)
    holds_intent = models.CharField(
        max_length=64,
        null=True,
        help_text="names the intent in its scope while this operation may carry it out or has",
    )
    repeats = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        related_name="repeated_by",
        db_index=False,
        help_text="the operation that has the same intent, and whose result answers this one",
    )
    idempotency_key = models.CharField(max_length=255)
    key_expires_at = models.DateTimeField(null=True)
    policy_outcome = models.CharField(max_length=32, blank=True)
    policy_rule = models.TextField(blank=True)
    policy_version = models.CharField(max_length=64, blank=True)
    fence_token = models.BigIntegerField(default=0, help_text="of the newest send")
    attempts = models.IntegerField(default=0, help_text="sends begun")
    look_ups = models.IntegerField(default=0, help_text="reconciliations tried")
    first_sent_at = models.DateTimeField(null=True)
    last_sent_at = models.DateTimeField(null=True)
    in_flight_until = models.DateTimeField(
        null=True, help_text="until then an earlier send may still be on its way"
    )
    settles_at = models.DateTimeField(
        null=True, help_text="until then an earlier send may still take effect at the provider"
    )
    unknown_since = models.DateTimeField(
        null=True, help_text="set by the first unknown outcome, cleared only by an answer"
    )
    next_reconcile_at = models.DateTimeField(null=True)
    next_watch_at = models.DateTimeField(
        null=True, help_text="closed, and looked up again then for an effect that came late"
    )
    watch_until = models.DateTimeField(null=True)
    external_ref = models.CharField(max_length=255, blank=True)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "operation"
        constraints = [
            models.UniqueConstraint(
                name="operation_unique_place", fields=["run", "step_number", "ordinal"]
            ),
            models.UniqueConstraint(name="operation_unique_intent", fields=["holds_intent"]),
            models.CheckConstraint(
                name="operation_standing_is_dated",
                condition=_sql(
                    "runs_operation_is_dated",
                    "status",
                    "attempts",
                    "fence_token",
                    "first_sent_at",
                    "unknown_since",
                    "settled_at",
                ),
            ),
        ]
        indexes = [
            models.Index(
                name="operation_unknown",
                fields=["unknown_since"],
                condition=Q(status=OperationStatus.UNKNOWN),
            ),
            models.Index(
                name="operation_held",
                fields=["created_at"],
                condition=Q(status=OperationStatus.AWAITING_APPROVAL),
            ),
            models.Index(name="operation_newest", fields=["-created_at", "-id"]),
            models.Index(
                name="operation_watched",
                fields=["next_watch_at"],
                condition=Q(next_watch_at__isnull=False),
            ),
            models.Index(
                name="operation_repeats", fields=["repeats"], condition=Q(repeats__isnull=False)
            ),
        ]
        triggers = OPERATION_TRIGGERS
        permissions = [("resolve_operation", "Can settle an unknown operation")]

    def __str__(self) -> str:
        return f"{self.tool} {self.id}"

    @property
    def may_be_in_flight(self) -> bool:
        """Whether an earlier send may yet take effect, by this machine's clock: for display."""
        if self.status not in (OperationStatus.RUNNING, OperationStatus.UNKNOWN):
            return False
        return self.settles_at is None or self.settles_at > timezone.now()


class ToolObservation(models.Model):
    """One thing learned about an operation. Evidence: it moves no state by itself."""

    class Source(models.TextChoices):
        WORKER = "worker", "The worker that sent it"
        STALE_WORKER = "stale_worker", "A worker whose lease or deadline was over"
        TAKE_OVER = "take_over", "The worker that found its sender gone"
        LOOK_UP = "look_up", "A question to the provider"
        PERSON = "person", "A person"

    class Verdict(models.TextChoices):
        COMMITTED = "committed", "It happened"
        REJECTED = "rejected", "Refused for good"
        NOT_SENT = "not_sent", "Nothing left the process"
        UNKNOWN = "unknown", "It may or may not have happened"
        NOT_FOUND = "not_found", "The provider does not know it (yet)"
        INDETERMINATE = "indeterminate", "The provider could not say"
        FAILED = "failed", "The look-up itself failed: it says nothing"

    operation = models.ForeignKey(
        ToolOperation, models.CASCADE, related_name="observations", db_index=False
    )
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="+", db_index=False)
    source = models.CharField(max_length=16, choices=Source.choices)
    verdict = models.CharField(max_length=16, choices=Verdict.choices)
    stage = models.CharField(max_length=16, blank=True, help_text="where a call was interrupted")
    window = models.JSONField(
        null=True, help_text="of a send: when it was claimed, when bytes left, when it ends"
    )
    detail = models.TextField(blank=True)
    result = models.JSONField(null=True)
    external_ref = models.CharField(max_length=255, blank=True)
    attempt = models.IntegerField(help_text="the send it speaks about, from 1")
    fence_token = models.BigIntegerField()
    observed_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "observation"
        indexes = [models.Index(name="observation_of", fields=["operation", "id"])]
        triggers = append_only("observation")

    def __str__(self) -> str:
        return f"{self.source}: {self.verdict}"


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


class Transition(models.Model):
    """One edge that a run, or one of its operations, took."""

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="journal", db_index=False)
    version = models.BigIntegerField(help_text="the run's version that this edge led to")
    operation = models.ForeignKey(
        ToolOperation, models.CASCADE, null=True, related_name="journal", db_index=False
    )
    event = models.CharField(max_length=24)
    # (from, event) has a line in the pure table; `reason` holds only what differs from it.
    from_state = models.CharField(max_length=32, blank=True)
    to_state = models.CharField(max_length=32)
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=NAME)
    fence_token = models.BigIntegerField()
    step_number = models.IntegerField()
    attempt = models.IntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="transition_is_a_legal_edge",
                condition=_sql(
                    "runs_is_legal_edge", "operation", "from_state", "event", "to_state"
                ),
            ),
        ]
        indexes = [models.Index(name="transition_of_run", fields=["run", "version", "id"])]
        triggers = append_only("transition")

    def __str__(self) -> str:
        return f"{self.from_state or '·'} → {self.to_state}"

    @property
    def why(self) -> str:
        """The recorded reason, or else the line that the pure table has for this edge."""
        return self.reason or edge_line(
            from_state=self.from_state, event=self.event, of_operation=bool(self.operation_id)
        )


class Incident(models.Model):
    """Something that a promise says should not happen, and that did: counted, never hidden."""

    class Kind(models.TextChoices):
        LATE_COMMIT = "LATE_COMMIT", "An effect appeared after its operation was closed"
        DUPLICATE = "DUPLICATE", "The provider has more than one effect of one operation"
        OVERDUE = "OVERDUE", "Unknown for longer than its tool's objective"

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="incidents", db_index=False)
    operation = models.ForeignKey(
        ToolOperation, models.CASCADE, related_name="incidents", db_index=False
    )
    kind = models.CharField(max_length=24, choices=Kind.choices)
    external_ref = models.CharField(max_length=255, blank=True)
    detail = models.TextField(blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            # The same finding again is no second incident.
            models.UniqueConstraint(
                name="incident_unique_finding", fields=["operation", "kind", "external_ref"]
            ),
        ]
        indexes = [
            models.Index(name="incident_of_run", fields=["run", "id"]),
            models.Index(name="incident_newest", fields=["-at", "-id"]),
            models.Index(name="incident_by_kind", fields=["kind", "-at", "-id"]),
        ]
        triggers = append_only("incident")

    def __str__(self) -> str:
        return f"{self.kind} {self.operation_id}"


class Worker(models.Model):
    """One incarnation of a worker process, and how it is known to have ended."""

    class EndedBy(models.TextChoices):
        REPORTED = "reported", "It said so itself"
        SUPERVISOR = "supervisor", "Its supervisor saw it exit"
        SUCCESSOR = "successor", "A newer process on its host found it gone"
        OPERATOR = "operator", "An operator said so"

    name = models.CharField(primary_key=True, max_length=NAME, help_text="as in lease_owner")
    host = models.CharField(max_length=255)
    # A process id means something only within these two.
    boot_id = models.CharField(max_length=64, blank=True)
    pid_namespace = models.CharField(max_length=64, blank=True)
    pid = models.IntegerField()
    pid_started = models.BigIntegerField(
        null=True, help_text="the kernel's start time of the process, in clock ticks after boot"
    )
    started_at = models.DateTimeField(db_default=Now())
    last_seen_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=16, blank=True, choices=EndedBy.choices)
    evidence = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="worker_end_is_explained",
                condition=Q(ended_at__isnull=True, ended_by="")
                | (Q(ended_at__isnull=False) & ~Q(ended_by="")),
            ),
        ]
        indexes = [
            models.Index(
                name="worker_alive", fields=["host", "pid"], condition=Q(ended_at__isnull=True)
            ),
            models.Index(name="worker_newest", fields=["-started_at", "name"]),
        ]
        triggers = [
            pgtrigger.Trigger(
                name="worker_ends_once",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at"
                ),
                func=(
                    "RAISE EXCEPTION 'worker %: it has ended once', OLD.name "
                    "USING ERRCODE = 'check_violation';"
                ),
            )
        ]

    def __str__(self) -> str:
        return self.name


class Sweep(models.Model):
    """When a sweep last ran, whoever ran it: the sign that sweeps are alive."""

    name = models.CharField(primary_key=True, max_length=NAME)
    last_run_at = models.DateTimeField(db_default=Now())
    found = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name
