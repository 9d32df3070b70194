"""A Stripe refund is made once, whatever is lost on the way.

Against npm's stripe-stateful-mock, which honours keys, and PyPI's localstripe, which ignores
them, each in a process of its own; effects are counted by asking them.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.calls import Operation
from tests.conformance.targets.fault_proxy import (
    AnswerInstead,
    FaultProxy,
    HalfBody,
    HoldAnswer,
    LandLate,
    LoseAnswer,
    ResetBefore,
)
from tests.conformance.targets.loopback import free_port
from tests.conformance.targets.stripes import API_KEY, Localstripe, StatefulStripe, Stripe
from tests.processes import Program
from tools import EffectType
from tools.catalog.stripe_refunds import refund_tool
from tools.errors import InvalidArguments
from tools.outcome import Committed, Refused, Unknown, Unsent

MISMATCH = b'{"error": {"type": "idempotency_error", "message": "other parameters"}}'
IN_USE = b'{"error": {"type": "idempotency_error", "code": "idempotency_key_in_use"}}'


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stripe]:
    with StatefulStripe(log_dir=tmp_path_factory.mktemp("stateful")) as stripe:
        yield stripe


@pytest.fixture(scope="module")
def localstripe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Localstripe]:
    with Localstripe(log_dir=tmp_path_factory.mktemp("localstripe")) as stripe:
        yield stripe


@pytest.fixture
def proxy(stateful: Stripe, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setenv("STRIPE_API_KEY", API_KEY)
    with FaultProxy(stateful.url) as fault_proxy:
        yield fault_proxy


@pytest.fixture
def charge(stateful: Stripe) -> str:
    return stateful.charge(100_00)


@pytest.fixture
def refund(proxy: FaultProxy, charge: str) -> Operation:
    """One operation that refunds a part of a charge at the Stripe that honours keys."""
    refund_tool(account="acct_1", of="charge", api_base=proxy.url)
    return Operation("stripe_refund", {"charge": charge, "amount": 10_00})


def test_a_refund_is_one_request_with_key_and_operation_id(
    refund: Operation, charge: str, proxy: FaultProxy, stateful: Stripe
) -> None:
    outcome = refund.send()
    assert isinstance(outcome, Committed)
    (made,) = stateful.refunds(charge)
    assert made["metadata"] == {"operation_id": refund.id}
    assert outcome.external_ref == made["id"]
    assert isinstance(outcome.result, dict)
    assert (outcome.result["amount"], outcome.result["status"]) == (10_00, "succeeded")
    (seen,) = proxy.seen(method="POST")
    assert seen.headers["Idempotency-Key"] == refund.id


@pytest.mark.parametrize("fault", [LoseAnswer(), LoseAnswer(reset=True), HalfBody()])
def test_a_lost_answer_is_unknown_found_and_one_refund(
    fault: LoseAnswer | HalfBody,
    refund: Operation,
    charge: str,
    proxy: FaultProxy,
    stateful: Stripe,
) -> None:
    proxy.next(fault, method="POST")
    assert isinstance(refund.send(), Unknown)
    found = refund.look_up()
    (made,) = stateful.refunds(charge)
    assert (found.verdict, found.external_ref) == ("committed", made["id"])
    again = refund.send()
    assert isinstance(again, Committed)
    assert again.result == found.result
    assert len(stateful.refunds(charge)) == 1
    assert proxy.forwarded(method="POST") == 2


def test_an_answer_after_the_deadline_is_unknown_and_found(
    refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(HoldAnswer(), method="POST")
    assert isinstance(refund.send(seconds=0.5), Unknown)
    proxy.release()
    assert refund.look_up().verdict == "committed"


def test_a_request_that_lands_late_makes_no_second_refund_under_the_same_key(
    refund: Operation, charge: str, proxy: FaultProxy, stateful: Stripe
) -> None:
    proxy.next(LandLate(), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert refund.look_up().verdict == "not_found"
    assert isinstance(refund.send(), Committed)
    proxy.release()
    proxy.wait_until_forwarded(2, method="POST")
    assert len(stateful.refunds(charge)) == 1


def test_what_stripe_refuses_is_rejected_and_replayed(
    proxy: FaultProxy, charge: str, stateful: Stripe
) -> None:
    refund_tool(account="acct_1", of="charge", api_base=proxy.url)
    too_much = Operation("stripe_refund", {"charge": charge, "amount": 200_00})
    refused = too_much.send()
    assert isinstance(refused, Refused)
    assert "greater than unrefunded amount" in refused.reason
    assert too_much.send() == refused
    missing = Operation("stripe_refund", {"charge": "ch_none", "amount": 1}).send()
    assert isinstance(missing, Refused)
    assert stateful.refunds(charge) == []


def test_a_key_known_with_other_parameters_is_no_rejection(
    refund: Operation, charge: str, stateful: Stripe
) -> None:
    refund.send()
    other = Operation("stripe_refund", {"charge": charge, "amount": 11_00}, id=refund.id)
    outcome = other.send()
    assert isinstance(outcome, Unknown)
    assert "with other parameters; a person must compare" in outcome.reason
    assert other.look_up().verdict == "indeterminate"
    assert len(stateful.refunds(charge)) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error": {"type": "api_error", "message": "?"}}'),
        (503, b"<html>"),
        (429, b'{"error": {"type": "invalid_request_error", "code": "rate_limit"}}'),
        (409, IN_USE),
        (400, MISMATCH),
        (404, b"<html>not found</html>"),
        (404, b'{"error": {"message": "a gateway routes nothing there"}}'),
        (400, b'{"error": "?"}'),
        (302, b"{}"),
        (200, b"<html>"),
        (200, b"{}"),
    ],
)
def test_every_answer_without_a_documented_meaning_is_unknown(
    status: int, body: bytes, refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(AnswerInstead(status=status, body=body), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert proxy.forwarded(method="POST") == 1


def test_a_missing_or_refused_api_key_executed_nothing(
    refund: Operation, charge: str, stateful: Stripe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "rk_wrong")
    refused = refund.send()
    monkeypatch.delenv("STRIPE_API_KEY")
    missing = refund.send()
    assert isinstance(refused, Unsent)
    assert isinstance(missing, Unsent)
    assert "STRIPE_API_KEY" in missing.reason
    assert stateful.refunds(charge) == []


def test_a_refused_connection_sent_nothing(charge: str, proxy: FaultProxy) -> None:
    refund_tool(account="acct_1", of="charge", api_base=f"http://127.0.0.1:{free_port()}")
    refund = Operation("stripe_refund", {"charge": charge, "amount": 1})
    assert isinstance(refund.send(), Unsent)
    assert refund.look_up().failed


def test_a_connection_that_breaks_is_not_tried_again_by_the_sdk(
    refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(ResetBefore(), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert proxy.forwarded() == 0


def test_a_home_that_cannot_be_found_is_nothing_sent(
    refund: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK looks for a file of its own before its first request.
    import stripe._telemetry_id as telemetry

    def fail() -> Any:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(telemetry, "get_telemetry_id", fail)
    assert isinstance(refund.send(), Unsent)
    assert proxy.forwarded() == 0


def test_a_missing_sdk_sent_nothing_and_names_its_extra(
    refund: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stripe", None)
    outcome = refund.send()
    assert isinstance(outcome, Unsent)
    assert 'pip install "agentops[stripe]"' in outcome.reason


def test_the_sdk_is_not_loaded_before_a_call(tmp_path: Path) -> None:
    code = """
