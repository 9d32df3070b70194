"""Requests: what people and programs asked of a run, and when."""

from django.db import models
from django.db.models.functions import Now

from runs.models.runs import AgentRun
from runs.models.shared import NAME
from runs.triggers import append_only


class ControlRequest(models.Model):
    """One request that changed something, written with that change. Who asked stays known."""

    class Kind(models.TextChoices):
        CANCEL = "cancel", "Cancel it"
        PAUSE = "pause", "Open no further step"
        RESUME = "resume", "Let it go on"
        RETRY = "retry", "Go on from the last checkpoint"
        FORK = "fork", "Start another run from one of its steps"
        COMPENSATE = "compensate", "Correct what it did"

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="requests", db_index=False)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    by = models.CharField(max_length=NAME)
    # No foreign key: the row outlives its user unchanged, like every piece of evidence.
    by_user_id = models.BigIntegerField(null=True, help_text="the person, under whatever name")
    reason = models.TextField(blank=True)
    details = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "request"
        indexes = [models.Index(name="request_of_run", fields=["run", "at", "id"])]
        triggers = append_only("request")

    def __str__(self) -> str:
        return f"{self.kind} by {self.by}"
