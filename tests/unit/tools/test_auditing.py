"""What a provider lists is read as it comes: bounded, storable, in time, or not at all."""

import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tools import Audit, Call, Effect, EffectType, Provider, tool
from tools.auditing import MOST_EFFECTS, list_effects
from tools.checks import check_tools
from tools.errors import NotListed, TooManyEffects
from tools.spec import ToolSpec

SINCE, UNTIL = datetime(2031, 5, 1, tzinfo=UTC), datetime(2031, 5, 2, tzinfo=UTC)
BANK = Provider(name="bank", account="acct_1", idempotency_support="key", lookup="by_key")
ONE = Effect("op_1", "re_1", at=SINCE)


def declare(handler: Any, **declared: Any) -> ToolSpec:
    given: dict[str, Any] = {"effect_type": EffectType.NON_IDEMPOTENT_WRITE, "provider": BANK}

    @tool(**{**given, **declared}, audit_handler=handler)
    def pay(call: Call) -> None:
        """Pay."""

    spec: ToolSpec = pay.spec  # type: ignore[attr-defined]
    return spec


def listed(handler: Any, *, seconds: float = 10.0) -> list[Effect]:
    spec = declare(handler)
    return list_effects(spec, since=SINCE, until=UNTIL, keep=everything, seconds=seconds)


def everything(effect: Effect) -> bool:
    return True


def as_generator(audit: Audit) -> Iterator[Effect]:
    yield ONE


async def as_async_generator(audit: Audit) -> AsyncIterator[Effect]:
    yield ONE


async def as_coroutine(audit: Audit) -> list[Effect]:
    return [ONE]


@pytest.mark.parametrize(
    "handler", [as_generator, as_async_generator, as_coroutine, lambda audit: [ONE]]
)
def test_a_handler_may_be_written_in_any_way_that_lists(handler: Any) -> None:
    assert listed(handler) == [ONE]


def test_a_handler_is_told_the_tool_its_account_and_the_span() -> None:
    told: list[Audit] = []

    def note(audit: Audit) -> list[Effect]:
        told.append(audit)
        return []

    assert listed(note) == []
    assert told == [Audit(tool="pay", provider="bank", account="acct_1", since=SINCE, until=UNTIL)]


def raises(audit: Audit) -> Iterator[Effect]:
    yield ONE
    raise ConnectionError("gone \0 away")


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (raises, "gone"),
        (lambda audit: None, "not iterable"),
        (lambda audit: [{"external_ref": "re_1"}], "dict, not an Effect"),
        (lambda audit: [Effect("op_1", "", at=SINCE)], "without external_ref"),
        (lambda audit: [Effect("op_1", "re_\0", at=SINCE)], "external_ref"),
        (lambda audit: [Effect("op_1", "r" * 256, at=SINCE)], "255"),
        (lambda audit: [Effect("op_1", "re_1", at=datetime(2031, 5, 1))], "without a zone"),
        # It would be of every audit, and counted by each.
        (lambda audit: [Effect("op_1", "re_1", at=cast(Any, None))], "at no time"),
    ],
)
def test_a_list_that_cannot_be_read_whole_is_no_list(handler: Any, why: str) -> None:
    with pytest.raises(NotListed, match="effects of pay could not be listed") as caught:
        listed(handler)
    assert why in str(caught.value)


def test_an_operation_id_is_whatever_the_provider_keeps_there() -> None:
    ids = (None, "op_\0" + "x" * 999, "")
    strange = [Effect(one, f"re_{number}", at=SINCE) for number, one in enumerate(ids)]
    first, second, third = listed(lambda audit: strange)
    assert (first.operation_id, third.operation_id) == (None, None)
    assert second.operation_id is not None
    assert len(second.operation_id) == 255
    assert "\0" not in second.operation_id


def test_more_than_one_audit_compares_is_said_and_not_cut() -> None:
    def many(audit: Audit) -> Iterator[Effect]:
        for number in range(most[0]):
            yield Effect(None, f"re_{number}", at=SINCE)

    most = [MOST_EFFECTS]
    spec = declare(many)
    assert len(list_effects(spec, since=SINCE, until=UNTIL, keep=everything)) == MOST_EFFECTS
    most[0] += 1
    with pytest.raises(TooManyEffects, match="shorter span"):
        list_effects(spec, since=SINCE, until=UNTIL, keep=everything)


def test_what_is_not_to_be_kept_is_not_too_much() -> None:
    def many(audit: Audit) -> Iterator[Effect]:
        yield ONE
        for number in range(MOST_EFFECTS + 1):
            yield Effect(None, f"re_{number}", at=UNTIL)

    kept = list_effects(declare(many), since=SINCE, until=UNTIL, keep=lambda one: one.at < UNTIL)
    assert kept == [ONE]


def test_a_handler_that_does_not_come_back_is_not_waited_for() -> None:
    goes_on = threading.Event()

    def hang(audit: Audit) -> list[Effect]:
        goes_on.wait(30)
        return []

    try:
        with pytest.raises(NotListed, match="no answer within"):
            listed(hang, seconds=0.05)
    finally:
        goes_on.set()


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"handler": lambda: []}, "tools.E026"),
        ({"handler": as_generator, "effect_type": EffectType.READ}, "tools.E027"),
        (
            {"handler": as_generator, "effect_type": EffectType.TRANSACTIONAL, "provider": None},
            "tools.E027",
        ),
        ({"handler": as_generator, "name": "n" * 95}, "tools.E028"),
    ],
)
def test_what_cannot_be_audited_is_refused_at_start(
    declared: dict[str, Any], expected: str
) -> None:
    declare(**declared)
    assert [one.id for one in check_tools() if "audit_handler" in one.msg] == [expected]


def test_a_sound_handler_is_passed_in_silence() -> None:
    declare(as_generator)
    assert [one.id for one in check_tools() if "audit_handler" in one.msg] == []


def test_a_handler_makes_no_new_version_of_its_tool() -> None:
    spec = declare(as_generator)
    assert replace(spec, audit_handler=None).version == spec.version
