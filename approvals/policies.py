"""Writing policies, and the switches that stop sending: the commands.

Guarantees: whoever writes has the scope `policies:write`, and says why; a policy with a
mistake in it is refused whole and nothing is saved; a save is a new version, and of two at
once one gets a conflict that names the other; whoever lets sending go on makes the runs that
waited for it due in the same transaction.

Does not reach into running calls: a worker learns of a version at its next commit, and what
was sent before is sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction

from approvals.policy_text import (
    PolicyText,
    problems_of,
    problems_of_name,
    problems_of_reason,
    unknown_name,
)
from runs.access import POLICIES_WRITE, Actor
from runs.errors import RunsError
from runs.models import NAME
from runs.wake import make_prepared_due
from tools.errors import Problem
from tools.models import ToolPolicy
from tools.policy_store import newest_rows
from tools.redaction import bound_text
from tools.registry import all_tools
from tools.triggers import POLICY_LOCK


class InvalidPolicy(RunsError):
    """A policy has mistakes in it; `problems` has one entry for each."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class PolicyChanged(RunsError):
    """Somebody saved another version meanwhile; nothing of this one was."""

    def __init__(self, *, name: str, version: int, author: str) -> None:
        self.name, self.version, self.author = name, version, author
        super().__init__(
            f"name: {name!r} was changed meanwhile: {author} saved version {version}. "
            "Look at it, then save again."
        )


class UnknownPolicy(RunsError):
    """No policy has this name, or it is retired."""

    def __init__(self, *, name: str, retired: bool = False) -> None:
        self.name = name
        why = "is retired already" if retired else "is not the name of a policy"
        super().__init__(f"name: {name[:80]!a} {why}; list_policies shows those that count.")


class AlreadyStopped(RunsError):
    """Sending was stopped before, by somebody else or by the first of two clicks."""

    def __init__(self, row: ToolPolicy) -> None:
        self.author, self.since = row.author, row.created_at
        super().__init__(
            f"Sending is stopped for {say_target(row)} already, by {row.author} since "
            f"{_moment(row.created_at)}: {row.reason}"
        )


class NotStopped(RunsError):
    """There is nothing to resume."""

    def __init__(self, target: str) -> None:
        super().__init__(f"Sending is not stopped for {target}; nothing was changed.")


@dataclass(frozen=True)
class Resumed:
    """The row that lifted the stop, and how many runs were made due."""

    row: ToolPolicy
    woken: int


def save_policy(
    *, actor: Actor, name: str, text: PolicyText, reason: str, based_on: int | None = None
) -> ToolPolicy:
    """Save the next version of a policy; returns its row.

    `based_on` is the version that the author saw, 0 for none; without one it is the newest
    at the time of the call. Raises InvalidPolicy, PolicyChanged, NotPermitted.
    """
    actor.require(POLICIES_WRITE)
    problems = [*problems_of_name(name), *problems_of(text), *problems_of_reason(reason)]
    if problems:
        raise InvalidPolicy(problems)
    return _save(actor=actor, name=name, values=asdict(text), reason=reason, based_on=based_on)


def retire_policy(
    *, actor: Actor, name: str, reason: str, based_on: int | None = None
) -> ToolPolicy:
    """Have a policy not count any more, as its next version; returns that.

    Raises UnknownPolicy, InvalidPolicy, PolicyChanged, NotPermitted.
    """
    actor.require(POLICIES_WRITE)
    if problems := list(problems_of_reason(reason)):
        raise InvalidPolicy(problems)
    newest = find_policy(name)
    if newest is None:
        raise UnknownPolicy(name=name)
    if not newest.active:
        raise UnknownPolicy(name=name, retired=True)
    return _save(
        actor=actor,
        name=name,
        values={**asdict(PolicyText.of(newest)), "active": False},
        reason=reason,
        based_on=newest.version if based_on is None else based_on,
    )


def stop_sending(
    *, actor: Actor, reason: str, tool: str = "", provider: str = "", everything: bool = False
) -> ToolPolicy:
    """Have nothing sent by one tool, one provider, or at all, until it is resumed.

    Raises AlreadyStopped, InvalidPolicy (a name that nothing has, no reason), NotPermitted.
    """
    actor.require(POLICIES_WRITE)
    problems = [
        *_problems_of_target(tool=tool, provider=provider, everything=everything),
        *problems_of_reason(reason),
    ]
    if problems:
        raise InvalidPolicy(problems)
    name = _stop_name(tool=tool, provider=provider)
    with _one_writer():
        newest = _newest(name)
        if newest is not None and newest.active:
            raise AlreadyStopped(newest)
        values = {"outcome": "stop", "tool": tool, "provider": provider}
        return _insert(actor=actor, name=name, values=values, reason=reason, after=newest)


