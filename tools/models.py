"""What this app keeps: policies; and, for a receiver of calls, keys and fencing tokens.

Guarantees: a policy is never changed or removed, only followed by its next version; a scope
and a key have one row, made unique by the database; a row that is in flight or unknown has
no date at which a cleanup could take it; all times are the database's. A key is kept as a
digest: it is only ever compared, and may be a secret of its caller.

Does not hide a key that is easy to guess ("order-17") from whoever can read the table, and
does not check what a policy says: `approvals.policies` does before it is saved.
"""

from datetime import timedelta
from typing import Final

import pgtrigger
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from tools.triggers import POLICY_TRIGGERS

# Of a scope, a key and a resource, in characters.
LONGEST_NAME: Final = 255
DIGEST: Final = 64
KEY_IS_UNIQUE: Final = "idempotency_key_is_unique"


class KeyStatus(models.TextChoices):
    """How the one call under a key stands."""

    RUNNING = "RUNNING", "Being carried out, or its process died at it"
    UNKNOWN = "UNKNOWN", "May or may not have taken effect"
    FINISHED = "FINISHED", "Took effect; the result is kept"
    REJECTED = "REJECTED", "Refused; the reason is kept"
    EXPIRED = "EXPIRED", "Settled long ago; only the key is remembered"


OPEN: Final = (KeyStatus.RUNNING, KeyStatus.UNKNOWN)


class IdempotencyKey(models.Model):
    """One key of one scope, and what became of the call under it."""

    scope = models.CharField(max_length=LONGEST_NAME)
    key_digest = models.CharField(max_length=DIGEST, help_text="of the scope and the key")
    arguments_digest = models.CharField(max_length=DIGEST)
    status = models.CharField(max_length=16, choices=KeyStatus.choices)
    attempt = models.IntegerField(
        default=1, help_text="one more each time an earlier one was found not executed"
    )
    # JSON as text: jsonb would reorder keys, and a replay is the first answer to the letter.
    result = models.TextField(null=True)
    reason = models.TextField(blank=True, help_text="why it was rejected, or is unknown")
    evidence = models.TextField(blank=True, help_text="what a person settled it by")
    late_results = models.IntegerField(
        default=0, help_text="executions that ended after a later one had begun"
    )
    started_at = models.DateTimeField(db_default=Now())
    unknown_since = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    keep_until = models.DateTimeField(null=True, help_text="end of the result's retention")
    remember_until = models.DateTimeField(null=True, help_text="moved on by every sighting")

    class Meta:
        constraints = [
            models.UniqueConstraint(name=KEY_IS_UNIQUE, fields=["key_digest"]),
            models.CheckConstraint(
                name="idempotency_key_open_is_never_cleaned",
                condition=Q(
                    status__in=OPEN,
                    settled_at__isnull=True,
                    keep_until__isnull=True,
                    remember_until__isnull=True,
                )
                | Q(settled_at__isnull=False, remember_until__isnull=False) & ~Q(status__in=OPEN),
            ),
        ]
        indexes = [
            models.Index(
                name="idempotency_key_kept",
                fields=["keep_until"],
                condition=Q(keep_until__isnull=False),
            ),
            models.Index(
                name="idempotency_key_remembered",
                fields=["remember_until"],
                condition=Q(remember_until__isnull=False),
            ),
            models.Index(
                name="idempotency_key_open",
                fields=["started_at"],
                condition=Q(remember_until__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"key {self.pk} of {self.scope}"

    @property
    def is_open(self) -> bool:
        """Whether nobody has said yet what became of it."""
        return self.status in OPEN


class FencedResource(models.Model):
    """The newest fencing token that was seen for one resource."""

    resource = models.CharField(max_length=LONGEST_NAME, primary_key=True)
    token = models.BigIntegerField()
    # Moved on once a day: an unchanged index entry keeps the other updates heap-only.
    seen_at = models.DateTimeField(db_default=Now(), db_index=True)

    def __str__(self) -> str:
        return f"{self.resource} at {self.token}"


POLICY_NAME: Final = 160
POLICY_SELECTOR: Final = 100
LONGEST_WINDOW: Final = timedelta(hours=24)
POLICY_VERSION_IS_UNIQUE: Final = "policy_version_is_unique"


# Not in Meta: this app is used without `pgtrigger` installed too, by receivers of calls.
@pgtrigger.register(*POLICY_TRIGGERS)
class ToolPolicy(models.Model):
    """One version of one policy, or of one switch that stops sending.

    The newest version of a name counts. Empty selectors choose every call.
    """

    class Outcome(models.TextChoices):
        ALLOW = "allow", "Allow"
        REQUIRE_APPROVAL = "require_approval", "Require approval"
        REFUSE = "refuse", "Refuse"
        STOP = "stop", "Stop sending"

    class By(models.TextChoices):
        AGENT = "agent", "Calls of the same agent"
        REQUESTER = "requester", "Calls for the same requester"
        ALL = "all", "All calls"

    name = models.CharField(max_length=POLICY_NAME)
    version = models.IntegerField()
    tool = models.CharField(max_length=POLICY_SELECTOR, blank=True)
    provider = models.CharField(max_length=POLICY_SELECTOR, blank=True)
    agent = models.CharField(max_length=POLICY_SELECTOR, blank=True)
    when = models.TextField(default="true", help_text="CEL; see write-a-policy.md")
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    groups = models.JSONField(default=list, blank=True, help_text="each must sign")
    quorum = models.IntegerField(default=1, help_text="distinct people who must sign")
    approve_by = models.DurationField(default=timedelta(hours=24))
    execute_by = models.DurationField(default=timedelta(hours=1))
    escalate_to = models.JSONField(default=list, blank=True)
    escalate_after = models.DurationField(null=True, blank=True)
    remind_after = models.DurationField(null=True, blank=True)
    window_seconds = models.IntegerField(null=True, blank=True)
    window_by = models.CharField(max_length=16, choices=By.choices, default=By.AGENT)
    window_money = models.CharField(max_length=POLICY_SELECTOR, blank=True)
    active = models.BooleanField(default=True, help_text="false once retired, or lifted")
    author = models.CharField(max_length=POLICY_SELECTOR)
    reason = models.TextField(help_text="why this version was made")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "tool policies"
        permissions = [("edit_policies", "Can edit policies and stop sending")]
        constraints = [
            models.UniqueConstraint(name=POLICY_VERSION_IS_UNIQUE, fields=["name", "version"]),
            models.CheckConstraint(
                name="policy_has_author_and_reason", condition=~Q(author="") & ~Q(reason="")
            ),
            models.CheckConstraint(
                name="policy_outcome_is_known",
                condition=Q(outcome__in=["allow", "require_approval", "refuse", "stop"]),
            ),
            models.CheckConstraint(
                name="policy_can_be_satisfied",
                condition=Q(
                    quorum__gte=1, approve_by__gt=timedelta(0), execute_by__gt=timedelta(0)
                ),
            ),
            models.CheckConstraint(
                name="policy_window_is_bounded",
                condition=Q(window_seconds__isnull=True)
                | Q(window_seconds__gte=1, window_seconds__lte=LONGEST_WINDOW.total_seconds()),
            ),
            models.CheckConstraint(
                name="policy_counts_by_a_known_word",
                condition=Q(window_by__in=["agent", "requester", "all"]),
            ),
            # A switch is on or off: nothing about the call could keep it from working.
            models.CheckConstraint(
                name="policy_stop_has_no_condition",
                condition=~Q(outcome="stop")
                | Q(when="true", agent="", window_seconds__isnull=True)
                & (Q(tool="") | Q(provider="")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"
