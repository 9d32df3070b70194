"""System checks of the environment: an unknown name or an unsafe value is said at start.

Guarantees: a misspelled `AGENTOPS_…` variable is never silently without effect, and a
value that would make leases, sweeps or ports unsafe stops every command, with the fix.

Does not ask the servers anything; `doctor` does.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from math import isfinite
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.checks.registry import registry
from django.core.management.base import SystemCheckError

from agentops import logs
from agentops.notifications import checks as notifications
from agentops.telemetry import checks as telemetry
from runs.checks_llm import find_name_problem

PREFIX: Final = "AGENTOPS_"


@dataclass(frozen=True)
class Bounds:
    """What a number may be, and why not less or more."""

    least: float
    most: float
    why: str
    whole: bool = False


_NUMBERS: Final = {
    "AGENTOPS_LEASE_SECONDS": Bounds(
        1,
        3600,
        "shorter is lost to any pause, longer keeps a run of a dead worker waiting",
    ),
    "AGENTOPS_SWEEP_SECONDS": Bounds(
        0.1, 60, "more often loads the database for nothing, less often is when runs go on late"
    ),
    "AGENTOPS_WORKER_CONCURRENCY": Bounds(
        1, 256, "each thread may hold a database connection", whole=True
    ),
    "AGENTOPS_GATEWAY_CONCURRENCY": Bounds(
        0, 256, "each call may hold a database connection; 0 leaves them to the workers", whole=True
    ),
    "AGENTOPS_RATE_PER_MINUTE": Bounds(
        0,
        1_000_000,
        "requests of one token that each web process lets through; 0 is no limit",
        whole=True,
    ),
    "PORT": Bounds(1, 65_535, "a TCP port", whole=True),
    "FLOWER_PORT": Bounds(1, 65_535, "a TCP port", whole=True),
    notifications.PORT: Bounds(1, 65_535, "a TCP port", whole=True),
}
_TEXTS: Final = (
    "AGENTOPS_ALLOWED_HOSTS",
    "AGENTOPS_APPS",
    "AGENTOPS_DATA_DIR",
    "AGENTOPS_DEBUG",
    "AGENTOPS_LLM",
    *logs.TEXTS,
    "AGENTOPS_MCP_SERVERS",
    "AGENTOPS_SECRET_KEY",
    *notifications.TEXTS,
)
# Part of the published settings, but nothing reads them in this version.
_NOT_SERVED: Final = {
    "AGENTOPS_PAYLOAD_KEYS": "encryption at rest",
}
NAMES: Final = sorted({name for name in _NUMBERS if name.startswith(PREFIX)} | {*_TEXTS})
_TRUTHS: Final = ("1", "true", "yes", "0", "false", "no")
_OF_PAGES: Final = {Tags.admin, Tags.templates, Tags.urls}
# Below this a busy machine alone can pause a process for too long a part of the lease.
COMFORTABLE_LEASE: Final = 5.0


@register
def check_environment(**_: Any) -> list[CheckMessage]:
    """Judge the variables that this process was started with."""
    return judge(os.environ)


@register(Tags.security, deploy=True)
def check_deployment(**_: Any) -> list[CheckMessage]:
    """What `check --deploy` asks for besides."""
    return judge_deployment(os.environ)


def require_sound(*, pages: bool) -> None:
    """Raise SystemCheckError for what `manage.py check` calls an error.

    Management commands do this by themselves; web and worker processes call it here. Without
    `pages`, what only their visitors could meet is left out, and not loaded for it.
    """
    checks = [one for one in registry.get_checks() if pages or not _OF_PAGES & {*one.tags}]
    found = [message for check in checks for message in check(app_configs=None, databases=None)]
    errors = [message for message in found if message.is_serious() and not message.is_silenced()]
    if errors:
        raise SystemCheckError("\n".join(str(error) for error in errors))


def judge(environment: Mapping[str, str]) -> list[CheckMessage]:
    """Everything that is wrong with the given variables."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    return [
        *_unknown_names(given),
        *_unserved_names(given),
        *_numbers(given),
        *_together(given),
        *_debugging(given),
        *_llm(given),
        *notifications.judge(given),
        *logs.judge(given),
        *telemetry.judge(given),
        *_missing_apps(),
    ]


def judge_deployment(environment: Mapping[str, str]) -> list[CheckMessage]:
    """What is missing before strangers may reach it."""
    if environment.get("AGENTOPS_SECRET_KEY", "").strip():
        return []
    return [
        Error(
            "AGENTOPS_SECRET_KEY is not set, so every process makes up its own: "
            "people are logged out at each restart, and by every second web process.",
            hint="Set it to 50 or more random characters and keep it secret.",
            id="agentops.E006",
        )
    ]


