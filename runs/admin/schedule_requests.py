"""What a person may ask of a schedule on a page that asks back.

Guarantees: each is the command that a shell would call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

from runs.access import Actor
from runs.models import Schedule
from runs.schedule_commands import delete_schedule, disable_schedule, enable_schedule, start_now

LONGEST_KEY: Final = 64


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """One kind of request. `do` takes actor, name and key, and returns what to say then."""

    name: str
    title: str
    explanation: str
    keep: str
    do: Callable[[Actor, str, str], str]
    is_offered: Callable[[Schedule], bool] = lambda row: True
    harmful: bool = False
    ends_it: bool = False


def posted_key(request: HttpRequest) -> str:
    """Names one page that was sent, however often it is sent."""
    given = request.POST.get("key", "")[:LONGEST_KEY]
    return "".join(one for one in given if one.isalnum())


def _start(actor: Actor, name: str, key: str) -> str:
    started = start_now(actor=actor, name=name, idempotency_key=f"start {name} now {key}")
    again = " already" if started.replayed else ""
    return f"Run {started.run.pk} is started{again}."


def _enable(actor: Actor, name: str, key: str) -> str:
    enable_schedule(actor=actor, name=name)
    return "Enabled. The next start is the first of its times from now on."


def _disable(actor: Actor, name: str, key: str) -> str:
    disable_schedule(actor=actor, name=name)
    return "Disabled. It starts nothing; runs that were started go on."


def _delete(actor: Actor, name: str, key: str) -> str:
    delete_schedule(actor=actor, name=name)
    return f"{name} is deleted; its runs stay."


REQUESTS: Final = (
    ScheduleRequest(
        name="start",
        title="Start now",
        explanation="A run is started besides those at its times, which stay as they are. "
        "It counts as started by you.",
        keep="Start nothing",
        do=_start,
    ),
    ScheduleRequest(
        name="enable",
        title="Enable",
        explanation="It starts runs again, from its next time on. What was missed while it was "
        "disabled is not started.",
        keep="Leave it disabled",
        do=_enable,
        is_offered=lambda row: not row.enabled,
    ),
    ScheduleRequest(
        name="disable",
        title="Disable",
        explanation="It starts nothing until it is enabled. Runs that were started go on.",
        keep="Leave it enabled",
        do=_disable,
        is_offered=lambda row: row.enabled,
        harmful=True,
    ),
    ScheduleRequest(
        name="delete",
        title="Delete",
        explanation="It is gone for good; its runs stay. To keep it for later, disable it.",
        keep="Keep it",
        do=_delete,
        harmful=True,
        ends_it=True,
    ),
)
