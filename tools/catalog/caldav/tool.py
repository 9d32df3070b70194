"""Creates an event in a CalDAV calendar.

Guarantees: one operation creates at most one event, because its id is the event's address and
UID; what stands at that address counts as this operation's only if it carries both marks, its
UID and its fingerprint.
Does not notice an event that somebody deleted or moved before the look-up: it would be created
again. Does not invite anybody: that is mail, and mail is irreversible.
"""

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Unpack
from urllib.parse import quote

from pydantic import AwareDatetime, BaseModel

from tools.call import Call
from tools.canonical import digest
from tools.catalog.caldav.icalendar import FINGERPRINT, EventText, read_properties
from tools.catalog.caldav.provider import CALDAV
from tools.catalog.declared import Declared
from tools.catalog.secret import NoSecret, read_secret
from tools.catalog.sending import Answer, send
from tools.declarations import EffectType
from tools.errors import NotSent, Rejected, ToolError
from tools.reconciled import Reconciled
from tools.redaction import bound_text
from tools.spec import tool

MOST_WORDS: Final = 300
# "Refused, nothing stored": RFC 9110 (15.5) and RFC 4791 (5.3.2.1), as statuses of a PUT.
REFUSED: Final = frozenset({400, 403, 404, 405, 411, 413, 414, 415, 422})
SECOND_NAME: Final = b"no-uid-conflict"


class Event(BaseModel):
    """An event of this operation; `etag` is None where the server gives none."""

    url: str
    uid: str
    etag: str | None
    external_ref: str


class UnexpectedAnswer(ToolError):
    """An answer to a PUT or GET that proves nothing about the event."""

    def __init__(self, method: str, answer: Answer) -> None:
        self.status = answer.status
        super().__init__(f"{method} was answered {answer.status}: {_words(answer)}")


class NotOurs(ToolError):
    """Something stands at the operation's address that does not carry its marks."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} exists and was not written by this operation")


def create_event_tool(
    *,
    name: str = "create_event",
    account: str = "",
    url_env: str = "CALDAV_URL",
    user_env: str = "CALDAV_USER",
    password_env: str = "CALDAV_PASSWORD",  # noqa: S107 (a variable's name)
    **declared: Unpack[Declared],
) -> Callable[..., Event]:
    """Register a tool `name(summary, start, end, description, location)`.

    `url_env` names the variable with the calendar's own address, `user_env` and `password_env`
    those for HTTP Basic (an empty `user_env` sends no login). `account` tells apart several
    calendars; `declared` is what `@tool` takes.
    """
    calendar = _Calendar(url_env=url_env, user_env=user_env, password_env=password_env)

    def create_event(
        call: Call,
        summary: str,
        start: AwareDatetime,
        end: AwareDatetime,
        description: str = "",
        location: str = "",
    ) -> Event:
        """Create an event in the calendar. Give both times with their offset from UTC."""
        if end <= start:
            raise Rejected("the event would end before it begins")
        text = EventText(
            uid=call.operation_id,
            fingerprint=digest(call.arguments),
            start=start,
            end=end,
            summary=summary,
            description=description,
            location=location,
        )
        return _create(call, calendar, text)

    def find_event(call: Call) -> Reconciled[Event]:
        return _look_up(call, calendar)

    return tool(
        name=name,
        provider=replace(CALDAV, account=account),
        effect_type=EffectType.IDEMPOTENT_WRITE,
        reconcile_handler=find_event,
        **declared,
    )(create_event)


@dataclass(frozen=True, kw_only=True)
class _Calendar:
    """Names of environment variables, read at each call."""

    url_env: str
    user_env: str
    password_env: str

    def address(self, call: Call) -> str:
        """Where the operation's event is. Raises NoSecret."""
        collection = read_secret(self.url_env)
        if not collection.startswith(("https://", "http://")):
            raise NoSecret(self.url_env, problem="holds no http address")
        return f"{collection.rstrip('/')}/{quote(call.operation_id, safe='')}.ics"

    def login(self) -> dict[str, str]:
        """The header of HTTP Basic. Raises NoSecret."""
        if not self.user_env:
            return {}
        user, password = (os.environ.get(name, "") for name in (self.user_env, self.password_env))
        for name, value in ((self.user_env, user), (self.password_env, password)):
            if not value:
                raise NoSecret(name, problem="is not set")
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}


def _create(call: Call, calendar: _Calendar, text: EventText) -> Event:
    url = calendar.address(call)
    answer = send(
        call,
        method="PUT",
        url=url,
        headers={
            **calendar.login(),
            "If-None-Match": "*",
            "Content-Type": "text/calendar; charset=utf-8",
        },
        content=text.encode(),
    )
    match answer.status:
        case 201:
            return _event(call, url, answer)
        case 200 | 204:
            # What was created is answered 201 (RFC 9110, section 9.3.4): see what was done.
            return _confirm(call, calendar, answer)
        case 412:
            return _adopt(call, calendar, answer)
        case 401:
            raise NotSent("the calendar asks for another login (401)")
        case status if status in REFUSED | {409} and SECOND_NAME not in answer.body:
            # 409 to a PUT: the calendar itself does not exist (RFC 4918, section 9.7.1).
            raise Rejected(str(UnexpectedAnswer("PUT", answer)))
    raise UnexpectedAnswer("PUT", answer)


def _confirm(call: Call, calendar: _Calendar, answer: Answer) -> Event:
    found = _find(call, calendar)
    if found is None:
        raise UnexpectedAnswer("PUT", answer)
    return found


def _adopt(call: Call, calendar: _Calendar, refusal: Answer) -> Event:
    """The event that kept this one out, if an earlier send of this operation made it.

    A refusal is only this send's: the kernel keeps an operation with an earlier unknown send
    unknown, whatever is raised here.
    """
    try:
        return _confirm(call, calendar, refusal)
    except NotOurs as reason:
        raise Rejected(str(reason)) from reason


def _look_up(call: Call, calendar: _Calendar) -> Reconciled[Event]:
    try:
        found = _find(call, calendar)
    except NotOurs as error:
        return Reconciled.indeterminate(str(error))
    if found is None:
        return Reconciled.not_found()
    return Reconciled.committed(found, external_ref=found.external_ref)


def _find(call: Call, calendar: _Calendar) -> Event | None:
    """This operation's event, or None. Raises NotOurs, UnexpectedAnswer, or what httpx2 raises."""
    url = calendar.address(call)
    answer = send(call, method="GET", url=url, headers=calendar.login())
    if answer.status in (404, 410):
        return None
    if answer.status != 200:
        raise UnexpectedAnswer("GET", answer)
    marks = {"UID": call.operation_id, FINGERPRINT: digest(call.arguments)}
    found = read_properties(answer.body.decode(errors="replace"), *marks)
    # An alarm in the event may have a UID of its own.
    if any(mark not in found[name] for name, mark in marks.items()):
        raise NotOurs(url)
    return _event(call, url, answer)


def _event(call: Call, url: str, answer: Answer) -> Event:
    return Event(
        url=url,
        uid=call.operation_id,
        etag=answer.headers.get("ETag"),
        external_ref=call.operation_id,
    )


def _words(answer: Answer) -> str:
    return bound_text(answer.body[: 4 * MOST_WORDS].decode(errors="replace"), MOST_WORDS)
