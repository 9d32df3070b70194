"""Versions: what each deployment serves, by content."""

from django.db import models
from django.db.models.functions import Now

from runs.models.shared import NAME
from runs.triggers import append_only


class Definition(models.Model):
    """One version of an agent, a prompt or a tool, under the digest of its content."""

    class Kind(models.TextChoices):
        AGENT = "agent", "An agent: its decider, tools, output and constraints"
        PROMPT = "prompt", "What an llm is told"
        TOOL = "tool", "A tool: its arguments and how it is recovered"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=NAME)
    version = models.CharField(max_length=64)
    body = models.JSONField()
    first_seen_at = models.DateTimeField(
        db_default=Now(), help_text="when a worker that serves it first started"
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="definition_unique_version", fields=["kind", "name", "version"]
            ),
        ]
        triggers = append_only("definition")

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.version}"


class Release(models.Model):
    """What one deployment serves: the version of every agent and tool, under their digest."""

    id = models.CharField(primary_key=True, max_length=64)
    agents = models.JSONField(help_text="by name: version, and what it does on a change of it")
    tools = models.JSONField(help_text="by name: version, and version of its arguments")
    first_seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        triggers = append_only("release")

    def __str__(self) -> str:
        return self.id
