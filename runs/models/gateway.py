"""The gateway: what an agent that runs elsewhere asked for, and under which key."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.operations import OperationIdField
from runs.models.runs import AgentRun
from runs.models.shared import NAME


class GatewayCall(models.Model):
    """One request of an agent that runs elsewhere, until its run takes it up and ever after.

    The row outlives its run, without what was asked: its key then names something that is no
    longer known, and is refused.
    """

    class Kind(models.TextChoices):
        CALL = "call", "A call of a tool"
        FINISH = "finish", "The run has reached its goal, or will not"
        AGAIN = "again", "A known call of a run, under another key"

    run = models.ForeignKey(
        AgentRun, models.SET_NULL, null=True, related_name="gateway_calls", db_index=False
    )
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.CALL)
    # The unique columns of a key: whoever asked, and the name they gave the request.
    scope = models.CharField(max_length=200, help_text="whose keys: a token, or a user")
    key = models.CharField(max_length=255, null=True)
    request_digest = models.CharField(max_length=64)
    operation_id = OperationIdField(max_length=64, null=True)
    tool = models.CharField(max_length=NAME, blank=True)
    arguments = models.JSONField(
        null=True, help_text="until it is taken up; then they stand on its operation"
    )
    rationale = models.TextField(blank=True, help_text="why, in the words of whoever asked")
    same_as = models.ForeignKey("self", models.PROTECT, null=True, related_name="+", db_index=False)
    ends_run = models.BooleanField(
        db_default=False, help_text="the run was started for this call, and ends with it"
    )
    created_by = models.CharField(max_length=NAME)
    door = models.CharField(
        max_length=8, blank=True, db_default="", help_text="by which it came: api, mcp, command"
    )
    address = models.CharField(
        max_length=64, blank=True, db_default="", help_text="where it came from"
    )
    received_at = models.DateTimeField(db_default=Now())
    answer_by = models.DateTimeField(
        null=True, help_text="until then whoever asked waits for the answer"
    )
    taken_at = models.DateTimeField(null=True, help_text="when its run decided to do it")

    class Meta:
        verbose_name = "gateway call"
        constraints = [
            models.UniqueConstraint(
                name="call_unique_key", fields=["scope", "key"], condition=Q(key__isnull=False)
            ),
            models.UniqueConstraint(
                name="call_unique_operation",
                fields=["operation_id"],
                condition=Q(operation_id__isnull=False),
            ),
            models.CheckConstraint(
                name="call_has_its_names",
                condition=Q(kind="finish", operation_id__isnull=True)
                | Q(kind="again", operation_id__isnull=True, key__isnull=False)
                & Q(same_as__isnull=False, taken_at__isnull=False)
                | (Q(kind="call", operation_id__isnull=False, key__isnull=False) & ~Q(tool="")),
            ),
        ]
        indexes = [
            models.Index(
                name="call_waiting", fields=["run", "id"], condition=Q(taken_at__isnull=True)
            ),
            models.Index(name="call_of_run", fields=["run", "-id"]),
            models.Index(name="call_again", fields=["received_at"], condition=Q(kind="again")),
        ]

    def __str__(self) -> str:
        return f"{self.tool or self.kind} {self.pk}"
