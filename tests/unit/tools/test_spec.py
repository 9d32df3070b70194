"""A tool's declaration: arguments, schema, version."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tools import Approve, Call, EffectType, Provider, Retry, Timeout, tool
from tools.errors import DeadlinePassed
from tools.registry import isolated_registry
from tools.spec import ToolSpec


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str
    price: Decimal


def _order_spec(**declared: Any) -> ToolSpec:
    def order(
        call: Call,
        order_id: str,
        amount: Decimal,
        lines: list[Line],
        colour: Colour = Colour.RED,
        due: date | None = None,
        at: datetime | None = None,
        copies: Annotated[int, Field(ge=1, le=9)] = 1,
        urgent: bool = False,
    ) -> None:
        """Order something."""

    with isolated_registry():
        tool(**{"effect_type": EffectType.READ, **declared})(order)
    return order.spec  # type: ignore[attr-defined, no-any-return]


GOOD: Mapping[str, Any] = {"order_id": "17", "amount": "500", "lines": []}


# -- Registration --------------------------------------------------------------------


def test_the_decorated_function_is_still_the_function() -> None:
    @tool(effect_type=EffectType.READ)
    def double(call: Call, number: int) -> int:
        return 2 * number

    assert double(None, 4) == 8  # type: ignore[arg-type]
    assert double.spec.name == "double"  # type: ignore[attr-defined]


def test_the_docstring_is_what_the_llm_reads() -> None:
    assert _order_spec().description == "Order something."


def test_a_tool_inherits_what_its_provider_promises_and_may_override_it() -> None:
    provider = Provider(
        name="payments",
        account="acct_main",
        idempotency_support="key",
        idempotency_scope="account",
        idempotency_retention=timedelta(hours=24),
        settle_window=timedelta(minutes=2),
    )
    inherited = _order_spec(provider=provider)
    overridden = _order_spec(
        provider=provider,
        name="order_again",
        idempotency_support="natural_id",
        idempotency_retention=timedelta(hours=1),
        settle_window=timedelta(0),
    )
    assert (inherited.provider_name, inherited.account) == ("payments", "acct_main")
    assert inherited.idempotency_support == "key"
    assert inherited.idempotency_scope == "account"
    assert inherited.idempotency_retention == timedelta(hours=24)
    assert inherited.settle_window == timedelta(minutes=2)
    assert overridden.idempotency_support == "natural_id"
    assert overridden.idempotency_retention == timedelta(hours=1)
    assert overridden.settle_window == timedelta(0)


def test_a_tool_without_a_provider_gets_the_worst_case() -> None:
    spec = _order_spec()
    assert (spec.provider_name, spec.account) == ("", "")
    assert spec.idempotency_support == "none"
    assert spec.idempotency_retention is None


def test_one_name_as_intent_key_is_not_taken_letter_by_letter() -> None:
    assert _order_spec(intent_key="order_id").intent_key == ("order_id",)


def test_an_async_tool_is_known_as_such() -> None:
    @tool(effect_type=EffectType.READ)
    async def look(call: Call) -> None: ...

    assert look.spec.is_async  # type: ignore[attr-defined]
    assert not _order_spec().is_async


def test_every_effect_but_reading_is_a_write() -> None:
    assert [effect for effect in EffectType if not effect.is_write] == [EffectType.READ]
    assert all(effect.value == effect.name for effect in EffectType)


# -- Schema, intent, version ---------------------------------------------------------


def test_the_schema_names_every_argument_but_the_call() -> None:
    schema = _order_spec().arguments_schema()
    assert schema["type"] == "object"
    assert schema["required"] == ["order_id", "amount", "lines"]
    assert schema["additionalProperties"] is False
    assert "call" not in schema["properties"]
    assert schema["properties"]["copies"]["maximum"] == 9


def test_a_changed_schema_changes_nobody_elses_copy() -> None:
    spec = _order_spec()
    spec.arguments_schema()["properties"].clear()
    assert spec.arguments_schema()["properties"]


def test_two_spellings_of_one_amount_are_one_intent() -> None:
    spec = _order_spec(intent_key=("order_id", "amount"))
    intents = [
        spec.intent_values(spec.validate({**GOOD, "amount": amount}))
        for amount in ("500", "500.00", "5E+2", 500)
    ]
    assert intents == [{"order_id": "17", "amount": "500"}] * 4


def test_without_an_intent_key_all_arguments_are_the_intent() -> None:
    spec = _order_spec()
    one = spec.intent_values(spec.validate(GOOD))
    other = spec.intent_values(spec.validate({**GOOD, "urgent": True}))
    assert one != other
    assert set(other) == set(spec.argument_names) - {"due", "at"}


def test_an_argument_that_is_added_and_empty_makes_no_new_intent_of_an_old_one() -> None:
    def make(act: Any) -> ToolSpec:
        with isolated_registry():
            tool(effect_type=EffectType.IDEMPOTENT_WRITE, name="pay")(act)
        return act.spec  # type: ignore[no-any-return]

    def pay(call: Call, amount: int) -> None: ...

    def pay_with_more(
        call: Call, amount: int, note: str = "", tags: tuple[str, ...] = (), fast: bool = False
    ) -> None: ...

    old, new = make(pay), make(pay_with_more)

    def intent(spec: ToolSpec, **arguments: Any) -> dict[str, Any]:
        return spec.intent_values(spec.validate(arguments))

    assert intent(old, amount=1) == intent(new, amount=1) == intent(new, amount=1, note="")
    assert intent(new, amount=1) != intent(new, amount=1, note="thanks")
    assert intent(new, amount=1) != intent(new, amount=1, fast=True)
    assert intent(new, amount=0) != intent(new, amount=1)


def test_the_version_stays_when_only_the_description_changes() -> None:
    def make(text: str, note: str, prefix: str) -> ToolSpec:
        def pay(call: Call, title: Annotated[str, Field(description=note)]) -> None: ...

        pay.__doc__ = text
        decorated = tool(effect_type=EffectType.READ, name=prefix)(pay)
        return decorated.spec  # type: ignore[attr-defined, no-any-return]

    first = make("One.", "old", "pay")
    with isolated_registry():
        second = make("Two.", "new", "pay")
    assert first.version == second.version
    assert first.description != second.description


@pytest.mark.parametrize(
    "declared",
    [
        {"effect_type": EffectType.IRREVERSIBLE},
        {"intent_key": ("order_id",)},
        {"repeatable": True},
        {"parallel": True},
        {"timeout_policy": Timeout(seconds=5)},
        {"retry_policy": Retry(max_attempts=2)},
        {"approval_policy": Approve(when="amount > 500")},
        {"provider": Provider(name="payments")},
        {"idempotency_support": "key"},
        {"sensitive": ("order_id",)},
        {"reconcile_handler": lambda call: None},
    ],
)
def test_the_version_changes_with_every_declared_policy(declared: dict[str, Any]) -> None:
    assert _order_spec().version == _order_spec().version
    assert _order_spec(**declared).version != _order_spec().version


def test_the_version_sees_arguments_whose_names_are_words_of_the_schema() -> None:
    def one(call: Call, title: str, description: str) -> None: ...

    def two(call: Call, title: int, description: str) -> None: ...

    declare = tool(effect_type=EffectType.READ, name="pay")
    with isolated_registry():
        first = declare(one).spec.version  # type: ignore[attr-defined]
    with isolated_registry():
        second = declare(two).spec.version  # type: ignore[attr-defined]
    assert first != second


def test_the_version_changes_with_the_arguments() -> None:

    with isolated_registry():

        @tool(effect_type=EffectType.READ, name="pay")
        def one(call: Call, amount: Decimal) -> None: ...

    @tool(effect_type=EffectType.READ, name="pay")
    def two(call: Call, amount: Decimal, title: str) -> None: ...

    assert one.spec.version != two.spec.version  # type: ignore[attr-defined]


def test_the_arguments_have_a_version_that_words_and_policies_leave_alone() -> None:
    def one(call: Call, title: Annotated[str, Field(description="old")]) -> None: ...

    def reworded(call: Call, title: Annotated[str, Field(description="new")]) -> None: ...

    def retyped(call: Call, title: int) -> None: ...

    def renamed(call: Call, name: str) -> None: ...

    def optional(call: Call, title: str = "none") -> None: ...

    def version(function: Any, **declared: Any) -> str:
        facts = {"effect_type": EffectType.READ, "name": "pay"} | declared
        with isolated_registry():
            spec: ToolSpec = tool(**facts)(function).spec
        return spec.arguments_version

    assert version(one) == version(reworded) == version(one, effect_type=EffectType.IRREVERSIBLE)
    assert len({version(each) for each in (one, retyped, renamed, optional)}) == 4


def test_who_learns_to_migrate_arguments_does_not_become_another_version() -> None:
    assert _order_spec(migrate_arguments=lambda old, version: old).version == _order_spec().version


# -- Delays and deadlines ------------------------------------------------------------


def test_delays_double_up_to_a_limit_and_are_never_all_the_same() -> None:
    retry = Retry(first_delay=1.0, max_delay=10.0)
    assert [retry.delay(attempt, rng=lambda: 1.0) for attempt in (1, 2, 3, 4, 5)] == [
        1,
        2,
        4,
        8,
        10,
    ]
    assert [retry.delay(attempt, rng=lambda: 0.0) for attempt in (1, 2, 5)] == [0.5, 1, 5]
    assert retry.delay(100_000, rng=lambda: 1.0) == 10
    assert all(0.5 <= retry.delay(1) <= 1 for _ in range(100))


def test_the_time_that_remains_shrinks_to_the_deadline(make_call: Any) -> None:
    call = make_call(seconds=5.0)
    first = call.remaining
    assert 4 < first <= 5
    assert call.remaining <= first
    assert call.timeouts_given == 2


def test_after_the_deadline_no_time_is_given(make_call: Any) -> None:
    call = make_call(seconds=0.0)
    with pytest.raises(DeadlinePassed, match="deadline") as passed:
        call.remaining  # noqa: B018 (reading it is the act)
    assert passed.value.operation_id == "op-1"
    assert call.timeouts_given == 0
