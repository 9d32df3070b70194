"""Upkeep: the worker processes there were, and the sweeps that ran."""

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models.shared import NAME
from runs.models.versions import Release


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
    release = models.ForeignKey(
        Release,
        models.PROTECT,
        null=True,
        related_name="workers",
        db_index=False,
        help_text="what it serves",
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
    done_until = models.DateTimeField(
        null=True, help_text="of one that works through time: everything before is done"
    )

    def __str__(self) -> str:
        return self.name