import sys
from tools.catalog.stripe_refunds import refund_tool
refund_tool(account="acct_1")
assert "stripe" not in sys.modules
"""
    with Program("-c", code, env=os.environ, log=tmp_path / "declare.log") as declare:
        assert declare.wait() == 0, declare.said


def test_a_look_up_reads_the_list_to_its_end(
    refund: Operation, charge: str, proxy: FaultProxy, stateful: Stripe
) -> None:
    proxy.next(LoseAnswer(), method="POST")
    refund.send()
    for _ in range(100):
        stateful.refund(charge, 1)
    assert refund.look_up().verdict == "committed"
    assert proxy.forwarded(method="GET") == 2


def test_a_list_that_breaks_off_is_no_negative(
    refund: Operation, charge: str, proxy: FaultProxy, stateful: Stripe
) -> None:
    for _ in range(101):
        stateful.refund(charge, 1)
    proxy.next(AnswerInstead(status=500), path="/v1/refunds?charge=", times=1)
    assert refund.look_up().failed
    proxy.next(AnswerInstead(status=200, body=b'{"object": "list", "data": []}'), method="GET")
    assert refund.look_up().failed
    assert refund.look_up().verdict == "not_found"


def test_a_stripe_that_ignores_keys_is_asked_once_and_looked_up(
    localstripe: Stripe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", API_KEY)
    charge = localstripe.charge(100_00)
    with FaultProxy(localstripe.url) as proxy:
        refund_tool(
            account="acct_1",
            of="charge",
            api_base=proxy.url,
            effect_type=EffectType.NON_IDEMPOTENT_WRITE,
            idempotency_support="none",
        )
        refund = Operation("stripe_refund", {"charge": charge, "amount": 10_00})
        proxy.next(LoseAnswer(), method="POST")
        assert isinstance(refund.send(), Unknown)
        assert refund.look_up().verdict == "committed"
        assert len(localstripe.refunds(charge)) == 1
        # This is what a second send would have done; the look-up tells that too.
        refund.send()
        found = refund.look_up()
        assert len(found.also) == 1
        assert len(localstripe.refunds(charge)) == 2


def test_a_payment_intent_is_refunded_and_looked_up_as_one(
    localstripe: Localstripe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", API_KEY)
    intent, charge = localstripe.payment_intent(100_00)
    refund_tool(account="acct_1", api_base=localstripe.url)
    refund = Operation("stripe_refund", {"payment_intent": intent, "amount": 10_00})
    assert refund.look_up().verdict == "not_found"
    outcome = refund.send()
    assert isinstance(outcome, Committed)
    (made,) = localstripe.refunds(charge)
    assert outcome.external_ref == made["id"]
    assert refund.look_up().external_ref == made["id"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"payment_intent": "ch_1"},
        {"payment_intent": "pi_1/../ch_1"},
        {"payment_intent": "pi_1", "amount": 0},
        {"payment_intent": "pi_1", "amount": "10"},
        {"payment_intent": "pi_1", "reason": "because"},
        {"payment_intent": "pi_1", "charge": "ch_1"},
    ],
)
def test_arguments_that_stripe_could_read_otherwise_are_refused(wrong: dict[str, Any]) -> None:
    refund_tool(account="acct_1")
    with pytest.raises(InvalidArguments):
        Operation("stripe_refund", {"amount": 1} | wrong)
