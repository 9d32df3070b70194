"""Waits: what a step waits for, the signals that were sent, and the questions to people.

Guarantees: a signal is stored before anybody looks for it, once per event id; a step has one
wait, which ends once. How long anything is waited for is a date by the database's clock.

Does not wake anything: `wake.py` makes the run due, and `waiting.py` looks at these rows.
"""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from runs.models.runs import AgentRun, Step
from runs.models.shared import NAME
from runs.question_triggers import QUESTION_TRIGGERS


class Wait(models.Model):
    """What one step waits for, and how that ended. A timer that ran out is no observation."""

    class Kind(models.TextChoices):
        TIMER = "timer", "A time"
        SIGNAL = "signal", "A signal"
        QUESTION = "question", "A person's answer"
        CHILD = "child", "Runs that it started"

    class Outcome(models.TextChoices):
        CAME = "came", "It came"
        TIMED_OUT = "timed_out", "It did not come in time"
        CANCELLED = "cancelled", "Its run was cancelled"

    step = models.OneToOneField(Step, models.CASCADE, primary_key=True, related_name="wait")
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="waits", db_index=False)
    step_number = models.IntegerField()
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.TextField(blank=True, help_text="of the signal; the question; empty else")
    until = models.DateTimeField(null=True, help_text="when it is over at the latest")
    began_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=16, blank=True, choices=Outcome.choices)
    result = models.JSONField(null=True, help_text="the payload or the answer")
    author = models.CharField(max_length=NAME, blank=True, help_text="who sent or answered it")

    class Meta:
        constraints = [
            models.UniqueConstraint(name="wait_unique_step", fields=["run", "step_number"]),
            models.CheckConstraint(
                name="wait_end_has_an_outcome",
                condition=Q(ended_at__isnull=True, outcome="")
                | (Q(ended_at__isnull=False) & ~Q(outcome="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Signal(models.Model):
    """One thing that somebody told a run. Delivered once, in the order it was stored."""

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="signals", db_index=False)
    name = models.CharField(max_length=NAME)
    event_id = models.CharField(max_length=255)
    payload = models.JSONField(null=True)
    digest = models.CharField(max_length=64, help_text="of name and payload: one id, one message")
    sent_by = models.CharField(max_length=NAME)
    sent_at = models.DateTimeField(db_default=Now())
    delivered_at = models.DateTimeField(null=True)
    delivered_step = models.IntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="signal_unique_event", fields=["run", "event_id"]),
        ]
        indexes = [
            models.Index(
                name="signal_undelivered",
                fields=["run", "name", "id"],
                condition=Q(delivered_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.event_id}"


class Question(models.Model):
    """One typed question to people. Answered once; the answer is a fact with its author."""

    class Status(models.TextChoices):
        OPEN = "open", "Waits for an answer"
        ANSWERED = "answered", "Answered by a person"
        EXPIRED = "expired", "Nobody answered in time"
        CANCELLED = "cancelled", "Its run does not wait any more"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="questions", db_index=False)
    step = models.OneToOneField(Step, models.CASCADE, related_name="question")
    step_number = models.IntegerField()
    text = models.TextField()
    schema = models.JSONField(help_text="JSON schema of the answer")
    groups = models.JSONField(default=list, help_text="whose members may answer; empty: anybody")
    escalate_to = models.JSONField(default=list, help_text="groups that may answer once escalated")
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.OPEN)
    asked_at = models.DateTimeField(db_default=Now())
    answer_by = models.DateTimeField(null=True)
    remind_at = models.DateTimeField(null=True, help_text="emptied once reminded")
    escalate_at = models.DateTimeField(null=True, help_text="emptied once escalated")
    escalated_at = models.DateTimeField(null=True)
    answer = models.JSONField(null=True)
    answered_by = models.CharField(max_length=NAME, blank=True)
    answered_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    ended_at = models.DateTimeField(null=True)
    event_id = models.CharField(max_length=255, blank=True, help_text="of the answer")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="question_end_is_dated",
                condition=Q(status="open", ended_at__isnull=True)
                | (~Q(status="open") & Q(ended_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="question_answer_has_an_author",
                condition=Q(status="answered") & ~Q(answered_by="")
                | ~Q(status="answered") & Q(answered_by="", answer__isnull=True),
            ),
        ]
        indexes = [
            models.Index(name="question_of_run", fields=["run", "step_number"]),
            models.Index(name="question_newest", fields=["-asked_at", "-id"]),
            models.Index(name="question_by_status", fields=["status", "-asked_at", "-id"]),
            models.Index(
                name="question_answered", fields=["ended_at"], condition=Q(status="answered")
            ),
            models.Index(
                name="question_reminds",
                fields=["remind_at"],
                condition=Q(status="open", remind_at__isnull=False),
            ),
            models.Index(
                name="question_escalates",
                fields=["escalate_at"],
                condition=Q(status="open", escalate_at__isnull=False),
            ),
        ]
        triggers = QUESTION_TRIGGERS
        permissions = [("answer_question", "Can answer an agent's question")]

    def __str__(self) -> str:
        return f"question {self.id}"
