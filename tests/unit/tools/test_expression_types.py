"""A policy that compares a name with what it can never be is refused, and no other is."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, Field
from pydantic_core import to_jsonable_python

from approvals.policy_text import PolicyText, problems_of
from tools import Approve, Call, EffectType, Provider, policy_store, tool
from tools.checks import check_tools
from tools.expression_types import find_never_equal
from tools.expressions import check_expression, execute
from tools.policy import evaluate
from tools.registry import isolated_registry
from tools.spec import ToolSpec

PAYMENTS = Provider(name="payments", account="acct_1")
OrderId = NewType("OrderId", str)


class Currency(StrEnum):
    EUR = "EUR"
    USD = "USD"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(Enum):
    RED = "red"
    NONE = None


class Rights(IntFlag):
    READ = 1
    WRITE = 2


@pytest.fixture(autouse=True)
def shop() -> Iterator[tuple[ToolSpec, ToolSpec]]:
    """Tools `refund` of the provider `payments`, and `look` of none; no policies."""
    with isolated_registry(), policy_store.only():

        @tool(effect_type=EffectType.IDEMPOTENT_WRITE, provider=PAYMENTS, name="refund")
        def refund(
            call: Call,
            order: str,
            amount: Decimal,
            count: int = 1,
            rate: float = 1.0,
            urgent: bool = False,
            day: date | None = None,
            at: datetime | None = None,
            ttl: timedelta | None = None,
            currency: Currency = Currency.EUR,
            second: Currency | None = None,
            mode: Literal["full", "part", 1] = "full",
            level: Level = Level.LOW,
            colour: Colour = Colour.RED,
            rights: Rights = Rights.READ,
            either: str | int = 1,
            customer: OrderId = OrderId("c"),
            key: UUID | None = None,
            capped: Annotated[Decimal, Field(gt=0)] = Decimal(1),
            turned: Annotated[str, AfterValidator(len)] = "a",
            tags: list[str] = [],  # noqa: B006 (read only)
            type: str = "",
            tool: int = 1,
        ) -> None:
            """Refund."""

        @tool(effect_type=EffectType.READ, name="look")
        def look(call: Call, order: int, either: int = 1) -> None:
            """Look."""

        yield refund.spec, look.spec  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("order == 17", "order is a text, never 17; write '17'"),
        ("17 == order", "order is a text, never 17; write '17'"),
        ("order != 17", "write '17'"),
        ("order == true", "write 'true'"),
        ("order in ['16', 17]", "never 17; write '17'"),
        ("order == ['17']", "compare it with a text"),
        ("order == b'17'", "compare it with a text"),
        ("arguments.order == 17", "arguments.order is a text, never 17"),
        ("arguments['order'] == 17", "arguments.order is a text, never 17"),
        ("customer == 17", "customer is a text"),
        ("key == 17", "key is a text"),
        ('amount == "700"', "amount is a number, never '700'; write 700"),
        ("amount == '-700.50'", "write -700.50"),
        ("amount == 'many'", "compare it with a number"),
        ("amount == true", "compare it with a number"),
        ("capped == '1'", "write 1"),
        ("count in ['1']", "write 1"),
        ("rate == '1.5'", "write 1.5"),
        ("urgent == 'true'", "urgent is true or false, never 'true'; write true or false"),
        ("urgent == 1", "write true or false"),
        ("day == 20270131", "write it as '2027-01-31'"),
        ("day == '31.1.2027'", "write it as '2027-01-31'"),
        ("day == timestamp('2027-01-31T00:00:00Z')", "write it as '2027-01-31'"),
        ("at == '2027-01-31'", "write timestamp('2027-01-31T00:00:00Z')"),
        ("at == '2027-01-31T09:00:00Z'", "write timestamp('2027-01-31T09:00:00Z')"),
        ("at == 5", "write it as timestamp("),
        ("ttl == '90s'", "write it as duration('90s')"),
        ("currency == 'EURO'", "currency is never 'EURO' (did you mean 'EUR'?)"),
        ("currency == 'eur'", "did you mean 'EUR'?"),
        ("currency == 'crowns'", "there are: 'EUR', 'USD'"),
        ("second == 'US'", "did you mean 'USD'?"),
        ("currency in ['EUR', 'UDS']", "did you mean 'USD'?"),
        ("mode == 'ful'", "did you mean 'full'?"),
        ("mode == '1'", "mode is never '1' (did you mean 1?)"),
        ("level == 3", "there are: 1, 2"),
        ("level == 'HIGH'", "there are: 1, 2"),
        ("level == true", "level is never true"),
        ("colour == 'rde'", "did you mean 'red'?"),
        ("effect_type == 'irreversible'", "did you mean 'IRREVERSIBLE'?"),
        ("effect_type in ['WRITE']", "effect_type is never 'WRITE'"),
        ("provider == 'paymnts'", "did you mean 'payments'?"),
        ("tool == 'refnd'", "did you mean 'refund'?"),
        ("tool == 1", "there are: 'look', 'refund'"),
        ("arguments.tool == 'refund'", "arguments.tool is a number"),
        ("agent == 1", "agent is a text"),
        ("requester != 17", "requester is a text"),
        ("confidence == 'high'", "confidence is a number"),
        ("window.count == '20'", "window.count is a number"),
        ("'amout' in arguments", "did you mean 'amount'?"),
        ("order == 17 || currency == 'EURO'", "write '17'; currency is never 'EURO'"),
    ],
)
def test_what_can_never_be_equal_is_told_with_its_fix(
    shop: tuple[ToolSpec, ToolSpec], when: str, told: str
) -> None:
    assert check_expression(when, shop[0].argument_names, window=("count",)) is None
    assert told in (find_never_equal(when, shop[:1]) or "")


@pytest.mark.parametrize(
    "when",
    [
        "order == '17' && 'a' != order && order in ['16', \"17\", '''18''', r'\\d']",
        "order == string(17) && order == '1' + '7'",
        "amount == 700 && amount == 700.0 && amount in [1, 2.5, -3, 0x1F, 4u, 1e3]",
        "count == 1.0 && rate == 2 && capped == 3 && count == double('1')",
        "urgent == true && urgent != (1 == 2)",
        "day == '2027-01-31' && at == timestamp('2027-01-31T00:00:00Z')",
        "ttl == duration('90s') && key == '8f0e2c3a-0000-0000-0000-000000000000'",
        "currency == 'EUR' && second in ['EUR', 'USD'] && level == 2 && level == 1.0",
        "mode == 'full' && mode == 1 && colour == 'red' && colour == null",
        # To ask for null is careful rather than wrong.
        "order != null && at == null && confidence == null && currency != null",
        # Of a flag, a union, a validator's answer and a list nothing is said.
        "rights == 3 && either == 'a' && either == true && turned == 1 && tags == 'a'",
        "'a' in tags && 17 in tags",
        "effect_type == 'IRREVERSIBLE' && effect_type in ['READ', 'TRANSACTIONAL']",
        "tool == 'look' && tool != 'refund' && provider == 'payments' && provider != ''",
        "agent != 'anybody' && requester == 'ada' && account == 'acct_test'",
        "confidence == 1 && 'amount' in arguments && has(arguments.amount)",
        # What is compared is not the name alone, or not with a constant.
        "size(order) == 2 && -count == 1 && count - 1 == 2 && order.size() == 2",
        "order.startsWith('1') == true && (order == '17') == true && '17' == order == true",
        "true == (order == '17') && !urgent == true && dyn(order) == 17",
        "arguments.size() == 2 && currency == type && string(amount) == '700'",
        "(urgent ? order : currency) == 'EURO' && (order == '17' ? 1 : 2) == 2",
        "['EURO'].exists(currency, currency == 'EURO') && [17].all(order, order == 17)",
        # What only looks like a comparison.
        "order == 'order == 17' && order == \"currency == 'EURO'\" && order == '\\' == 17 '",
        "order == '17' // order == 17\n",
        "order == r'\\' && order == '''a' == 17''' && order == \"\"\"b\" == 17\"\"\"",
    ],
)
def test_what_may_be_equal_is_fine(shop: tuple[ToolSpec, ToolSpec], when: str) -> None:
    assert check_expression(when, shop[0].argument_names) is None
    assert find_never_equal(when, shop[:1]) is None


_FINE = st.sampled_from(
    [
        *("x == 'a'", 'x != "it\'s"', "x == '\\''", "x == r'\\'", "x == '''it's'''", "'a' in [x]"),
        *("x in ['a'] // it's 'so\n", "[x] == ['x == 17']", "size(x) == 1"),
    ]
)
_WRONG = st.sampled_from(
    [
        *("x == 17", "17!=x", "( x ) == ((17))", "x in [17]", "x // a text\n == 17"),
        *("arguments [ 'x' ] == 17", "arguments\n.\nx == 16 + 1"),
    ]
)
_AROUND = st.sampled_from(
    [
        *("{} && {}", "({} || {})", "!({}) && {}", "({}) == ({})", "{} == true || {}"),
        *("true ? ({}) : {}", "({}) ? (false) : {}", "[{}, {}][0]", "{{'a': {}}}.a || {}"),
        *("['a'].exists(one, {} || {})", "string({}) == 'true' && {}", "({}) in [{}]"),
    ]
)
_WHOLE = st.recursive(
    _FINE | st.just("@"),
    lambda parts: st.builds(str.format, _AROUND, parts, parts),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(_WHOLE, _WRONG)
def test_a_comparison_is_found_wherever_it_stands(whole: str, wrong: str) -> None:
    spec = _tool_of(str)
    when = whole.replace("@", wrong)
    assert check_expression(when, ("x",)) is None
    found = "x is a text, never 17; write '17'" in (find_never_equal(when, [spec]) or "")
    assert found == ("@" in whole)


# -- What the library does, on which all this rests --------------------------------------


def test_values_of_different_types_are_unequal_without_an_error() -> None:
    values = {"text": "17", "double": 700.0, "whole": 7, "truth": True, "nothing": None}
    for when in (
        *("text == 17", "double == '700'", "whole == '7'", "truth == 1", "truth == 'true'"),
        *("nothing == 1", "text in [17]", "double in ['700']"),
    ):
        assert execute(when, values.__getitem__) is False
    for when in ("double == 700", "whole == 7.0", "double in [700]", "text != 17"):
        assert execute(when, values.__getitem__) is True


@pytest.mark.parametrize("when", ["order > 16", "amount > '500'", "at < '2027'", "amount <= true"])
def test_an_order_of_different_types_asks_for_a_signature(when: str) -> None:
    @tool(effect_type=EffectType.IDEMPOTENT_WRITE, name="pay", approval_policy=Approve(when=when))
    def pay(call: Call, order: str, amount: Decimal, at: datetime) -> None: ...

    spec: ToolSpec = pay.spec  # type: ignore[attr-defined]
    sent = {"order": "17", "amount": "1", "at": "2026-01-01T00:00:00Z"}
    assert evaluate(spec, spec.validate(sent)).outcome == "require_approval"


# -- Nothing that could be true is refused ------------------------------------------------

_MOMENT = datetime(2027, 1, 31, tzinfo=UTC)
_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, st.sampled_from(["", "17", "EUR", "true", "READ", "2027-01-31", "a' == 'b"])),
    (Decimal, st.sampled_from([Decimal(17), Decimal("1.50"), Decimal(1), Decimal(-3)])),
    (int, st.sampled_from([17, 1, -3])),
    (float, st.sampled_from([17.0, 1.5, 1.0])),
    (bool, st.booleans()),
    (date, st.just(_MOMENT.date())),
    (datetime, st.just(_MOMENT)),
    (timedelta, st.just(timedelta(seconds=17))),
    (Currency, st.sampled_from(Currency)),
    (Level, st.sampled_from(Level)),
    (Colour, st.sampled_from(Colour)),
    (Rights, st.just(Rights.READ | Rights.WRITE)),
    (Literal["EUR", 17, True], st.sampled_from(["EUR", 17, True])),
    (Currency | None, st.sampled_from([*Currency, None])),
    (str | int, st.sampled_from(["17", 17])),
    (Annotated[str, AfterValidator(len)], st.just("a")),
    (list[str], st.just(["17"])),
    (OrderId, st.just(OrderId("17"))),
]
_CONSTANTS = st.sampled_from(
    [
        *("17", "17.0", "1", "1.5", "3", "-3", "2u", "true", "false", "null", "'17'", '"EUR"'),
        *("'eur'", "'red'", "'READ'", "'2027-01-31'", "'2027-1-31'", "''", "b'17'", "['17']"),
        *("timestamp('2027-01-31T00:00:00Z')", "duration('17s')", "'true'", "{'a': 1}"),
        r'"a\' == \'b"',
    ]
)
_SPELLINGS = st.sampled_from(
    ["x == {}", "{} == x", "!(x != {})", "x in [{}]", "(x) == ({})", "arguments.x == {} || false"]
)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_TYPES), st.data(), _CONSTANTS, _SPELLINGS)
def test_what_is_ever_true_is_never_refused(
    typed: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject, constant: str, spelling: str
) -> None:
    annotation, values = typed
    spec = _tool_of(annotation)
    bound = spec.bind({"x": to_jsonable_python(data.draw(values))})
    when = spelling.format(constant)
    if execute(when, {**bound, "arguments": bound}.__getitem__):
        assert find_never_equal(when, [spec]) is None


def _tool_of(annotation: Any) -> ToolSpec:
    def act(call: Call, x: Any) -> None: ...

    act.__annotations__["x"] = annotation
    with isolated_registry():
        return tool(effect_type=EffectType.READ)(act).spec  # type: ignore[attr-defined, no-any-return]


# -- Of several tools ---------------------------------------------------------------------


def test_of_several_tools_one_that_fits_is_enough(shop: tuple[ToolSpec, ToolSpec]) -> None:
    for constant in ("17", "'17'"):
        assert find_never_equal(f"arguments.order == {constant}", shop) is None
    assert "order" in (find_never_equal("arguments.order == true", shop) or "")
    # One has a union there, of which nothing is said.
    assert find_never_equal("arguments.either == true", shop) is None
    assert find_never_equal("arguments.either == true", shop[1:]) is not None
    # What only one has is judged by that one.
    assert find_never_equal("arguments.currency == 'EURO'", shop) is not None
    assert find_never_equal("'amount' in arguments", shop) is None


def test_without_a_tool_nothing_is_said_of_arguments() -> None:
    assert find_never_equal("arguments.order == 17 && 'a' in arguments", []) is None
    assert find_never_equal("effect_type == 'read'", []) is not None


def test_an_enumeration_that_two_arguments_share_is_known_for_both() -> None:
    @tool(effect_type=EffectType.READ)
    def rate(call: Call, of: Currency, to: Currency, more: list[Currency]) -> None: ...

    spec: ToolSpec = rate.spec  # type: ignore[attr-defined]
    for name in ("of", "to"):
        assert "EUR" in (find_never_equal(f"{name} == 'EURO'", [spec]) or "")


# -- Where it is asked --------------------------------------------------------------------


def test_in_a_tool_s_own_policy_it_is_an_error_at_start() -> None:
    @tool(
        effect_type=EffectType.READ,
        name="pay",
        approval_policy=Approve(when="effect_type == 'irreversible' || currency == 'EURO'"),
    )
    def pay(call: Call, currency: Currency) -> None:
        """Pay."""

    found = [message for message in check_tools() if message.id == "tools.E004"]
    assert [message.obj for message in found] == ["tool pay"]
    assert "(did you mean 'IRREVERSIBLE'?); currency is never 'EURO'" in found[0].msg


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ({"tool": "refund", "when": "order == 17"}, "write '17'"),
        ({"provider": "payments", "when": "arguments.amount == '700'"}, "write 700"),
        ({"when": "arguments.order == true"}, "arguments.order"),
        ({"when": "effect_type == 'irreversible'"}, "did you mean 'IRREVERSIBLE'?"),
        ({"when": "provider == 'paymnts'"}, "did you mean 'payments'?"),
        ({"when": "tool == 'refnd'"}, "did you mean 'refund'?"),
        ({"when": "window.count == '3'", "window_seconds": 60}, "write 3"),
        ({"tool": "refund", "when": "'currncy' in arguments"}, "did you mean 'currency'?"),
    ],
)
def test_a_policy_that_says_it_is_refused_with_field_value_and_fix(
    text: dict[str, Any], told: str
) -> None:
    problems = problems_of(PolicyText(outcome="refuse", **text))
    assert [problem.field for problem in problems] == ["when"]
    assert problems[0].value == ascii(text["when"])
    assert told in problems[0].fix


@pytest.mark.parametrize(
    "text",
    [
        {"tool": "refund", "when": "order == '17' && currency != 'EUR' && amount == 700"},
        {"when": "arguments.order == 17 || arguments.order == '17'"},
        {"when": "effect_type == 'IRREVERSIBLE' && agent != 'support'"},
        {"when": "has(arguments.amount) && arguments.amount == 1000"},
        {"when": "tool in ['refund', 'look'] && provider == ''"},
    ],
)
def test_a_policy_that_does_not_is_saved(text: dict[str, Any]) -> None:
    assert problems_of(PolicyText(outcome="refuse", **text)) == []


def test_no_example_of_the_documentation_is_refused(shop: tuple[ToolSpec, ToolSpec]) -> None:
    page = Path("docs/how-to/write-a-policy.md").read_text()
    shown = re.search(r"```cel\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    examples = shown.group(1).splitlines()
    assert len(examples) > 4
    assert [one for one in examples if find_never_equal(one, shop[:1])] == []
