"""What a receiver of calls keeps: idempotency keys, and the newest fencing token of a resource.

Guarantees: a scope and a key have one row, made unique by the database; a row that is in
flight or unknown has no date at which a cleanup could take it; all times are the
database's. A key is kept as a digest: it is only ever compared, and may be a secret of
its caller.

Does not hide a key that is easy to guess ("order-17") from whoever can read the table.
"""

from typing import Final

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

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
