"""Who is at the front door of the API: tokens in, actors out.

Guarantees: a request is nobody's until its token was found, unexpired, with an
active owner, and has not asked too often; the secret before the newest one is the same
token for as long as was said when it was replaced. A view that does not name a scope for
a method refuses everybody there, so a forgotten scope fails closed. `request.auth` is a
`runs.access.Actor`, and the commands check it again.

Does not know sessions: those are the admin's.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, Throttled
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from agentops.audit import address_of, begin
from agentops.models import ApiToken, AuditEntry
from agentops.telemetry.serving import traceparent_of
from agentops.throttling import rates
from agentops.tokens import digest_of
from runs.access import Actor
from runs.errors import NotPermitted
from runs.prepared import fetch_one

if TYPE_CHECKING:
    # That module reads the settings, which name this one.
    from rest_framework.views import APIView

KEYWORD: Final = "Token"
# `last_used_at` is for people who clean up; a write per request would cost more than it says.
LAST_USED_PRECISION: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Found:
    """A token as its row is, by the database's clock, and its owner."""

    id: int
    prefix: str
    scopes: list[str]
    expired: bool
    replaced: bool
    fresh: bool
    user_id: int
    username: str
    is_active: bool

    def owner(self) -> User:
        """The user, whose other columns are read when they are asked for."""
        names = ("id", "username", "is_active")
        return User.from_db(DEFAULT_DB_ALIAS, names, (self.user_id, self.username, self.is_active))


class TokenAuthentication(BaseAuthentication):
    """Reads `Authorization: Token …`."""

    def authenticate(self, request: Request) -> tuple[User, Actor] | None:
        """The owner and what the token may do; None where no header was sent.

        Raises AuthenticationFailed, or Throttled for one who asks too often.
        """
        secret = _secret_of(request)
        if secret is None:
            return None
        found = _find_token(digest_of(secret))
        if found is None:
            raise AuthenticationFailed("This token is not known.")
        if found.replaced:
            raise AuthenticationFailed(
                f"This secret of token {found.prefix}… was replaced; use the newer one."
            )
        if found.expired:
            raise AuthenticationFailed(
                f"Token {found.prefix}… has ended; rotate_token --days gives one that expired a "
                "new secret and a later end, and its keys stay known. Under a new one they are not."
            )
        if not found.is_active:
            raise AuthenticationFailed(f"The owner of token {found.prefix}… is not active.")
        if (wait := rates.take(found.id)) > 0:
            raise Throttled(wait=wait, detail=f"Token {found.prefix}… {rates.limit_in_words()}")
        if not found.fresh:
            ApiToken.objects.filter(pk=found.id).update(last_used_at=Now())
        actor = Actor(
            name=found.username,
            scopes=frozenset(found.scopes),
            user_id=found.user_id,
            token=found.id,
            door=AuditEntry.Door.API,
            address=address_of(request.META),
            traceparent=traceparent_of(request.META),
        )
        return found.owner(), actor

    def authenticate_header(self, request: Request) -> str:
        return f'{KEYWORD} realm="agentops"'


class HasScope(BasePermission):
    """Asks for the scope that the view names in `scopes` for the request's method."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        """False for nobody; raises NotPermitted for an actor who lacks the scope."""
        if not isinstance(request.auth, Actor):
            return False
        method = "GET" if request.method == "HEAD" else request.method or ""
        if method.lower() not in view.http_method_names or not hasattr(view, method.lower()):
            # Answered with 405, which gives nothing away.
            return True
        scopes: dict[str, str | tuple[str, ...]] = getattr(view, "scopes", {})
        if method not in scopes:
            raise NotPermitted(actor=request.auth.name, scope=f"(none named for {method})")
        wanted = scopes[method]
        first, *others = (wanted,) if isinstance(wanted, str) else wanted
        if not any(request.auth.may(other) for other in others):
            request.auth.require(first)
        # Before anything is written, so that there is no write without its entry.
        begin(request._request, request.auth)
        return True


def _find_token(digest: str) -> Found | None:
    values = {"digest": digest, "seconds": LAST_USED_PRECISION.total_seconds()}
    with connection.wrap_database_errors:
        row = fetch_one(_QUERY, values)
    return Found(*row) if row is not None else None


# Every request asks for one, so it is worth a prepared statement.
_QUERY: Final = """
    SELECT token.id, token.prefix, token.scopes,
           COALESCE(token.expires_at <= statement_timestamp(), false),
           COALESCE(token.previous_digest = %(digest)s::text
                    AND token.previous_until <= statement_timestamp(), false),
           COALESCE(token.last_used_at > statement_timestamp()
                    - make_interval(secs => %(seconds)s::float8), false),
           owner.id, owner.username, owner.is_active
    FROM agentops_apitoken token JOIN auth_user owner ON owner.id = token.user_id
    WHERE token.digest = %(digest)s::text OR token.previous_digest = %(digest)s::text
    LIMIT 1
"""


def _secret_of(request: Request) -> str | None:
    header = get_authorization_header(request).decode("latin-1")
    if not header.strip():
        return None
    keyword, _, secret = header.strip().partition(" ")
    if keyword.lower() != KEYWORD.lower():
        raise AuthenticationFailed(f"Authorization: send '{KEYWORD}' and a token.")
    secret = secret.strip()
    if not secret or " " in secret:
        raise AuthenticationFailed(f"Authorization: send '{KEYWORD}', one space and one token.")
    return secret
