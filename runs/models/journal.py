"""The journal: every edge that a run, or one of its operations, took."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.operations import ToolOperation
from runs.models.runs import AgentRun
from runs.models.shared import NAME, sql_check
from runs.state import PERSON_STATES, OperationStatus, edge_line
from runs.triggers import append_only


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
                condition=sql_check(
                    "runs_is_legal_edge", "operation", "from_state", "event", "to_state"
                ),
            ),
        ]
        indexes = [
            models.Index(name="transition_of_run", fields=["run", "version", "id"]),
            # Rows come in the order of time: a slice of it is found for next to nothing.
            BrinIndex(name="transition_by_time", fields=["at"], autosummarize=True),
            # How long people, and unknown outcomes, were waited for. A steady step is in neither.
            models.Index(
                name="transition_from_person",
                fields=["run", "version"],
                condition=Q(operation__isnull=True, from_state__in=sorted(PERSON_STATES)),
            ),
            models.Index(
                name="transition_to_unknown",
                fields=["operation", "id"],
                condition=Q(operation__isnull=False, to_state=OperationStatus.UNKNOWN),
            ),
        ]
        triggers = append_only("transition")

    def __str__(self) -> str:
        return f"{self.from_state or '·'} → {self.to_state}"

    @property
    def why(self) -> str:
        """The recorded reason, or else the line that the pure table has for this edge."""
        return self.reason or edge_line(
            from_state=self.from_state, event=self.event, of_operation=bool(self.operation_id)
        )