def resume_sending(
    *, actor: Actor, reason: str, tool: str = "", provider: str = "", everything: bool = False
) -> Resumed:
    """Lift one stop, and have the runs that may have waited for it looked at now.

    Another stop that concerns them still holds them. Raises NotStopped, InvalidPolicy,
    NotPermitted.
    """
    actor.require(POLICIES_WRITE)
    # The tool that was stopped may be gone by now, so its name is not looked for.
    problems = [
        *_problems_of_choice(tool=tool, provider=provider, everything=everything),
        *problems_of_reason(reason),
    ]
    if problems:
        raise InvalidPolicy(problems)
    name = _stop_name(tool=tool, provider=provider)
    with _one_writer():
        newest = _newest(name)
        if newest is None or not newest.active:
            raise NotStopped(_say(tool=tool, provider=provider))
        values = {"outcome": "stop", "tool": tool, "provider": provider, "active": False}
        row = _insert(actor=actor, name=name, values=values, reason=reason, after=newest)
        return Resumed(row, make_prepared_due(tool=tool, provider=provider))


# -- Reading -------------------------------------------------------------------


def current_policies(*, retired: bool = False) -> list[ToolPolicy]:
    """The newest version of every policy, by name; of `retired` ones too if asked for."""
    rows = (row for row in newest_rows() if row.outcome != ToolPolicy.Outcome.STOP)
    return [row for row in rows if row.active or retired]


def current_stops() -> list[ToolPolicy]:
    """What is stopped now, everything first, then the oldest."""
    rows = [row for row in newest_rows() if row.outcome == ToolPolicy.Outcome.STOP and row.active]
    return sorted(rows, key=lambda row: (bool(row.tool or row.provider), row.created_at))


def find_policy(name: str) -> ToolPolicy | None:
    """The newest version of a policy, retired or not; None for a stop's name too."""
    if next(problems_of_name(name), None) is not None:
        return None
    return _newest(name)


def history_of(name: str) -> list[ToolPolicy]:
    """Every version of a policy or stop, newest first."""
    return list(ToolPolicy.objects.filter(name=name).order_by("-version"))


def say_target(row: ToolPolicy) -> str:
    """What a stop stops, in words."""
    return _say(tool=row.tool, provider=row.provider)


# -- Writing -------------------------------------------------------------------


def _save(
    *, actor: Actor, name: str, values: dict[str, Any], reason: str, based_on: int | None
) -> ToolPolicy:
    if based_on is None:
        seen = _newest(name)
        based_on = seen.version if seen else 0
    with _one_writer():
        newest = _newest(name)
        if newest is not None and newest.version != based_on:
            raise PolicyChanged(name=name, version=newest.version, author=newest.author)
        if newest is None and based_on:
            raise UnknownPolicy(name=name)
        return _insert(actor=actor, name=name, values=values, reason=reason, after=newest)


@contextmanager
def _one_writer() -> Iterator[None]:
    """A transaction that no other writer of policies is in; the table's trigger asks the same."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [POLICY_LOCK])
        yield


def _insert(
    *, actor: Actor, name: str, values: dict[str, Any], reason: str, after: ToolPolicy | None
) -> ToolPolicy:
    row = ToolPolicy.objects.create(
        name=name,
        version=after.version + 1 if after else 1,
        author=bound_text(actor.name, NAME),
        reason=reason.strip(),
        **{
            key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
        },
    )
    row.refresh_from_db(fields=["created_at"])
    return row


def _newest(name: str) -> ToolPolicy | None:
    return ToolPolicy.objects.filter(name=name).order_by("-version").first()


# -- Stops ---------------------------------------------------------------------


def _stop_name(*, tool: str, provider: str) -> str:
    if tool:
        return f"stop:tool:{tool}"
    return f"stop:provider:{provider}" if provider else "stop:everything"


def _problems_of_choice(*, tool: str, provider: str, everything: bool) -> Iterator[Problem]:
    if [bool(tool), bool(provider), everything].count(True) != 1:
        given = ", ".join(filter(None, (tool, provider, "everything" if everything else "")))
        yield Problem(
            "target", ascii(given[:80]) if given else "nothing",
            "Name exactly one: a tool, a provider, or everything.",
        )  # fmt: skip
    for field, name in (("tool", tool), ("provider", provider)):
        if len(name) > NAME or not name.isprintable():
            yield Problem(field, ascii(name[:80]), f"Use at most {NAME} printable characters.")


def _problems_of_target(*, tool: str, provider: str, everything: bool) -> Iterator[Problem]:
    problems = list(_problems_of_choice(tool=tool, provider=provider, everything=everything))
    if problems:
        yield from problems
        return
    specs = all_tools()
    tools = {spec.name for spec in specs}
    providers = {spec.provider_name for spec in specs} - {""}
    if tool and tool not in tools:
        yield unknown_name("tool", tool, tools)
    if provider and provider not in providers:
        yield unknown_name("provider", provider, providers)


def _say(*, tool: str, provider: str) -> str:
    return tool or (f"provider {provider}" if provider else "everything")


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
