"""Llms: what each was asked and answered, and the artifacts that replace old context."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now

from runs.models.runs import AgentRun, Step
from runs.models.shared import NAME
from runs.triggers import append_only


class LlmRequest(models.Model):
    """One request made of an llm, whatever came of it: those that failed are counted too."""

    class Purpose(models.TextChoices):
        DECIDE = "decide", "The next decision"
        HANDOFF = "handoff", "An artifact that replaces old context"

    class Outcome(models.TextChoices):
        USED = "used", "Its answer was used"
        UNUSABLE = "unusable", "It answered what cannot be used"
        FAILED = "failed", "It did not answer"

    class Problem(models.TextChoices):
        """What was wrong with an answer, as it is told to whoever is asked again."""

        EMPTY = "empty", "Neither a call nor a text"
        TRUNCATED = "truncated", "Cut off at the most tokens that an answer may have"
        REFUSED = "refused", "The llm, or a filter of its provider, refused"
        MALFORMED = "malformed", "Arguments that nothing can be made of"
        REPEATED_CALL_ID = "repeated_call_id", "Two calls under one id"
        OVERSIZED = "oversized", "Larger than what can be stored"
        TOO_MANY_CALLS = "too_many_calls", "More calls than one decision may have"
        MIXED = "mixed", "A final answer beside calls, or two final answers"
        BAD_RESULT = "bad_result", "A final answer that does not fit the agent's output"
        BAD_HANDOFF = "bad_handoff", "A handoff that the database contradicts"
        TOO_LONG = "too_long", "More was asked than the llm can read"

    step = models.ForeignKey(Step, models.CASCADE, related_name="llm_requests", db_index=False)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="+", db_index=False)
    fence_token = models.BigIntegerField()
    purpose = models.CharField(max_length=16, choices=Purpose.choices)
    llm = models.CharField(max_length=NAME, help_text="as it was asked for")
    llm_version = models.CharField(max_length=NAME, blank=True, help_text="as it answered")
    prompt_version = models.CharField(max_length=64)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    problem = models.CharField(max_length=32, blank=True, choices=Problem.choices)
    detail = models.TextField(blank=True, help_text="what was wrong, bounded")
    said = models.TextField(blank=True, help_text="what it wrote beside its calls, bounded")
    finish_reason = models.CharField(max_length=32, blank=True)
    response_id = models.CharField(max_length=255, blank=True, help_text="the provider's own")
    input_tokens = models.IntegerField(null=True, help_text="cached ones included")
    cached_tokens = models.IntegerField(null=True)
    output_tokens = models.IntegerField(null=True, help_text="reasoning included")
    reasoning_tokens = models.IntegerField(null=True)
    cost_usd = models.DecimalField(
        max_digits=16, decimal_places=6, null=True, help_text="null where no price is known"
    )
    latency_ms = models.IntegerField()
    shown = models.JSONField(
        default=dict, help_text="which rows the context was made of: references, not copies"
    )
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "llm request"
        indexes = [
            models.Index(name="llm_request_of_step", fields=["step", "id"]),
            models.Index(name="llm_request_of_run", fields=["run", "id"]),
            BrinIndex(name="llm_request_by_time", fields=["at"], autosummarize=True),
        ]
        triggers = append_only("llm_request")

    def __str__(self) -> str:
        return f"{self.llm}: {self.outcome}"


class Handoff(models.Model):
    """What replaces everything before a step for whoever decides next; checked against the rows.

    `body` is `runs.artifact.Artifact` as JSON; `through_step` is the last step that it speaks
    about. The newest one of a run counts.
    """

    class Reason(models.TextChoices):
        WINDOW = "window", "The window of recent events was full"
        VERSION = "version", "Another version of the agent goes on"
        DELEGATED = "delegated", "Another agent goes on"

    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="handoffs", db_index=False)
    number = models.IntegerField(help_text="from 1")
    through_step = models.IntegerField()
    reason = models.CharField(max_length=16, choices=Reason.choices)
    schema_version = models.IntegerField()
    body = models.JSONField()
    written_by = models.CharField(
        max_length=NAME, help_text="the llm that wrote it, or `rows`: built without one"
    )
    repairs = models.IntegerField(help_text="how often the llm's own was sent back")
    fence_token = models.BigIntegerField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(name="handoff_unique_number", fields=["run", "number"]),
        ]
        triggers = append_only("handoff")

    def __str__(self) -> str:
        return f"handoff {self.number}"
