"""API tokens, who asked for which write, and what is to be delivered to whom.

Guarantees: only a digest of a token is stored, so nobody who reads the table can
use one; `prefix` is the part that may be shown, in lists and to its owner. An entry
of the audit never changes but for its answer, which is filled in once, and is not
removed while it is young. A notice has one delivery per channel and address, however
often it is handed on; one that waits has a date, and goes with its notice, by whatever
statement that is deleted.

Does not create tokens: `tokens.py` does, the one place that sees one in clear. Does
not send: `notifications` does.
"""

from typing import Final

import pgtrigger
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.models import Notice

NAME = 100
ADDRESS: Final = 500
ERROR: Final = 300
# The longest name of a user that Django lets one have.
USERNAME: Final = 150
# How old an entry of the audit is before the database lets anybody remove it.
AUDIT_KEPT_DAYS: Final = 30


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
    revoked_at = models.DateTimeField(
        null=True, help_text="when a person ended it; one that expired may live on"
    )
    rotated_at = models.DateTimeField(null=True, help_text="when its secret was last replaced")
    previous_digest = models.CharField(
        max_length=64, null=True, help_text="SHA-256 of the secret before this one"
    )
    previous_until = models.DateTimeField(
        null=True, help_text="until then the secret before this one works too"
    )
    webhook_url = models.CharField(
        max_length=ADDRESS,
        blank=True,
        db_default="",
        help_text="is told when a call that its caller does not wait for any more is settled",
    )

    class Meta:
        verbose_name = "API token"
        constraints = [
            models.UniqueConstraint(name="token_unique_digest", fields=["digest"]),
            models.UniqueConstraint(name="token_unique_prefix", fields=["prefix"]),
            models.UniqueConstraint(
                name="token_unique_previous",
                fields=["previous_digest"],
                condition=Q(previous_digest__isnull=False),
            ),
            models.CheckConstraint(name="token_has_a_scope", condition=~Q(scopes=[])),
            models.CheckConstraint(
                name="token_previous_has_an_end",
                condition=Q(previous_digest__isnull=True, previous_until__isnull=True)
                | Q(previous_digest__isnull=False, previous_until__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class AuditEntry(models.Model):
    """One write that somebody asked for, by whichever door, and how it was answered.

    It refers to nothing, so that it outlives whom and what it is about.
    """

    class Door(models.TextChoices):
        API = "api", "API"
        MCP = "mcp", "MCP"
        ADMIN = "admin", "Admin"
        COMMAND = "command", "Command line"

    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=USERNAME, help_text="the user, as they were called then")
    token = models.BigIntegerField(null=True, help_text="the id of the API token that was shown")
    door = models.CharField(max_length=8, choices=Door.choices)
    action = models.CharField(max_length=200, help_text="method and route, tool or command")
    about = models.CharField(max_length=200, blank=True, help_text="what it was asked of")
    status = models.IntegerField(
        null=True,
        help_text="of the answer, or a command's exit code; empty: the process ended before it, "
        "or the call was accepted and its operation says the rest",
    )
    reason = models.CharField(max_length=100, blank=True, help_text="why it was refused")
    address = models.CharField(max_length=64, blank=True, help_text="where it came from")

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit"
        indexes = [
            models.Index(name="audit_of_token", fields=["token", "-id"]),
            models.Index(name="audit_about", fields=["about", "-id"]),
        ]
        triggers = [
            pgtrigger.Trigger(
                name="audit_is_answered_once",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func="""
                    IF OLD.status IS NOT NULL OR NEW.status IS NULL
                        OR OLD.about NOT IN ('', NEW.about)
                        OR (NEW.id, NEW.at, NEW.actor, NEW.token, NEW.door, NEW.action,
                            NEW.address)
                        IS DISTINCT FROM (OLD.id, OLD.at, OLD.actor, OLD.token, OLD.door,
                            OLD.action, OLD.address) THEN
                        RAISE EXCEPTION 'audit entry %: it never changes', OLD.id
                            USING ERRCODE = 'check_violation';
                    END IF;
                    RETURN NEW;
                """,
            ),
            pgtrigger.Trigger(
                name="audit_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Delete,
                func=f"""
                    IF OLD.at > now() - interval '{AUDIT_KEPT_DAYS} days' THEN
                        RAISE EXCEPTION 'audit entry %: younger than {AUDIT_KEPT_DAYS} days',
                            OLD.id USING ERRCODE = 'check_violation';
                    END IF;
                    RETURN OLD;
                """,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action}"


class EventCount(models.Model):
    """How often something happened in the processes of this project, all of them together.

    For what leaves no row of its own. A process adds what it saw every few seconds and at its
    end; one that is killed takes its last seconds with it.
    """

    name = models.CharField(max_length=NAME)
    label = models.CharField(max_length=NAME, blank=True)
    count = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(name="event_count_once", fields=["name", "label"])]

    def __str__(self) -> str:
        return f"{self.name} {self.label}".strip()


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
