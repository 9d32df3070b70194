"""Who asked for which write, by which door, and how it was answered.

Guarantees: there is no write of the API or the admin without its entry: that is written
first, and whatever commits after it takes it to the disk along. A call of an agent that runs
elsewhere has its entry by the call's own commit, through a trigger. What was refused to
somebody known has an entry too. An entry holds no body, no key and no secret.

Does not note what was only read, a call that was answered again from what is recorded, or who
could not say who they are. Does not say what came of a call; its operation does. An answer that
could not be filled in, because the process or the database ended, stays empty.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch

from agentops.models import USERNAME, AuditEntry
from runs.access import Actor
from tools.redaction import bound_text

log = structlog.get_logger(__name__)

READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# What the parts of an address are called in an entry.
NAMES_OF_IDS: Final = {"name": "schedule", "object_id": "row"}
LONGEST: Final = 200
SECRET: Final = re.compile(r"(aot_[0-9a-f]{8})_[\w-]+")
LONGEST_REASON: Final = 100
LONGEST_ADDRESS: Final = 64
# Whatever is committed later and waited for is later in the log that is flushed, so this entry is
# on the disk before it; and that is all it is needed for.
INSERT: Final = """
    WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', COALESCE(
        %s, current_setting('synchronous_commit')), true))
    INSERT INTO agentops_auditentry (actor, token, door, action, about, status, reason, address)
    SELECT %s, %s, %s, %s, %s, %s, %s, %s FROM quick RETURNING id
"""
ANSWER: Final = """
    WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', COALESCE(
        %s, current_setting('synchronous_commit')), true))
    UPDATE agentops_auditentry SET status = %s, reason = %s,
        about = CASE WHEN about = '' THEN %s ELSE about END
    FROM quick WHERE id = %s AND status IS NULL
"""


def note(
    actor: Actor,
    *,
    action: str,
    about: str = "",
    status: int | None = None,
    reason: str = "",
    door: AuditEntry.Door | None = None,
) -> int:
    """Write an entry and return its id. `action` is a method and route, a tool or a command;
    `about` what it was asked of; `status` how it was answered, left out before it is.

    Inside a transaction it is part of that; outside, a commit that waits for no disk.
    """
    values: list[str | int | None] = [
        _text(actor.name, USERNAME),
        actor.token,
        door or actor.door or AuditEntry.Door.COMMAND,
        _text(action),
        _text(about),
        status,
        _text(reason, LONGEST_REASON),
        _text(actor.address, LONGEST_ADDRESS),
    ]
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [_waiting(), *values])
        (made,) = cursor.fetchone() or (0,)
    return int(made)


def answer(entry: int, *, status: int, reason: str = "", about: str = "") -> None:
    """Fill in how it was answered. A database that cannot take it leaves the answer as it is."""
    said: list[str | int | None] = [status, _text(reason, LONGEST_REASON), _text(about), entry]
    try:
        with connection.cursor() as cursor:
            cursor.execute(ANSWER, [_waiting(), *said])
    except DatabaseError:
        log.warning("audit_answer_not_kept", entry=entry, status=status, exc_info=True)


def begin(request: HttpRequest, actor: Actor) -> None:
    """Write the entry of a request that is about to be carried out; its answer follows."""
    if request.method in READING or _entry_of(request) is not None or _has_its_own(request):
        return
    entry = note(actor, action=_action(request), about=_about(request))
    request.audit_entry = entry  # type: ignore[attr-defined]


class AuditMiddleware:
    """Fills in the answers of requests, and notes those that were refused.

    The API's entries begin where its scopes are checked (`access`); the admin's begin here. To
    stand last: what stands behind it would write before there is an entry.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if _may_have_written(request, response):
            self._answer(request, response)
        return response

    def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> None:
        if request.method not in READING and _is_admins(request) and (who := _person(request)):
            begin(request, who)

    def _answer(self, request: HttpRequest, response: HttpResponse) -> None:
        said = getattr(response, "data", None)
        said = said if isinstance(said, Mapping) else {}
        status, reason = response.status_code, str(said.get("type", "")).rpartition(":")[2]
        entry = _entry_of(request)
        if entry is not None:
            made = f"run {said['id']}" if "id" in said and status == 201 else ""
            return answer(entry, status=status, reason=reason, about=made)
        actor = getattr(request, "auth", None)
        if isinstance(actor, Actor) and status >= 400:
            _note_refused(request, actor, status=status, reason=reason)
        elif _is_admins(request) and (who := _person(request)):
            # Refused before there was a view, or somebody who has just said who they are.
            _note_refused(request, who, status=status, reason=reason)


def address_of(meta: Mapping[str, Any]) -> str:
    """Where a request comes from, as the server sees it or a trusted proxy says."""
    return _text(str(meta.get("REMOTE_ADDR") or ""), LONGEST_ADDRESS)


def _note_refused(request: HttpRequest, actor: Actor, *, status: int, reason: str) -> None:
    try:
        note(actor, action=_action(request), about=_about(request), status=status, reason=reason)
    except DatabaseError:
        # Nothing was written, and the caller is told so either way.
        log.warning("audit_refusal_not_kept", status=status, exc_info=True)


def _may_have_written(request: HttpRequest, response: HttpResponse) -> bool:
    if request.method in READING:
        return False
    return response.status_code >= 400 or _entry_of(request) is not None or _is_admins(request)


def _entry_of(request: HttpRequest) -> int | None:
    return getattr(request, "audit_entry", None)


def _has_its_own(request: HttpRequest) -> bool:
    """Whether the write itself brings its entry: a call does, by the trigger."""
    match = request.resolver_match
    return match is not None and match.url_name == "operations"


def _is_admins(request: HttpRequest) -> bool:
    return request.resolver_match is not None and request.resolver_match.app_name == "admin"


def _person(request: HttpRequest) -> Actor | None:
    user = request.user
    if not isinstance(user, User):
        return None
    return Actor(
        name=user.get_username(),
        scopes=frozenset(),
        user_id=user.pk,
        door=AuditEntry.Door.ADMIN,
        address=address_of(request.META),
    )


def _action(request: HttpRequest) -> str:
    match = request.resolver_match
    route = re.sub(r"<\w+:", "<", match.route) if match is not None else request.path.lstrip("/")
    action = f"{request.method} /{route}"
    chosen = request.POST.get("action") if _is_admins(request) else None
    return f"{action} {chosen}" if chosen else action


def _about(request: HttpRequest) -> str:
    match: ResolverMatch | None = request.resolver_match
    named = [
        f"{NAMES_OF_IDS.get(name, name.removesuffix('_id'))} {value}"
        for name, value in (match.kwargs if match is not None else {}).items()
        if value is not None
    ]
    rows = request.POST.getlist("_selected_action") if _is_admins(request) else []
    return ", ".join([*named, *(f"row {row}" for row in rows)])


def _text(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, bounded, and of a token no more than may be shown."""
    short = bound_text(SECRET.sub(r"\1…", text), longest)
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in short)


def _waiting() -> str | None:
    """What `synchronous_commit` is to be: a transaction that this is part of keeps its own."""
    return None if connection.in_atomic_block else "off"
