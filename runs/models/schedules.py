"""Schedules: when runs are started without anybody asking.

Guarantees: an enabled schedule has a next start and a disabled one has none; a start is later
than the one before it, so that no slot comes twice; a row that cannot be read as a schedule is
refused by the database.

Does not know cron or time zones: `runs/cron.py` does.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.db.models.lookups import Exact

from runs.models.runs import AgentRun
from runs.models.shared import NAME

SCHEDULE_NAME = 60


class Schedule(models.Model):
    """What is started, at which times, and what came of it last."""

    class CatchUp(models.TextChoices):
        SKIP = "skip", "None of the missed"
        LATEST = "latest", "Only the newest of the missed"
        ALL = "all", "Every one of the missed, oldest first"

    # Shorter than other names, because the actor's name is made of it.
    name = models.CharField(max_length=SCHEDULE_NAME, unique=True)
    agent = models.CharField(max_length=NAME)
    objective = models.TextField(blank=True)
    input = models.JSONField(default=dict)
    labels = models.JSONField(default=dict)
    priority = models.SmallIntegerField(null=True, help_text="null: the agent's")
    cron = models.CharField(max_length=NAME)
    time_zone = models.CharField(max_length=NAME, default="UTC")
    catch_up = models.CharField(max_length=16, choices=CatchUp.choices, default=CatchUp.LATEST)
    enabled = models.BooleanField(default=True)
    next_at = models.DateTimeField(null=True, help_text="the next slot; null while disabled")
    last_slot = models.DateTimeField(null=True, help_text="the newest that was to start a run")
    last_missed = models.DateTimeField(
        null=True, help_text="the newest that passed without a start, by the catch-up policy"
    )
    last_run = models.ForeignKey(
        AgentRun, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    last_error = models.TextField(blank=True, help_text="why the last slot started nothing")
    version = models.IntegerField(default=1, help_text="of what people wrote; grows by a save")
    created_by = models.CharField(max_length=NAME)
    saved_by = models.CharField(max_length=NAME)
    saved_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        help_text="counts as who started its runs, and may not sign in them",
    )
    created_at = models.DateTimeField(db_default=Now())
    saved_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="schedule_name_is_plain", condition=Q(name__regex=r"^[a-z0-9][a-z0-9_-]*$")
            ),
            models.CheckConstraint(
                name="schedule_cron_has_five_fields", condition=Q(cron__regex=r"^\S+( \S+){4}$")
            ),
            models.CheckConstraint(
                name="schedule_dated_while_enabled",
                condition=Q(enabled=True, next_at__isnull=False)
                | Q(enabled=False, next_at__isnull=True),
            ),
            models.CheckConstraint(
                name="schedule_next_is_later",
                condition=Q(last_slot__isnull=True)
                | Q(next_at__isnull=True)
                | Q(next_at__gt=F("last_slot")),
            ),
            models.CheckConstraint(
                name="schedule_catch_up_is_known",
                condition=Q(catch_up__in=["skip", "latest", "all"]),
            ),
            models.CheckConstraint(
                name="schedule_priority_in_range",
                condition=Q(priority__isnull=True) | Q(priority__range=(-100, 100)),
            ),
            models.CheckConstraint(
                name="schedule_labels_are_an_object",
                condition=Exact(
                    models.Func("labels", function="jsonb_typeof", output_field=models.TextField()),
                    Value("object"),
                ),
            ),
        ]
        indexes = [
            models.Index(
                name="schedule_due", fields=["next_at"], condition=Q(next_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.name
