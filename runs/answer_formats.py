"""The formats that a schema may ask of a text, and how to mend one that does not fit.

Guarantees: each is checked by our own rule, so that an answer is judged alike whatever else is
installed. A format that is not here says what is meant and is not checked, as JSON Schema has it.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from jsonschema import FormatChecker

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ZONE: Final = r"(Z|[+-]\d\d:\d\d)"
_DATE_TIME: Final = re.compile(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{{1,6}})?{_ZONE}", re.ASCII)
# A time of day needs no zone: models written in Python have none.
_TIME: Final = re.compile(rf"\d\d:\d\d(:\d\d(\.\d{{1,6}})?)?{_ZONE}?", re.ASCII)
_DURATION: Final = re.compile(
    r"-?P(?!$)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?!$)(\d+H)?(\d+M)?([\d.]+S)?)?)"
)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def _is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text) and date.fromisoformat(text))


def _is_date_time(text: str) -> bool:
    given = text.upper()
    return bool(_DATE_TIME.fullmatch(given) and datetime.fromisoformat(given))


def _is_time(text: str) -> bool:
    given = text.upper()
    return bool(_TIME.fullmatch(given)) and time.fromisoformat(given) is not None


def _is_email(text: str) -> bool:
    validate_email(text)
    return True


_CHECKS: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "date": (_is_date, "Write a date, as 2026-12-24."),
    "date-time": (_is_date_time, "Write a time with its zone, as 2026-12-24T18:00:00Z."),
    "duration": (lambda text: bool(_DURATION.fullmatch(text)), "Write a duration, as P2DT3H."),
    "email": (_is_email, "Write an e-mail address, as robin@example.com."),
    "ipv4": (lambda text: bool(IPv4Address(text)), "Write an IPv4 address, as 192.0.2.1."),
    "ipv6": (lambda text: bool(IPv6Address(text)), "Write an IPv6 address, as 2001:db8::1."),
    "time": (_is_time, "Write a time of day, as 18:00."),
    "uri": (lambda text: bool(_URI.fullmatch(text)), "Write an address, as https://example.com/a."),
    "uuid": (
        lambda text: bool(_UUID.fullmatch(text) and UUID(text)),
        "Write a UUID, as 01a1b2c3-0000-7000-8000-000000000001.",
    ),
}


def _checker() -> FormatChecker:
    made = FormatChecker(formats=())
    for name, (check, _) in _CHECKS.items():
        made.checks(name, raises=(ValueError, ValidationError))(_of_texts(check))
    return made


def _of_texts(check: Callable[[str], bool]) -> Callable[[object], bool]:
    """A format says nothing of what is no text."""
    return lambda value: check(value) if isinstance(value, str) else True


FORMATS: Final = _checker()


def find_fix(name: str) -> str:
    """How a text becomes one of this format."""
    return _CHECKS[name][1]
