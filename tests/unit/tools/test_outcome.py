"""Exceptions and results, read as outcomes. Network errors: `test_http_errors.py`."""

import functools
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from tools import NotSent, Rejected
from tools.errors import DeadlinePassed, UnreadableResult
from tools.outcome import Refused, Unknown, Unsent, classify, encode_result, external_ref
from tools.redaction import RAW_TEXT
from tools.results import noting_references


class OrderNotPlaced(Exception):
    pass


def _caught(action: Any) -> BaseException:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 (any kind)
        action()
    return raised.value


# -- Exceptions ----------------------------------------------------------------------


def test_what_the_tool_says_counts() -> None:
    assert classify(Rejected("card closed")) == Refused("card closed")
    assert classify(NotSent("no slot")) == Unsent("no slot")


def test_a_passed_deadline_is_unknown_because_something_used_up_the_time() -> None:
    error = DeadlinePassed(operation_id="op-1", deadline=datetime.now(UTC))
    outcome = classify(error)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "deadline"


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("x"), TimeoutError(), ConnectionResetError(), OSError()]
)
def test_any_other_error_is_unknown(error: Exception) -> None:
    outcome = classify(error)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == ""
    assert type(error).__name__ in outcome.reason


def test_an_interrupted_tool_is_unknown() -> None:
    for error in (SystemExit(1), KeyboardInterrupt(), GeneratorExit()):
        outcome = classify(error)
        assert isinstance(outcome, Unknown)
        assert outcome.stage == "crash"


def test_an_error_raised_from_a_network_error_counts_as_it() -> None:
    def place() -> None:
        try:
            raise httpx2.ConnectError("refused")
        except httpx2.ConnectError as error:
            raise OrderNotPlaced("the shop is closed") from error

    assert classify(_caught(place)) == Unsent("OrderNotPlaced: the shop is closed")


def test_an_error_raised_while_handling_an_unsent_one_is_unknown() -> None:
    def place() -> None:
        try:
            raise httpx2.ConnectError("refused")
        except httpx2.ConnectError:
            raise OrderNotPlaced("broken")  # noqa: B904 (implied, that is the point)

    outcome = classify(_caught(place))
    assert isinstance(outcome, Unknown)


def test_a_cause_that_was_cut_off_does_not_count() -> None:
    def place() -> None:
        try:
            raise httpx2.ConnectError("refused")
        except httpx2.ConnectError:
            raise OrderNotPlaced from None

    assert classify(_caught(place)) == Unknown("OrderNotPlaced", "")


def test_a_rejection_that_became_the_cause_of_a_bug_is_not_a_rejection() -> None:
    def place() -> None:
        try:
            raise Rejected("card closed")
        except Rejected as error:
            raise OrderNotPlaced from error

    assert isinstance(classify(_caught(place)), Unknown)


def test_one_error_of_a_group_does_not_speak_for_the_others() -> None:
    for error in (httpx2.ConnectError("refused"), Rejected("no"), NotSent("no")):
        assert isinstance(classify(ExceptionGroup("both", [error])), Unknown)


def test_an_endless_chain_of_causes_ends() -> None:
    one, other = OrderNotPlaced("one"), OrderNotPlaced("other")
    one.__cause__, other.__cause__ = other, one
    assert isinstance(classify(one), Unknown)


def test_a_class_that_only_looks_like_a_library_error_is_unknown() -> None:
    class ConnectError(Exception):
        pass

    assert isinstance(classify(ConnectError("refused")), Unknown)


def test_unreadable_json_is_unknown_after_the_answer() -> None:
    outcome = classify(_caught(lambda: json.loads("{{{")))
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "body"


def test_hostile_text_in_an_error_is_bounded_and_storable() -> None:
    for error in (ValueError("\0\ud800" + "x" * 50_000), Rejected("\0" * 50_000)):
        reason = classify(error).reason
        assert len(reason) <= RAW_TEXT + len("ValueError: ")
        assert "\0" not in reason
        reason.encode()


def test_an_error_that_cannot_describe_itself_is_still_read() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert isinstance(classify(Broken()), Unknown)


# -- Results -------------------------------------------------------------------------


class Refund(BaseModel):
    refund_id: str
    amount: Decimal
    external_ref: str | None = None


@dataclass
class Receipt:
    at: datetime
    lines: tuple[Decimal, ...]


class Colour(Enum):
    RED = "red"


def test_ordinary_results_become_json() -> None:
    assert encode_result(None) == (None, None)
    assert encode_result(True) == (True, None)
    assert encode_result({"a": [1, 2.5, "x"]}) == ({"a": [1, 2.5, "x"]}, None)
    assert encode_result(Refund(refund_id="re_1", amount=Decimal("1.50")))[0] == {
        "refund_id": "re_1",
        "amount": "1.50",
        "external_ref": None,
    }
    receipt = Receipt(at=datetime(2027, 1, 2, tzinfo=UTC), lines=(Decimal("0.10"),))
    assert encode_result(receipt)[0] == {"at": "2027-01-02T00:00:00Z", "lines": ["0.10"]}
    assert encode_result([Colour.RED, date(2027, 1, 2), timedelta(hours=1), {1}])[0] == [
        "red",
        "2027-01-02",
        "PT1H",
        [1],
    ]


@pytest.mark.parametrize(
    "value",
    [
        object(),
        b"\xff",
        "a\0b",
        {"a\0": 1},
        "\ud800",
        float("nan"),
        [float("inf")],
        2**64,
        "x" * 300_000,
        {"deep": functools.reduce(lambda inner, _: [inner], range(50), list[object]())},
    ],
)
def test_what_cannot_be_stored_is_refused(value: object) -> None:
    with pytest.raises(UnreadableResult, match="cannot be stored"):
        encode_result(value)


def test_a_result_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnreadableResult):
        encode_result(loop)


def test_the_reference_is_the_results_own_field() -> None:
    assert encode_result(Refund(refund_id="1", amount=Decimal(1), external_ref="re_1"))[1] == "re_1"
    assert encode_result({"external_ref": 17})[1] == "17"
    assert encode_result({"external_ref": None})[1] is None


def test_a_reference_that_the_tool_recorded_wins_over_the_field() -> None:
    with noting_references():
        external_ref("re_1")
        external_ref("re_2")
        assert encode_result({"external_ref": "field"})[1] == "re_2"
    assert encode_result(None)[1] is None


def test_a_reference_recorded_outside_a_call_is_ignored() -> None:
    external_ref("re_1")
    assert encode_result(None) == (None, None)


@pytest.mark.parametrize("reference", ["re\0", "\ud800", "x" * 256])
def test_an_unstorable_reference_is_refused(reference: str) -> None:
    with noting_references():
        external_ref(reference)
        with pytest.raises(UnreadableResult):
            encode_result(None)
