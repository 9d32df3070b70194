"""API tokens.

Guarantees: only a digest of a token is stored, so nobody who reads the table can
use one; `prefix` is the part that may be shown, in lists and to its owner.

Does not create tokens; `tokens.py` does, the one place that sees one in clear.
"""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

NAME = 100


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
