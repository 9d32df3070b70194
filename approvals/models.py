"""Signatures: who said what of which exact action.

Guarantees: a verdict is append-only while its run exists, so whoever reads it later reads
what was signed; one person signs one approval once; one event id counts once per approval.
All times are the database's.

Does not say whether the signatures are enough: `quorum.py` does.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from approvals.triggers import VERDICT_TRIGGERS
from runs.models import AgentRun, Approval

# As long as a user's name may be.
PERSON = 150
EVENT_ID = 255


class Verdict(models.Model):
    """One person's word on one approval."""

    class Kind(models.TextChoices):
        APPROVE = "approve", "Send it"
        DENY = "deny", "Do not send it"
        PROPOSE = "propose", "Send something else in its place"

    class Via(models.TextChoices):
        API = "api", "The API"
        ADMIN = "admin", "The admin"
        COMMAND_LINE = "command line", "A command on the server"
        PYTHON = "python", "Python code"

    approval = models.ForeignKey(Approval, models.CASCADE, related_name="verdicts", db_index=False)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="+", db_index=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    name = models.CharField(max_length=PERSON, help_text="of the person, whatever became of them")
    verdict = models.CharField(max_length=8, choices=Kind.choices)
    reason = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=80, help_text="of the action that was signed")
    groups = models.JSONField(
        default=list, help_text="of the person then, as far as this approval asks for them"
    )
    event_id = models.CharField(max_length=EVENT_ID, null=True)
    via = models.CharField(max_length=16, choices=Via.choices)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="verdict_one_per_person",
                fields=["approval", "user"],
                condition=~Q(verdict="propose"),
            ),
            models.UniqueConstraint(
                name="verdict_one_per_event",
                fields=["approval", "event_id"],
                condition=Q(event_id__isnull=False),
            ),
            models.CheckConstraint(
                name="verdict_denial_has_a_reason",
                condition=Q(verdict="approve") | ~Q(reason=""),
            ),
        ]
        indexes = [
            models.Index(name="verdict_of_approval", fields=["approval", "id"]),
            # Deleting a run or a user looks for what refers to it.
            models.Index(name="verdict_of_run", fields=["run"]),
            models.Index(name="verdict_of_user", fields=["user"]),
        ]
        triggers = VERDICT_TRIGGERS

    def __str__(self) -> str:
        return f"{self.verdict} by {self.name}"
