"""Making tokens, giving them new secrets, ending them, and finding them again.

Guarantees: a secret carries 256 random bits and is shown once; it is found by its
digest alone, so comparing takes the same time for a near miss as for a wild guess. A
token with a new secret is the same token: what it started, its idempotency keys and its
scopes stay, also of one that expired and is given a later end. Two who replace one secret
at once get one new secret between them.

Does not judge whether a token may be used now; `access.py` does.
"""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Final

from django.contrib.auth.models import User
from django.db.models import F, Q
from django.db.models.functions import Least, Now

from agentops.models import NAME, ApiToken
from runs.access import CALL_PREFIX, SCOPES
from tools.registry import all_tools

PREFIX_BYTES: Final = 4
SECRET_BYTES: Final = 32
# For programs that are given the new secret one after the other.
GRACE: Final = timedelta(hours=1)
LONGEST_GRACE: Final = timedelta(days=7)
LONGEST_DAYS: Final = 36_500
# How much of a secret may be shown.
PREFIX: Final = len("aot_") + 2 * PREFIX_BYTES
VALID: Final = Q(expires_at__isnull=True) | Q(expires_at__gt=Now())


class UnknownScope(Exception):
    """A token was asked for with a scope that no command checks."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        near = get_close_matches(scope, SCOPES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"scopes: no scope is called {scope!r}; {hint}There are: {_scope_list()}")


class NoScope(Exception):
    """A token was asked for that could do nothing."""

    def __init__(self) -> None:
        super().__init__(f"scopes: name at least one of: {_scope_list()}")


class InvalidName(Exception):
    """A token or its owner has a name that the journal cannot hold."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"name: {name[:40]!a} is not possible; use 1 to {NAME} printable characters"
        )


class UnknownToken(Exception):
    """No token begins like this."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"token: none begins with {given[:PREFIX]!a}; give the part that `list_tokens` shows, "
            f"such as aot_1a2b3c4d, and nothing of the secret"
        )


class TokenEnded(Exception):
    """A token that was revoked is to be changed, or one that expired without a later end."""

    def __init__(self, token: ApiToken) -> None:
        self.token_id = token.pk
        if token.revoked_at is not None:
            fix = (
                "has ended, as it was revoked; make a new one with create_token, to which its "
                "idempotency keys are not known"
            )
        else:
            fix = (
                f"has expired; rotate_token {token.prefix} --days N gives it a later end with the "
                "new secret, and what it started and its idempotency keys stay"
            )
        super().__init__(f"token: {token} {fix}")


class AlreadyRotated(Exception):
    """The token was given another secret since it was looked at."""

    def __init__(self, token: ApiToken) -> None:
        self.token_id = token.pk
        super().__init__(
            f"token: {token} was given another secret meanwhile; look at it again, and give it "
            "a new one only if nobody has that"
        )


class InvalidPeriod(Exception):
    """A time to come is too short or too long."""

    def __init__(self, *, field: str, value: str, fix: str) -> None:
        self.field = field
        super().__init__(f"{field}: {value} is not possible; {fix}")


@dataclass(frozen=True)
class Issued:
    """A token with a new secret. `secret` is the whole token in clear; it is stored nowhere."""

    row: ApiToken
    secret: str = field(repr=False)


def issue_token(
    *,
    user: User,
    name: str,
    scopes: Collection[str],
    expires_at: datetime | None = None,
    webhook_url: str = "",
) -> Issued:
    """Create a token of `user`. Raises UnknownScope, NoScope or InvalidName.

    `webhook_url` was looked at before (`notifications.receivers.check_receiver`).
    """
    if not scopes:
        raise NoScope
    for scope in scopes:
        if scope not in SCOPES and not _names_a_tool(scope):
            raise UnknownScope(scope)
    for label in (name, user.get_username()):
        if not (0 < len(label) <= NAME and label.isprintable()):
            raise InvalidName(label)
    prefix, secret = _make_secret()
    row = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=prefix,
        digest=digest_of(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        webhook_url=webhook_url,
    )
    return Issued(row=row, secret=secret)


def rotate_token(
    *,
    token_id: int,
    grace: timedelta = GRACE,
    expires_at: datetime | None = None,
    prefix: str | None = None,
) -> Issued:
    """Give a token a new secret; the one it had works for `grace` longer, an older one no more.

    `expires_at` is its new end, if it is to have another; `prefix` is what it was seen with. One
    that has expired needs a new end, and none of its old secrets works again.
    Raises UnknownToken, TokenEnded, AlreadyRotated or InvalidPeriod.
    """
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise InvalidPeriod(
            field="grace",
            value=str(grace),
            fix=f"the old secret may work for 0 seconds to {LONGEST_GRACE.days} days longer",
        )
    token = ApiToken.objects.filter(pk=token_id).first()
    if token is None:
        raise UnknownToken(str(token_id))
    if prefix is not None and prefix != token.prefix:
        raise AlreadyRotated(token)
    fresh, secret = _make_secret()
    ending: dict[str, datetime] = {} if expires_at is None else {"expires_at": expires_at}
    seen = ApiToken.objects.filter(pk=token.pk, digest=token.digest, revoked_at__isnull=True)
    changed = seen.filter(VALID).update(
        prefix=fresh,
        digest=digest_of(secret),
        previous_digest=token.digest if grace else None,
        previous_until=Now() + grace if grace else None,
        rotated_at=Now(),
        **ending,
    )
    if not changed and ending:
        changed = seen.exclude(VALID).update(
            prefix=fresh,
            digest=digest_of(secret),
            previous_digest=None,
            previous_until=None,
            rotated_at=Now(),
            **ending,
        )
    before = token.digest
    token.refresh_from_db()
    if not changed:
        raise TokenEnded(token) if token.digest == before else AlreadyRotated(token)
    return Issued(row=token, secret=secret)


def revoke_token(*, token_id: int) -> bool:
    """End a token for good, with every secret it has; False where it was revoked before."""
    standing = ApiToken.objects.filter(pk=token_id, revoked_at__isnull=True)
    return bool(standing.update(expires_at=Least(F("expires_at"), Now()), revoked_at=Now()))


def find_token(prefix: str) -> ApiToken:
    """The token whose shown part this is. Raises UnknownToken."""
    given = prefix.strip().removesuffix("…")
    if "\0" in given:
        raise UnknownToken(given)
    found = ApiToken.objects.select_related("user").filter(prefix=given).first()
    if found is None:
        raise UnknownToken(given)
    return found


def _make_secret() -> tuple[str, str]:
    """A new secret after the part of it that may be shown."""
    prefix = f"aot_{secrets.token_hex(PREFIX_BYTES)}"
    return prefix, f"{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"


def _names_a_tool(scope: str) -> bool:
    return scope in {f"{CALL_PREFIX}{spec.name}" for spec in all_tools()}


def digest_of(secret: str) -> str:
    """What is stored of a token."""
    # Not slowed down on purpose: 256 random bits cannot be guessed at any speed.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _scope_list() -> str:
    return ", ".join(sorted(SCOPES))
