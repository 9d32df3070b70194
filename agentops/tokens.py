"""Making tokens, and finding them again.

Guarantees: a token carries 256 random bits and is shown once; it is found by its
digest alone, so comparing takes the same time for a near miss as for a wild guess.

Does not judge whether a token may be used now; `access.py` does.
"""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from django.contrib.auth.models import User

from agentops.models import NAME, ApiToken
from runs.access import CALL_PREFIX, SCOPES
from tools.registry import all_tools

PREFIX_BYTES: Final = 4
SECRET_BYTES: Final = 32


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


@dataclass(frozen=True)
class Issued:
    """A new token. `secret` is the whole token in clear; it is stored nowhere."""

    row: ApiToken
    secret: str = field(repr=False)


def issue_token(
    *, user: User, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> Issued:
    """Create a token of `user`. Raises UnknownScope, NoScope or InvalidName."""
    if not scopes:
        raise NoScope
    for scope in scopes:
        if scope not in SCOPES and not _names_a_tool(scope):
            raise UnknownScope(scope)
    for label in (name, user.get_username()):
        if not (0 < len(label) <= NAME and label.isprintable()):
            raise InvalidName(label)
    prefix = f"aot_{secrets.token_hex(PREFIX_BYTES)}"
    secret = f"{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
    row = ApiToken.objects.create(
        user=user,
        name=name,
        prefix=prefix,
        digest=digest_of(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    return Issued(row=row, secret=secret)


def _names_a_tool(scope: str) -> bool:
    return scope in {f"{CALL_PREFIX}{spec.name}" for spec in all_tools()}


def digest_of(secret: str) -> str:
    """What is stored of a token."""
    # Not slowed down on purpose: 256 random bits cannot be guessed at any speed.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _scope_list() -> str:
    return ", ".join(sorted(SCOPES))
