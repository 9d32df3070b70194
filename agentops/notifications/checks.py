"""System checks of where notifications go and how they leave.

Guarantees: a receiver that would be told in clear, a secret that anybody could guess, and a
login that would travel in clear are errors at start, with the fix; so is a setting that would
have no effect. No message shows a secret, nor an address beyond its host.
"""

import base64
import binascii
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ValidationError
from django.core.validators import validate_email

URLS: Final = "AGENTOPS_WEBHOOK_URLS"
SECRET: Final = "AGENTOPS_WEBHOOK_SECRET"  # noqa: S105  a name
BASE_URL: Final = "AGENTOPS_BASE_URL"
HOST: Final = "AGENTOPS_EMAIL_HOST"
PORT: Final = "AGENTOPS_EMAIL_PORT"
USER: Final = "AGENTOPS_EMAIL_USER"
PASSWORD: Final = "AGENTOPS_EMAIL_PASSWORD"  # noqa: S105  a name
FROM: Final = "AGENTOPS_EMAIL_FROM"
TLS: Final = "AGENTOPS_EMAIL_TLS"
TEXTS: Final = (BASE_URL, URLS, SECRET, HOST, USER, PASSWORD, FROM, TLS)

SECURITIES: Final = ("starttls", "ssl", "off")
# Each receiver is a lane of its own, and each lane may take a thread and a connection.
MOST_URLS: Final = 8
LONGEST_URL: Final = 500
SECRET_BYTES: Final = range(24, 65)
HOW_TO_MAKE_ONE: Final = (
    'python -c "import base64, secrets; '
    "print('whsec_' + base64.b64encode(secrets.token_bytes(32)).decode())\""
)


def judge(given: Mapping[str, str]) -> list[CheckMessage]:
    """What is wrong with these variables; the empty ones are left out."""
    return [*_base_url(given), *_webhooks(given), *_email(given)]


def problem_of_receiver(url: str) -> str:
    """What is wrong with the address of a webhook; "" if nothing is."""
    return _problem_of(url, plain_http=False)


def _base_url(given: Mapping[str, str]) -> list[CheckMessage]:
    if BASE_URL not in given or not (problem := _problem_of(given[BASE_URL], plain_http=True)):
        return []
    hint = "Set it to the address people reach the admin at, like https://agents.example.com."
    return [Error(f"{BASE_URL} {problem}.", hint=hint, id="agentops.E020")]


def _webhooks(given: Mapping[str, str]) -> list[CheckMessage]:
    urls = list(dict.fromkeys(one.strip() for one in given.get(URLS, "").split(",") if one.strip()))
    found: list[CheckMessage] = [
        Error(
            f"{URLS}: the address number {number} ({_host(url)}) {problem}.",
            hint="Give addresses like https://host/path, or http://127.0.0.1:PORT/path.",
            id="agentops.E021",
        )
        for number, url in enumerate(urls, start=1)
        if (problem := _problem_of(url, plain_http=False))
    ]
    if len(urls) > MOST_URLS:
        found.append(
            Error(
                f"{URLS} has {len(urls)} addresses; there may be {MOST_URLS}.",
                hint="Send to one receiver that passes on what it gets.",
                id="agentops.E021",
            )
        )
    if problem := _problem_of_secret(given.get(SECRET, ""), needed=bool(urls)):
        found.append(
            Error(f"{SECRET} {problem}.", hint=f"Make one: {HOW_TO_MAKE_ONE}", id="agentops.E022")
        )
    return found


def _email(given: Mapping[str, str]) -> list[CheckMessage]:
    problems = list(_email_problems(given))
    return [Error(what, hint=fix, id="agentops.E023") for what, fix in problems]


def _email_problems(given: Mapping[str, str]) -> list[tuple[str, str]]:
    if HOST not in given:
        idle = [name for name in (PORT, USER, PASSWORD, FROM, TLS) if name in given]
        fix = f"Set {HOST}, or unset {', '.join(idle)}."
        return [(f"{', '.join(idle)}: without {HOST} no e-mail is sent.", fix)] if idle else []
    found = []
    try:
        validate_email(given.get(FROM, ""))
    except ValidationError:
        fix = "Set it to the address that e-mails come from, like agents@example.com."
        found.append((f"{FROM} is missing, or is no e-mail address.", fix))
    security = given.get(TLS, SECURITIES[0]).lower()
    if security not in SECURITIES:
        fix = f"Set it to one of: {', '.join(SECURITIES)}."
        found.append((f"{TLS} is {security[:80]!r}, which is not known.", fix))
    if (USER in given) != (PASSWORD in given):
        found.append((f"Of {USER} and {PASSWORD} one is missing.", "Set both, or neither."))
    if security == "off" and USER in given and not _is_loopback(given[HOST]):
        what = f"{TLS} is off, so the login would travel to {given[HOST][:80]} in clear."
        found.append((what, f"Set {TLS} to starttls or ssl, or unset {USER} and {PASSWORD}."))
    return found


def _problem_of(url: str, *, plain_http: bool) -> str:
    """What is wrong with an address, "" if nothing is."""
    place = _split(url)
    if place is None or place.scheme not in ("http", "https"):
        return "is no web address"
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        return f"is longer than {LONGEST_URL} characters, or has some that belong in none"
    if "@" in place.netloc or place.fragment:
        return "holds a login or a fragment"
    if plain_http:
        return "holds a query" if place.query else ""
    if place.scheme == "http" and not _is_loopback(place.hostname or ""):
        return "is not encrypted: without https anybody on the way could read it"
    return ""


def _problem_of_secret(secret: str, *, needed: bool) -> str:
    if not secret:
        return f"is missing: what goes to {URLS} is signed with it" if needed else ""
    prefix, _, encoded = secret.partition("_")
    try:
        size = len(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if prefix == "whsec" and size in SECRET_BYTES:
        return ""
    return (
        f"is not whsec_ and the base64 of {SECRET_BYTES.start} to {SECRET_BYTES.stop - 1} "
        "random bytes"
    )


def _split(url: str) -> SplitResult | None:
    try:
        place = urlsplit(url)
        usable = bool(place.hostname) and place.port != 0
    except ValueError:
        return None
    return place if usable else None


def _host(url: str) -> str:
    place = _split(url)
    return (place.hostname or "")[:80] if place else "no host"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
