"""Rollups: how often what is measured happened, by slices of time; and audits at providers.

Guarantees: a slice has one row per measure and labels, so that counting it again replaces what
was counted before; folding slices into longer ones keeps every sum.

Does not count: `runs.slo` does, from the journal.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now

from runs.models.shared import NAME
from runs.triggers import never_changes


class Rollup(models.Model):
    """One measure of one slice of time, for one version of an agent and perhaps one tool.

    `count` is how often, `total` the sum of the values (seconds, US dollars, tokens). A measure
    with a distribution has a row per bucket: `le` is the upper bound of the values counted there
    alone, infinity for the last; 0 for a measure without one.
    """

    starts_at = models.DateTimeField()
    seconds = models.IntegerField(help_text="how long the slice is")
    agent = models.CharField(max_length=NAME)
    agent_version = models.CharField(max_length=64)
    tool = models.CharField(max_length=NAME, blank=True, help_text="empty: not of a tool")
    measure = models.CharField(max_length=48)
    le = models.FloatField(default=0)
    count = models.BigIntegerField()
    total = models.DecimalField(max_digits=24, decimal_places=6, default=0)

    class Meta:
        verbose_name = "rollup"
        verbose_name_plural = "service levels"
        constraints = [
            models.UniqueConstraint(
                name="rollup_once",
                fields=[
                    "seconds",
                    "starts_at",
                    "measure",
                    "agent",
                    "agent_version",
                    "tool",
                    "le",
                ],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.measure} {self.starts_at:%Y-%m-%d %H:%M}"


class EffectAudit(models.Model):
    """One time that a provider was asked for the effects of one tool in a span of time.

    `effects` is how many it listed: those `matched` are of operations that are known as committed,
    `duplicates` are second effects of one operation, `late` are of operations that were closed as
    not done, `unaccounted` name no operation that is known. `missing` are operations that are
    known as committed and were not listed.
    """

    tool = models.CharField(max_length=NAME)
    since = models.DateTimeField()
    until = models.DateTimeField()
    effects = models.IntegerField(default=0)
    matched = models.IntegerField(default=0)
    duplicates = models.IntegerField(default=0)
    late = models.IntegerField(default=0)
    unaccounted = models.IntegerField(default=0)
    missing = models.IntegerField(default=0)
    findings = models.JSONField(
        default=list, help_text="the first ones that are not matched: what, and which reference"
    )
    error = models.TextField(blank=True, help_text="why the provider could not be asked")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "effect audit"
        indexes = [
            models.Index(name="effect_audit_of_tool", fields=["tool", "-id"]),
            BrinIndex(name="effect_audit_by_time", fields=["at"], autosummarize=True),
        ]
        triggers = [never_changes("effect_audit")]

    def __str__(self) -> str:
        return f"{self.tool} {self.since:%Y-%m-%d %H:%M}"