def _missing_apps() -> list[CheckMessage]:
    return [
        Error(
            f"AGENTOPS_APPS: no app is importable as {app!r}.",
            hint="Correct the name, or start from the directory that holds it (or PYTHONPATH).",
            id="agentops.E007",
        )
        for app in settings.AGENTOPS_APPS
        if app not in settings.INSTALLED_APPS
    ]


def _unknown_names(given: Mapping[str, str]) -> list[CheckMessage]:
    return [
        Error(
            f"{name} is no setting, so it would have no effect.",
            hint=_nearest(name),
            id="agentops.E001",
        )
        for name in sorted(given)
        if name.upper().startswith(PREFIX) and name not in NAMES and name not in _NOT_SERVED
    ]


def _unserved_names(given: Mapping[str, str]) -> list[CheckMessage]:
    return [
        Error(
            f"{name} is set, but this version does not serve {what} yet: it would have no effect.",
            hint=f"Unset {name}.",
            id="agentops.E002",
        )
        for name, what in _NOT_SERVED.items()
        if name in given
    ]


def _nearest(name: str) -> str:
    # Without the prefix, in which all of them are alike.
    own = {one.removeprefix(PREFIX): one for one in NAMES}
    near = get_close_matches(name.upper().removeprefix(PREFIX), own, n=1)
    hint = f"Did you mean {own[near[0]]}? " if near else "Unset it. "
    return f"{hint}There are: {', '.join(NAMES)}."


def _numbers(given: Mapping[str, str]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name, bounds in _NUMBERS.items():
        if name not in given:
            continue
        number = _number(given[name])
        kind = "a whole number" if bounds.whole else "a number"
        if number is not None and bounds.whole and not number.is_integer():
            number = None
        if number is None or not bounds.least <= number <= bounds.most:
            found.append(
                Error(
                    f"{name} is {given[name][:80]!r}, which is not possible.",
                    hint=f"Set it to {kind} from {bounds.least:g} to {bounds.most:g}: "
                    f"{bounds.why}.",
                    id="agentops.E003",
                )
            )
    return found


def _together(given: Mapping[str, str]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    lease = _number(given.get("AGENTOPS_LEASE_SECONDS", "30"))
    if lease is not None and 1 <= lease < COMFORTABLE_LEASE:
        found.append(
            Warning(
                f"AGENTOPS_LEASE_SECONDS is {lease:g}: a pause of a busy worker may outlast it, "
                "and its calls are then reconciled instead of finished.",
                hint=f"Set it to {COMFORTABLE_LEASE:g} or more outside of tests.",
                id="agentops.W001",
            )
        )
    ports = given.get("PORT", "8000"), given.get("FLOWER_PORT", "5555")
    if _number(ports[0]) == _number(ports[1]) and _number(ports[0]) is not None:
        found.append(
            Error(
                f"PORT and FLOWER_PORT are both {ports[0]}.",
                hint="Give each a port of its own.",
                id="agentops.E004",
            )
        )
    return found


def _debugging(given: Mapping[str, str]) -> list[CheckMessage]:
    debug = given.get("AGENTOPS_DEBUG", "0")
    if debug.lower() not in _TRUTHS:
        return [
            Error(
                f"AGENTOPS_DEBUG is {debug[:80]!r}, which is neither yes nor no.",
                hint=f"Set it to one of: {', '.join(_TRUTHS)}.",
                id="agentops.E003",
            )
        ]
    hosts = [name.strip() for name in given.get("AGENTOPS_ALLOWED_HOSTS", "").split(",")]
    public = [name for name in hosts if name and not _is_local(name)]
    if debug.lower() in _TRUTHS[:3] and public:
        return [
            Error(
                f"AGENTOPS_DEBUG is on while AGENTOPS_ALLOWED_HOSTS has {', '.join(public)[:200]}: "
                "error pages would show settings and data to strangers.",
                hint="Unset AGENTOPS_DEBUG, or allow local names only.",
                id="agentops.E005",
            )
        ]
    return []


def _llm(given: Mapping[str, str]) -> list[CheckMessage]:
    problem = find_name_problem(given["AGENTOPS_LLM"]) if "AGENTOPS_LLM" in given else ""
    return [Error(f"AGENTOPS_LLM: {problem}", id="agentops.E008")] if problem else []


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _is_local(host: str) -> bool:
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
