"""API tokens, and what is to be delivered to whom.

Guarantees: only a digest of a token is stored, so nobody who reads the table can
use one; `prefix` is the part that may be shown, in lists and to its owner. A notice
has one delivery per channel and address, however often it is handed on; one that
waits has a date, and goes with its notice, by whatever statement that is deleted.

Does not create tokens: `tokens.py` does, the one place that sees one in clear. Does
not send: `notifications` does.
"""

from typing import Final

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models import Notice

NAME = 100
ADDRESS: Final = 500
ERROR: Final = 300


class ApiToken(models.Model):
    """One secret that lets a program act as its owner, within its scopes."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens", verbose_name="owner"
    )
    name = models.CharField(max_length=NAME, help_text="what it is for")
    prefix = models.CharField(max_length=16, help_text="the part that may be shown")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the whole token")
    scopes = ArrayField(models.CharField(max_length=NAME))
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True, help_text="empty: never")
    last_used_at = models.DateTimeField(null=True, help_text="to within a few minutes")

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.UniqueConstraint(name="token_unique_digest", fields=["digest"]),
            models.UniqueConstraint(name="token_unique_prefix", fields=["prefix"]),
            models.CheckConstraint(name="token_has_a_scope", condition=~Q(scopes=[])),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Delivery(models.Model):
    """One notice on its way to one address."""

    class Channel(models.TextChoices):
        EMAIL = "email", "E-mail"
        WEBHOOK = "webhook", "Webhook"

    class Status(models.TextChoices):
        PENDING = "pending", "To be sent"
        SENT = "sent", "Taken by its receiver"
        FAILED = "failed", "Given up"
        DROPPED = "dropped", "Not sent: it was decided meanwhile"

    # The migration adds the constraint: the database itself deletes what hangs on a notice.
    notice = models.ForeignKey(
        Notice,
        models.CASCADE,
        related_name="deliveries",
        db_index=False,
        db_constraint=False,
    )
    channel = models.CharField(max_length=8, choices=Channel.choices)
    address = models.CharField(max_length=ADDRESS, help_text="an e-mail address or a URL")
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.PENDING)
    attempts = models.IntegerField(default=0, help_text="tries since it was last asked for")
    next_try_at = models.DateTimeField(
        null=True, help_text="while it is being sent: when its sender is taken for lost"
    )
    leased_until = models.DateTimeField(null=True, help_text="somebody is sending it until then")
    give_up_at = models.DateTimeField(help_text="after this it is not tried again")
    last_error = models.CharField(max_length=ERROR, blank=True)
    made_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "notification"
        constraints = [
            models.UniqueConstraint(
                name="delivery_once_per_address", fields=["notice", "channel", "address"]
            ),
            models.CheckConstraint(
                name="delivery_pending_has_a_date",
                condition=Q(status="pending", next_try_at__isnull=False)
                | (~Q(status="pending") & Q(next_try_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="delivery_sent_has_a_time",
                condition=~Q(status="sent") | Q(sent_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                name="delivery_due_webhook",
                fields=["address", "next_try_at"],
                condition=Q(status="pending", channel="webhook"),
            ),
            models.Index(
                name="delivery_due_email",
                fields=["next_try_at"],
                condition=Q(status="pending", channel="email"),
            ),
            models.Index(
                name="delivery_leased",
                fields=["channel", "address"],
                condition=Q(leased_until__isnull=False),
            ),
            models.Index(name="delivery_failed", fields=["id"], condition=Q(status="failed")),
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.id}"
