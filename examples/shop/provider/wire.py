"""What goes in and what comes out, apart from any server.

Guarantees that a body is a plain JSON object (no NaN, no half-pairs of surrogates) before
anything looks at it. Does not know which fields an endpoint wants.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from examples.shop.provider.errors import InvalidField, RequestError, UnreadableBody


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request as it arrived; `query` holds the last value of each name."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    key: str | None = None
    fence_token: str | None = None
    account: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A complete answer; `body` is sent as it is, readable or not."""

    status: int
    body: bytes
    replayed: bool = False
    has_more: bool = False
    ends_connection: bool = False

    @classmethod
    def of(cls, status: int, value: object) -> "Answer":
        return cls(status=status, body=json.dumps(value).encode())

    @classmethod
    def to_error(cls, error: RequestError) -> "Answer":
        return cls(
            status=error.status,
            body=json.dumps({"error": error.code, "message": str(error)}).encode(),
            ends_connection=error.ends_connection,
        )


@dataclass(frozen=True, kw_only=True)
class Hangup:
    """No answer: the connection is closed, or torn down so that the caller sees a reset."""

    reset: bool = False


Reply = Answer | Hangup


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; an empty body is an empty object. Raises `UnreadableBody`."""
    if not body:
        return {}
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(str(error)[:120] or type(error).__name__) from error
    if not isinstance(value, dict):
        raise UnreadableBody(f"it is a {type(value).__name__}")
    return value


def refuse_unknown(given: Mapping[str, object], *, known: Iterable[str]) -> None:
    """Raises `InvalidField` for the first name that is not among `known`."""
    names = sorted(known)
    for name, value in given.items():
        if name not in names:
            raise InvalidField(name, value, f"unknown here; known are {', '.join(names)}")


def take_number(
    given: Mapping[str, object], name: str, *, default: float, least: float, most: float
) -> float:
    """A JSON number between two limits (query values may be its text)."""
    value = given.get(name, default)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise InvalidField(name, value, "give a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(name, value, "give a number")
    if not least <= value <= most:
        raise InvalidField(name, value, f"give a number from {least:g} to {most:g}")
    return float(value)


def take_count(given: Mapping[str, object], name: str, *, default: int, most: int) -> int:
    """A whole number from 1 to `most`."""
    number = take_number(given, name, default=default, least=1, most=most)
    if not number.is_integer():
        raise InvalidField(name, given.get(name), "give a whole number")
    return int(number)


def take_moment(given: Mapping[str, object], name: str) -> datetime | None:
    """A moment with its offset, if it is given."""
    value = given.get(name)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise InvalidField(name, value, 'give a moment like "2031-05-01T00:00:00+00:00"')
    return moment


def take_flag(given: Mapping[str, object], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise InvalidField(name, value, "give true or false")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
