"""Limits: what has left lately for one place, and what is under way there."""

from django.db import models

LIMIT_NAME = 255


class FlowLimit(models.Model):
    """One limit that all workers share. Its row is locked for the moment of each question.

    Everything is in the one row, so that whoever has waited for its lock reads what the
    holder before it wrote; and in no index, so that an update stays heap-only.
    """

    name = models.CharField(primary_key=True, max_length=LIMIT_NAME)
    recent = models.JSONField(
        default=dict, help_text="requests that left, by the end of their slice of time (epoch)"
    )
    slots = models.JSONField(
        default=dict, help_text="holder: when it took its slot, and until when it has it (epoch)"
    )
    hold_seconds = models.FloatField(
        default=1.0, help_text="how long a slot is held, lately and on average"
    )
    told_until = models.FloatField(
        default=0.0, help_text="the latest time (epoch) for which somebody was told to come again"
    )

    class Meta:
        verbose_name = "limit"

    def __str__(self) -> str:
        return self.name
