"""Arguments of a tool: what is taken, what is refused, what the function gets."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tools import Call, EffectType, tool
from tools.errors import InvalidArguments, InvalidTool
from tools.registry import isolated_registry
from tools.spec import ToolSpec

if TYPE_CHECKING:
    from somewhere import OnlyForTypeCheckers  # type: ignore[import-not-found]


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


# -- Functions that cannot be tools --------------------------------------------------


def test_an_argument_without_a_type_is_refused() -> None:
    with pytest.raises(InvalidTool, match="amount has no type"):

        @tool(effect_type=EffectType.READ)
        def pay(call: Call, amount) -> None: ...  # type: ignore[no-untyped-def]


def test_a_function_that_takes_no_call_is_refused() -> None:
    with pytest.raises(InvalidTool, match="does not take a call"):

        @tool(effect_type=EffectType.READ)
        def pay() -> None: ...


def test_arguments_nobody_can_name_are_refused() -> None:
    with pytest.raises(InvalidTool, match="cannot be named"):

        @tool(effect_type=EffectType.READ)
        def pay(call: Call, *amounts: int) -> None: ...

    with pytest.raises(InvalidTool, match="cannot be named"):

        @tool(effect_type=EffectType.READ)
        def collect(call: Call, **amounts: int) -> None: ...


def test_a_default_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(InvalidTool, match="default of amount"):

        @tool(effect_type=EffectType.READ)
        def pay(call: Call, amount: Decimal = "five") -> None: ...  # type: ignore[assignment]


def test_a_type_that_exists_for_type_checkers_only_is_refused_for_arguments_alone() -> None:
    with pytest.raises(InvalidTool, match="OnlyForTypeCheckers"):

        @tool(effect_type=EffectType.READ)
        def pay(call: Call, amount: "OnlyForTypeCheckers") -> None: ...

    @tool(effect_type=EffectType.READ)
    def refund(call: "OnlyForTypeCheckers", amount: "int") -> "OnlyForTypeCheckers": ...

    assert refund.spec.validate({"amount": 1}) == {"amount": 1}  # type: ignore[attr-defined]


def test_a_type_that_cannot_be_validated_is_refused() -> None:
    class Opaque: ...

    with pytest.raises(InvalidTool, match="Opaque"):

        @tool(effect_type=EffectType.READ)
        def pay(call: Call, amount: Opaque) -> None: ...


# -- Arguments -----------------------------------------------------------------------


def test_arguments_become_plain_json_with_every_default_filled_in() -> None:
    given = {
        "order_id": "17",
        "amount": "500.10",
        "lines": [{"sku": "a", "price": "1.50"}],
        "due": "2027-01-31",
        "at": "2027-01-31T10:00:00Z",
    }
    assert _order_spec().validate(given) == {
        **given,
        "colour": "red",
        "copies": 1,
        "urgent": False,
    }


def test_python_values_from_code_are_normalised_as_well() -> None:
    given = {
        "order_id": "17",
        "amount": Decimal("500.10"),
        "lines": [Line(sku="a", price=Decimal("1.50"))],
        "colour": Colour.BLUE,
        "due": date(2027, 1, 31),
    }
    normal = _order_spec().validate(given)
    assert normal["amount"] == "500.10"
    assert normal["lines"] == [{"sku": "a", "price": "1.50"}]
    assert (normal["colour"], normal["due"]) == ("blue", "2027-01-31")


def test_the_function_gets_the_values_that_the_stored_json_stands_for() -> None:
    spec = _order_spec()
    bound = spec.bind(
        spec.validate(
            {
                "order_id": "17",
                "amount": "500.10",
                "lines": [{"sku": "a", "price": "1.50"}],
                "colour": "blue",
                "at": "2027-01-31T10:00:00Z",
            }
        )
    )
    assert bound == {
        "order_id": "17",
        "amount": Decimal("500.10"),
        "lines": [Line(sku="a", price=Decimal("1.50"))],
        "colour": Colour.BLUE,
        "due": None,
        "at": datetime(2027, 1, 31, 10, tzinfo=UTC),
        "copies": 1,
        "urgent": False,
    }


def test_validating_twice_changes_nothing() -> None:
    spec = _order_spec()
    once = spec.validate({**GOOD, "amount": "1E+2"})
    assert spec.validate(once) == once


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("order_id", 17),
        ("order_id", None),
        ("amount", "five"),
        ("amount", True),
        ("amount", "NaN"),
        ("amount", "Infinity"),
        ("copies", "2"),
        ("copies", 2.0),
        ("copies", True),
        ("copies", 10),
        ("urgent", "yes"),
        ("urgent", 1),
        ("colour", "green"),
        ("at", 5),
        ("lines", {}),
        ("lines", [{"sku": "a"}]),
    ],
)
def test_junk_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidArguments) as refused:
        _order_spec().validate({**GOOD, field: value})
    assert [problem.field.split(".")[0] for problem in refused.value.problems] == [field]
    assert all(problem.fix for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (2**60, "2\\^53"),
        ([10**5000], "2\\^53"),
        ("x" * 300_000, "262144 bytes"),
        (object(), "plain JSON"),
    ],
)
def test_values_that_cannot_be_stored_are_refused(value: object, told: str) -> None:
    with pytest.raises(InvalidArguments, match=told):
        _order_spec().validate({**GOOD, "order_id": value})


def test_deep_nesting_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InvalidArguments):
        _order_spec().validate({**GOOD, "order_id": deep})


def test_an_unknown_argument_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(InvalidArguments, match="amont: remove it; the arguments are: order_id, "):
        _order_spec().validate({**GOOD, "amont": "5"})


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(InvalidArguments, match="order_id: it is required"):
        _order_spec().validate({"amount": "5", "lines": []})


def test_a_decimal_is_stored_without_an_exponent() -> None:
    assert _order_spec().validate({**GOOD, "amount": "5E+2"})["amount"] == "500"
    assert _order_spec().validate({**GOOD, "amount": 500})["amount"] == "500"


def test_a_decimal_that_is_short_to_write_and_long_to_store_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="at most 100 digits"):
        _order_spec().validate({**GOOD, "amount": "1E+999999"})


def test_the_value_of_a_sensitive_argument_is_in_no_complaint() -> None:
    spec = _order_spec(sensitive=("order_id", "lines"))
    bad: list[dict[str, Any]] = [
        {"order_id": 4242424242424242},
        {"order_id": "4242424242424242\0"},
        {"lines": [{"sku": "4242424242424242", "prize": "4242424242424242"}]},
        {"lines": "4242424242424242"},
    ]
    for given in bad:
        with pytest.raises(InvalidArguments) as refused:
            spec.validate({**GOOD, **given})
        assert "4242" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_a_sensitive_name_is_hidden_inside_a_value_too() -> None:
    with pytest.raises(InvalidArguments) as refused:
        _order_spec(sensitive=("sku",)).validate({**GOOD, "lines": {"sku": "4242"}})
    assert "4242" not in str(refused.value)


def test_arguments_may_have_names_that_pydantic_uses_itself() -> None:
    @tool(effect_type=EffectType.READ)
    def send(call: Call, json: str, copy: int, model_config: str, _hidden: str = "h") -> None: ...

    spec: ToolSpec = send.spec  # type: ignore[attr-defined]
    given = {"json": "{}", "copy": 1, "model_config": "x"}
    assert spec.bind(spec.validate(given)) == {**given, "_hidden": "h"}
    assert set(spec.arguments_schema()["properties"]) == {*given, "_hidden"}
