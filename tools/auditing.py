"""Asking a provider for every effect that it has, to compare it with what is recorded here.

Guarantees: `list_effects` is back by its deadline with all that the provider listed, each with a
reference that can be stored, or raises.

Does not believe what is listed, and does not compare it: `runs.auditing` does. Does not know
whether the list was complete.
"""

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass, field
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
    effect bears none. `at` is when it was made by the provider's clock, with its zone: by it each
    effect belongs to one audit.
    """

    operation_id: str | None
    external_ref: str
    at: datetime


def list_effects(
    spec: ToolSpec,
    *,
    since: datetime,
    until: datetime,
    keep: Callable[[Effect], bool],
    seconds: float = LIST_SECONDS,
) -> list[Effect]:
    """What the tool's `audit_handler` lists, as far as it is to be kept.

    Raises NotListed, or TooManyEffects if more than `MOST_EFFECTS` are to be kept.
    """
    audit = Audit(
        tool=spec.name,
        provider=spec.provider_name,
        account=spec.account,
        since=since,
        until=until,
    )
    try:
        return run_within(lambda: _ask(spec, audit, keep), seconds=seconds)
    except NotListed:
        raise
    except ToolError as error:
        raise NotListed(tool=spec.name, why=str(error)) from error
    except Exception as error:
        # Somebody else's code: whatever comes out of it says nothing about any effect.
        raise NotListed(tool=spec.name, why=describe(error)) from error


def _ask(spec: ToolSpec, audit: Audit, keep: Callable[[Effect], bool]) -> list[Effect]:
    assert spec.audit_handler is not None, "only a tool with an audit_handler is audited"
    given = spec.audit_handler(audit)
    kept = _Kept(spec=spec, keep=keep)
    if inspect.isawaitable(given) or isinstance(given, AsyncIterable):
        asyncio.run(_take_later(kept, given))
    else:
        _take(kept, given)
    return kept.effects


@dataclass
class _Kept:
    spec: ToolSpec
    keep: Callable[[Effect], bool]
    effects: list[Effect] = field(default_factory=list)

    def add(self, one: Any) -> None:
        try:
            effect = _read(one)
        except UnreadableResult as error:
            raise NotListed(tool=self.spec.name, why=str(error)) from error
        if not self.keep(effect):
            return
        if len(self.effects) == MOST_EFFECTS:
            raise TooManyEffects(tool=self.spec.name, most=MOST_EFFECTS)
        self.effects.append(effect)


def _take(kept: _Kept, given: Iterable[Any]) -> None:
    for one in given:
        kept.add(one)


async def _take_later(kept: _Kept, given: Any) -> None:
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterable):
        _take(kept, given)
        return
    async for one in given:
        kept.add(one)


def _read(one: Any) -> Effect:
    """The effect as it can be stored. Raises UnreadableResult."""
    if not isinstance(one, Effect):
        raise UnreadableResult(f"it listed a {type(one).__qualname__}, not an Effect")
    reference = read_reference(one.external_ref)
    if reference is None:
        raise UnreadableResult("it listed an effect without external_ref")
    at: Any = one.at
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise UnreadableResult(f"it listed {reference} at no time, or at one without a zone")
    # Whatever it is that the provider keeps there: only an id of ours means something.
    named = None if one.operation_id is None else str(one.operation_id)
    bounded = bound_text(named, LONGEST_REFERENCE) if named else None
    return Effect(operation_id=bounded, external_ref=reference, at=at)
