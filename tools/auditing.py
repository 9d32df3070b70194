"""Asking a provider for every effect that it has, to compare it with what is recorded here.

Guarantees: `list_effects` is back by its deadline with all that the provider listed, each with a
reference that can be stored, or raises.

Does not believe what is listed, and does not compare it: `runs.auditing` does. Does not know
whether the list was complete.
"""

import asyncio
import inspect
from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tools.errors import NotListed, ToolError, TooManyEffects, UnreadableResult
from tools.execution import run_within
from tools.outcome import describe
from tools.redaction import bound_text
from tools.results import LONGEST_REFERENCE, read_reference
from tools.spec import ToolSpec

# What one asking may list, and how long it may take: beyond it the span is too long.
MOST_EFFECTS: Final = 10_000
LIST_SECONDS: Final = 120.0


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an `audit_handler` is asked for: the effects of `tool` from `since` up to `until`."""

    tool: str
    provider: str
    account: str
    since: datetime
    until: datetime


@dataclass(frozen=True)
class Effect:
    """One effect that the provider has, under the reference that the tool itself would record.

    `operation_id` is what the tool had sent along (metadata, an idempotency key), None where the
    effect bears none. `at` is the provider's time, with its zone.
    """

    operation_id: str | None
    external_ref: str
    at: datetime | None = None


def list_effects(
    spec: ToolSpec, *, since: datetime, until: datetime, seconds: float = LIST_SECONDS
) -> list[Effect]:
    """What the tool's `audit_handler` lists. Raises NotListed, or TooManyEffects."""
    audit = Audit(
        tool=spec.name,
        provider=spec.provider_name,
        account=spec.account,
        since=since,
        until=until,
    )
    try:
        return run_within(lambda: _ask(spec, audit), seconds=seconds)
    except NotListed:
        raise
    except ToolError as error:
        raise NotListed(tool=spec.name, why=str(error)) from error
    except Exception as error:
        # Somebody else's code: whatever comes out of it says nothing about any effect.
        raise NotListed(tool=spec.name, why=describe(error)) from error


def _ask(spec: ToolSpec, audit: Audit) -> list[Effect]:
    assert spec.audit_handler is not None, "only a tool with an audit_handler is audited"
    given = spec.audit_handler(audit)
    if inspect.isawaitable(given) or isinstance(given, AsyncIterable):
        return asyncio.run(_take_later(spec, given))
    return _take(spec, given)


def _take(spec: ToolSpec, given: Iterable[Any]) -> list[Effect]:
    effects: list[Effect] = []
    for one in given:
        _add(spec, effects, one)
    return effects


async def _take_later(spec: ToolSpec, given: Any) -> list[Effect]:
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterable):
        return _take(spec, given)
    effects: list[Effect] = []
    async for one in given:
        _add(spec, effects, one)
    return effects


def _add(spec: ToolSpec, effects: list[Effect], one: Any) -> None:
    if len(effects) == MOST_EFFECTS:
        raise TooManyEffects(tool=spec.name, most=MOST_EFFECTS)
    try:
        effects.append(_read(one))
    except UnreadableResult as error:
        raise NotListed(tool=spec.name, why=str(error)) from error


def _read(one: Any) -> Effect:
    """The effect as it can be stored. Raises UnreadableResult."""
    if not isinstance(one, Effect):
        raise UnreadableResult(f"it listed a {type(one).__qualname__}, not an Effect")
    reference = read_reference(one.external_ref)
    if reference is None:
        raise UnreadableResult("it listed an effect without external_ref")
    at: Any = one.at
    if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
        raise UnreadableResult(f"it listed {reference} at a time without a zone")
    # Whatever it is that the provider keeps there: only an id of ours means something.
    named = None if one.operation_id is None else str(one.operation_id)
    bounded = bound_text(named, LONGEST_REFERENCE) if named else None
    return Effect(operation_id=bounded, external_ref=reference, at=at)
