"""When a call needs a signature."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from tools import Approve, Call, EffectType, policy_store, tool
from tools.policy import check_expression, evaluate
from tools.registry import isolated_registry
from tools.spec import ToolSpec


@pytest.fixture(autouse=True)
def _no_policies() -> Iterator[None]:
    with policy_store.only():
        yield


class Line(BaseModel):
    price: Decimal


def _refund(when: str, *, groups: tuple[str, ...] = ()) -> ToolSpec:
    with isolated_registry():

        @tool(
            effect_type=EffectType.IDEMPOTENT_WRITE,
            approval_policy=Approve(when=when, groups=groups),
        )
        def refund(
            call: Call,
            amount: Decimal,
            country: str = "DE",
            lines: list[Line] = [],  # noqa: B006 (read only)
            at: datetime | None = None,
            note: str | None = None,
        ) -> None: ...

    return refund.spec  # type: ignore[attr-defined, no-any-return]


def _outcome(when: str, **arguments: Any) -> str:
    spec = _refund(when)
    return evaluate(spec, spec.validate({"amount": "1", **arguments})).outcome


def _without_rule(effect_type: EffectType) -> ToolSpec:
    with isolated_registry():

        @tool(effect_type=effect_type)
        def act(call: Call) -> None: ...

    return act.spec  # type: ignore[attr-defined, no-any-return]


def test_the_rule_decides_over_the_arguments() -> None:
    assert _outcome("amount > 500", amount="500") == "allow"
    assert _outcome("amount > 500", amount="500.01") == "require_approval"
    assert _outcome("amount > 500.10", amount="500.10") == "allow"
    assert _outcome("amount > 500 || country != 'DE'", country="FR") == "require_approval"
    assert _outcome("lines.exists(line, line.price > 9)", lines=[{"price": "9.5"}]) == (
        "require_approval"
    )
    assert _outcome(
        "at > timestamp('2027-01-01T00:00:00Z')", at=datetime(2026, 1, 1, tzinfo=UTC)
    ) == ("allow")


def test_a_decision_names_its_rule_and_its_version() -> None:
    spec = _refund("amount > 500", groups=("finance",))
    decision = evaluate(spec, spec.validate({"amount": "501"}))
    assert decision.rule == "amount > 500"
    assert decision.approve == Approve(when="amount > 500", groups=("finance",))
    other = _refund("amount > 500", groups=("legal",))
    assert evaluate(other, {"amount": "501"}).version != decision.version
    assert evaluate(spec, spec.validate({"amount": "1"})).version == decision.version


def test_without_a_rule_only_what_cannot_be_undone_needs_a_signature() -> None:
    for effect_type in EffectType:
        decision = evaluate(_without_rule(effect_type), {})
        needs = effect_type is EffectType.IRREVERSIBLE
        assert decision.outcome == ("require_approval" if needs else "allow")
        assert (decision.approve is not None) == needs


@pytest.mark.parametrize(
    "when",
    [
        "amout > 500",
        "amount >",
        "amount > '500'",
        "note > 5",
        "amount",
        "1 / 0 > 1",
        "unknown(amount)",
        "lines[7].price > 1",
        "",
    ],
)
def test_a_rule_that_cannot_be_evaluated_asks_for_a_signature(when: str) -> None:
    spec = _refund(when)
    decision = evaluate(spec, spec.validate({"amount": "1"}))
    assert decision.outcome == "require_approval"
    assert "could not be evaluated" in decision.rule
    assert decision.approve is not None


def test_arguments_that_do_not_fit_ask_for_a_signature() -> None:
    assert evaluate(_refund("amount > 500"), {"amount": "many"}).outcome == "require_approval"


def test_a_date_without_a_zone_asks_for_a_signature() -> None:
    assert _outcome("at > timestamp('2027-01-01T00:00:00Z')", at="2026-01-01T00:00:00") == (
        "require_approval"
    )


@settings(deadline=None, max_examples=200)
@given(
    st.decimals(min_value=-(10**25), max_value=10**25, allow_nan=False, allow_infinity=False)
    | st.decimals(min_value=499, max_value=501, places=20)
)
def test_no_amount_over_the_limit_is_allowed(amount: Decimal) -> None:
    spec = _REFUND_OVER_500
    if evaluate(spec, {**_DEFAULTS, "amount": str(amount)}).outcome == "allow":
        assert amount <= 500


def test_an_amount_that_rounding_would_put_under_the_limit_is_not_allowed() -> None:
    assert _outcome("amount > 500", amount="500." + "0" * 30 + "1") == "require_approval"
    assert _outcome("amount > 500", amount="1E+90") == "require_approval"


_REFUND_OVER_500 = _refund("amount > 500")
_DEFAULTS = _REFUND_OVER_500.validate({"amount": "1"})


# -- Checking rules at start -----------------------------------------------------------


@pytest.mark.parametrize(
    "when",
    [
        "true",
        "amount > 500",
        "size(country) == 2 && country.startsWith('D')",
        "lines.all(line, line.price < amount)",
        "[1, 2].exists( x , double(x) > amount)",
        "has(country.name) || type(amount) == double",
        "at.getHours() > 18",
    ],
)
def test_good_rules_pass(when: str) -> None:
    assert check_expression(when, ("amount", "country", "lines", "at")) is None


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("amout > 500", "unknown argument amout; there are: amount"),
        ("true || amout > 500", "amout"),
        ("amount >", "Syntax error"),
        ("", "Syntax error"),
        ("approve(amount)", "unknown function approve"),
        ("1 + 1", "true or false"),
        ("1 / 0 > 1", "division"),
    ],
)
def test_bad_rules_are_told(when: str, told: str) -> None:
    assert told in (check_expression(when, ("amount",)) or "")


@pytest.mark.parametrize(
    "expression",
    [
        "size('a') == 1",
        "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c')",
        "'abc'.matches('^a')",
        "int('3') == 3 && uint(3) == 3u && double('3') == 3.0 && string(3) == '3'",
        "bytes('a') == b'a' && type(1) == int && dyn(1) == 1",
        "duration('1h') > duration('1m')",
        "timestamp('2027-01-02T03:04:05Z').getFullYear() == 2027",
        "timestamp('2027-01-02T03:04:05Z').getMonth() == 0",
        "timestamp('2027-01-02T03:04:05Z').getDate() == 2",
        "timestamp('2027-01-02T03:04:05Z').getDayOfMonth() == 1",
        "timestamp('2027-01-02T03:04:05Z').getDayOfWeek() == 6",
        "timestamp('2027-01-02T03:04:05Z').getDayOfYear() == 1",
        "timestamp('2027-01-02T03:04:05Z').getHours() == 3",
        "timestamp('2027-01-02T03:04:05Z').getMinutes() == 4",
        "timestamp('2027-01-02T03:04:05Z').getSeconds() == 5",
        "timestamp('2027-01-02T03:04:05Z').getMilliseconds() == 0",
    ],
)
def test_every_function_that_a_rule_may_use_exists(expression: str) -> None:
    assert check_expression(expression, ()) is None
    assert _outcome(expression) == "require_approval"
    assert _outcome(f"!({expression})") == "allow"


class Currency(StrEnum):
    EUR = "EUR"


class Color(Enum):
    RED = "red"


def test_a_rule_compares_an_enumeration_by_its_value() -> None:
    @tool(
        effect_type=EffectType.IDEMPOTENT_WRITE,
        approval_policy=Approve(when='color == "red" && currency == "EUR"'),
    )
    def paint(call: Call, color: Color, currency: Currency) -> None:
        """Paint."""

    spec: ToolSpec = paint.spec  # type: ignore[attr-defined]
    policy = evaluate(spec, spec.validate({"color": "red", "currency": "EUR"}))
    assert policy.outcome == "require_approval"


def test_a_rule_over_a_secret_fails_closed() -> None:
    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, approval_policy=Approve(when='pin == "1"'))
    def unlock(call: Call, pin: SecretStr) -> None:
        """Unlock."""

    spec: ToolSpec = unlock.spec  # type: ignore[attr-defined]
    assert evaluate(spec, {"pin": "0"}).outcome == "require_approval"
