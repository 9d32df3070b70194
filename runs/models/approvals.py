"""Approvals: a request for a signature on one exact action, and what is told to people.

Guarantees: what was to be signed (`covered`, its fingerprint, who must sign) never changes
after it was asked; a status moves only along the few edges of `triggers.py`; one approval is
pending per operation; a spent one names the token it was spent under.

Does not hold the signatures: `approvals` does, which knows users.
"""

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from runs.models.operations import ToolOperation
from runs.models.runs import AgentRun
from runs.models.shared import NAME
from runs.models.waits import Question
from runs.triggers import APPROVAL_TRIGGERS


class Approval(models.Model):
    """One question to people: may exactly this be sent?"""

    class Status(models.TextChoices):
        PENDING = "pending", "Waits for signatures"
        APPROVED = "approved", "Signed by all who must"
        DENIED = "denied", "Refused by a person"
        EXPIRED = "expired", "Ran out before anybody decided"
        CANCELLED = "cancelled", "Its run was cancelled, or the call will not be sent"
        SUPERSEDED = "superseded", "Another request took its place, or none is needed any more"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    operation = models.ForeignKey(
        ToolOperation, models.CASCADE, related_name="approvals", db_index=False
    )
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="approvals", db_index=False)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.PENDING)
    fingerprint = models.CharField(max_length=80)
    covered = models.JSONField(help_text="what the fingerprint is made from: runs.fingerprint")
    rule = models.TextField(help_text="which rule asked, and why")
    policy_version = models.CharField(max_length=64)
    asked_because = models.TextField(
        blank=True, help_text="what changed since the request that it supersedes"
    )
    resource_version = models.CharField(max_length=255, blank=True)
    requester = models.CharField(max_length=NAME, help_text="who proposed it, and may not sign")
    requester_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    groups = models.JSONField(default=list, help_text="each must be represented by a signer")
    quorum = models.IntegerField(default=1, help_text="distinct people who must sign")
    escalate_to = models.JSONField(default=list, help_text="groups that may sign once escalated")
    requested_at = models.DateTimeField(db_default=Now())
    approve_by = models.DateTimeField()
    execute_within = models.DurationField(default=timedelta(hours=1))
    execute_by = models.DateTimeField(null=True, help_text="set by the verdict")
    remind_at = models.DateTimeField(null=True, help_text="emptied once reminded")
    escalate_at = models.DateTimeField(null=True, help_text="emptied once escalated")
    escalated_at = models.DateTimeField(null=True)
    decided_at = models.DateTimeField(null=True)
    decided_by = models.TextField(blank=True, help_text="all who signed, or who refused it")
    reason = models.TextField(blank=True, help_text="why it was denied, or ended undecided")
    spent_at = models.DateTimeField(null=True, help_text="by the send that it allowed")
    spent_under = models.BigIntegerField(null=True, help_text="the fencing token of that send")
    proposed_arguments = models.JSONField(
        null=True, help_text="what a person wants sent in place of what was asked"
    )
    proposed_by = models.CharField(max_length=NAME, blank=True)
    proposed_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    supersedes = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="superseded_by", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="approval_one_pending_per_operation",
                fields=["operation"],
                condition=Q(status="pending"),
            ),
            models.CheckConstraint(
                name="approval_spent_under_a_token",
                condition=Q(spent_at__isnull=True, spent_under__isnull=True)
                | Q(spent_at__isnull=False, spent_under__isnull=False),
            ),
            models.CheckConstraint(
                name="approval_only_approved_is_spent",
                condition=Q(spent_at__isnull=True) | Q(status__in=("approved", "superseded")),
            ),
            models.CheckConstraint(
                name="approval_approved_has_an_end",
                condition=~Q(status="approved") | Q(execute_by__isnull=False),
            ),
        ]
        indexes = [
            models.Index(name="approval_of", fields=["operation", "-requested_at"]),
            models.Index(name="approval_of_run", fields=["run", "requested_at"]),
            models.Index(
                name="approval_due",
                fields=["approve_by"],
                condition=Q(status="pending"),
            ),
            models.Index(
                name="approval_reminds",
                fields=["remind_at"],
                condition=Q(status="pending", remind_at__isnull=False),
            ),
            models.Index(
                name="approval_escalates",
                fields=["escalate_at"],
                condition=Q(status="pending", escalate_at__isnull=False),
            ),
            models.Index(
                name="approval_decided",
                fields=["decided_at"],
                condition=Q(decided_at__isnull=False),
            ),
            models.Index(name="approval_newest", fields=["-requested_at", "-id"]),
            models.Index(name="approval_by_status", fields=["status", "-requested_at", "-id"]),
            models.Index(
                name="approval_supersedes",
                fields=["supersedes"],
                condition=Q(supersedes__isnull=False),
            ),
        ]
        triggers = APPROVAL_TRIGGERS
        permissions = [("decide_approval", "Can sign or refuse an action")]

    def __str__(self) -> str:
        return f"approval {self.id}"


class Notice(models.Model):
    """Something that people or other systems are to hear of: the outbox.

    Written in the transaction that made it true, under an event id that is the same however
    often it is written or sent. Carries ids and names, never arguments, results or secrets.
    """

    class Kind(models.TextChoices):
        APPROVAL_REQUESTED = "approval.requested", "A signature is asked for"
        APPROVAL_REMINDER = "approval.reminder", "A signature is still missing"
        APPROVAL_ESCALATED = "approval.escalated", "A second group is asked"
        APPROVAL_DECIDED = "approval.decided", "Approved, denied, expired or superseded"
        OPERATION_UNKNOWN = "operation.unknown", "An effect may or may not have happened"
        OPERATION_NEEDS_PERSON = "operation.needs_person", "A person must settle an operation"
        OPERATION_SETTLED = "operation.settled", "A call from outside came to its end"
        RUN_PAUSED = "run.paused", "A run was paused and waits for a person"
        RUN_FINISHED = "run.finished", "A run came to its end"
        QUESTION_ASKED = "question.asked", "An agent asks people"
        QUESTION_REMINDER = "question.reminder", "An answer is still missing"
        QUESTION_ESCALATED = "question.escalated", "A second group is asked for an answer"
        QUESTION_ANSWERED = "question.answered", "A person answered"

    event_id = models.CharField(max_length=160, unique=True)
    kind = models.CharField(max_length=32, choices=Kind.choices)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="notices", db_index=False)
    operation_id = models.CharField(max_length=64, blank=True)
    approval = models.ForeignKey(
        Approval, models.CASCADE, null=True, related_name="notices", db_index=False
    )
    question = models.ForeignKey(
        Question, models.CASCADE, null=True, related_name="notices", db_index=False
    )
    status = models.CharField(max_length=32, blank=True, help_text="what it came to")
    at = models.DateTimeField(db_default=Now())
    handed_on_at = models.DateTimeField(
        null=True, help_text="when it was given to everybody who is to hear of it"
    )

    class Meta:
        indexes = [
            models.Index(
                name="notice_to_hand_on", fields=["id"], condition=Q(handed_on_at__isnull=True)
            ),
            models.Index(name="notice_of_run", fields=["run", "id"]),
        ]

    def __str__(self) -> str:
        return self.event_id
