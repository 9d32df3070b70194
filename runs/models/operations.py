"""Operations: intended effects, what is known about each, and what should not have happened."""

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from runs.models.runs import AgentRun, Step
from runs.models.shared import NAME, choices, sql_check
from runs.state import OperationStatus
from runs.triggers import OPERATION_TRIGGERS, append_only
from tools.declarations import EffectType


class OperationIdField(models.CharField):  # type: ignore[type-arg]  # not generic at run time
    """Text that is only ever compared whole: spelled so, Django adds no index for LIKE."""

    def db_type(self, connection: Any) -> str:
        return f"character varying({self.max_length})"


class NeverSent(models.TextChoices):
    """Why an operation was cancelled: the typed half of what its decider is told."""

    INVALID = "invalid", "Unknown tool or bad arguments"
    REFUSED = "refused", "Refused by policy"
    DENIED = "denied", "Refused by a person"
    EXPIRED = "expired", "Nobody decided in time"
    CHANGED = "changed", "Other arguments took their place"
    REPEAT = "repeat", "The call that it repeats came to nothing"
    GIVEN_UP = "given_up", "No try left this process"
    CANCELLED = "cancelled", "Its run was cancelled"


class ToolOperation(models.Model):
    """One intended external effect, with one id for life."""

    id = OperationIdField(primary_key=True, max_length=64)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="operations", db_index=False)
    step = models.ForeignKey(Step, models.CASCADE, related_name="operations", db_index=False)
    step_number = models.IntegerField()
    ordinal = models.IntegerField(help_text="the call's place in the recorded decision, from 0")
    revision = models.IntegerField(
        default=0, help_text="0 as decided; n for the n-th change of its arguments"
    )
    run_version = models.BigIntegerField(help_text="the run's version at the last write")
    status = models.CharField(max_length=32, choices=choices(OperationStatus))
    tool = models.CharField(max_length=NAME)
    tool_version = models.CharField(max_length=64, blank=True)
    arguments_version = models.CharField(
        max_length=64, blank=True, help_text="of the schema that they fit"
    )
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
    compensates = models.ForeignKey(
        "self",
        models.SET_NULL,
        null=True,
        related_name="compensated_by",
        db_index=False,
        help_text="the committed operation that this one corrects",
    )
    idempotency_key = models.CharField(max_length=255)
    key_expires_at = models.DateTimeField(null=True)
    policy_outcome = models.CharField(max_length=32, blank=True)
    policy_rule = models.TextField(blank=True)
    policy_version = models.CharField(max_length=64, blank=True)
    approval = models.ForeignKey(
        "runs.Approval",
        models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        help_text="the newest request for a signature on it",
    )
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
    next_try_at = models.DateTimeField(
        null=True, help_text="prepared, and sent no sooner: an earlier try did not leave"
    )
    needs_person_since = models.DateTimeField(
        null=True, help_text="unknown, and nothing that may be asked or sent can settle it"
    )
    next_watch_at = models.DateTimeField(
        null=True, help_text="closed, and looked up again then for an effect that came late"
    )
    watch_until = models.DateTimeField(null=True)
    external_ref = models.CharField(max_length=255, blank=True)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    never_sent = models.CharField(
        max_length=16, blank=True, choices=NeverSent.choices, help_text="why it was cancelled"
    )
    created_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "operation"
        constraints = [
            models.UniqueConstraint(
                name="operation_unique_place",
                fields=["run", "step_number", "ordinal", "revision"],
            ),
            models.UniqueConstraint(name="operation_unique_intent", fields=["holds_intent"]),
            models.CheckConstraint(
                name="operation_standing_is_dated",
                condition=sql_check(
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
                name="operation_denied",
                fields=["run", "intent"],
                condition=Q(never_sent=NeverSent.DENIED),
            ),
            # What a policy counts in a window; set once, with the row, in the steady path.
            models.Index(
                name="operation_sent",
                fields=["tool", "last_sent_at"],
                condition=Q(last_sent_at__isnull=False) & ~Q(effect_type=EffectType.READ),
            ),
            # What waits: nearly empty, since the steady path stays in none of these.
            models.Index(
                name="operation_waits",
                fields=["tool"],
                condition=Q(
                    status__in=[
                        OperationStatus.AWAITING_APPROVAL,
                        OperationStatus.PREPARED,
                        OperationStatus.UNKNOWN,
                    ]
                ),
            ),
            models.Index(
                name="operation_watched",
                fields=["next_watch_at"],
                condition=Q(next_watch_at__isnull=False),
            ),
            models.Index(
                name="operation_repeats", fields=["repeats"], condition=Q(repeats__isnull=False)
            ),
            models.Index(
                name="operation_compensates",
                fields=["compensates"],
                condition=Q(compensates__isnull=False),
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
        HANDLER = "handler", "Its tool's compensation_handler"

    class Verdict(models.TextChoices):
        COMMITTED = "committed", "It happened"
        REJECTED = "rejected", "Refused for good"
        NOT_SENT = "not_sent", "Nothing left the process"
        UNKNOWN = "unknown", "It may or may not have happened"
        NOT_FOUND = "not_found", "The provider does not know it (yet)"
        INDETERMINATE = "indeterminate", "The provider could not say"
        FAILED = "failed", "The look-up itself failed: it says nothing"
        CORRECTED = "corrected", "It happened, and no compensation is to be sent for it"

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
    also = models.JSONField(
        null=True, help_text="references of further effects that the look-up saw"
    )
    attempt = models.IntegerField(help_text="the send it speaks about, from 1")
    fence_token = models.BigIntegerField()
    observed_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "observation"
        indexes = [models.Index(name="observation_of", fields=["operation", "id"])]
        triggers = append_only("observation")

    def __str__(self) -> str:
        return f"{self.source}: {self.verdict}"


class Incident(models.Model):
    """Something that a promise says should not happen, and that did: counted, never hidden."""

    class Kind(models.TextChoices):
        LATE_COMMIT = "LATE_COMMIT", "An effect appeared after its operation was closed"
        DUPLICATE = "DUPLICATE", "The provider has more than one effect of one operation"
        OVERDUE = "OVERDUE", "Unknown for longer than its tool's objective"
        UNAPPROVED = "UNAPPROVED", "Sent without the signature that its policy asks for"

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
