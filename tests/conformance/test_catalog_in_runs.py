"""A run that uses a ready-made tool ends with one effect, or in front of a person who knows why."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.shop.provider_process import ProviderProcess, provider_process
from runs import ToolCall
from runs.models import AgentRun
from runs.state import RunState
from tests.conformance.targets.fault_proxy import FaultProxy, LandLate, LoseAnswer
from tests.conformance.targets.mail import MailServer
from tests.conformance.targets.stripes import API_KEY, Localstripe
from tests.conformance.test_http_api import declare_refund
from tests.database.kit import ON_DATABASE, call_once, drive, drive_when_due, operation_of
from tools import Approve, EffectType
from tools.catalog.smtp_email import email_tool
from tools.catalog.stripe_refunds import refund_tool

pytestmark = ON_DATABASE

Start = Callable[..., AgentRun]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path / "ledger.sqlite3") as process:
        yield process


@pytest.fixture
def books(provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What stands between the tool `refund` and its provider."""
    monkeypatch.setenv("BOOKS_TOKEN", "tok-4711-secret")
    with FaultProxy(provider.url) as proxy:
        monkeypatch.setenv("BOOKS_URL", proxy.url)
        yield proxy


@pytest.fixture
def start_refund(start: Start) -> Start:

    def start_one(**declared: Any) -> AgentRun:
        declare_refund(**declared)
        call = ToolCall("refund", order_id="18", amount="12.50")
        return start(decider=call_once(call), tools=("refund",))

    return start_one


def drive_on(run: AgentRun, *, until: RunState, most: int = 12) -> None:
    """Let everything come due, again and again, until the run is there."""
    for _ in range(most):
        if run.state == until:
            return
        drive_when_due(run)
    assert run.state == until, (run.state, run.error)


def test_a_lost_answer_of_an_http_api_is_settled_without_a_person(
    books: FaultProxy, provider: ProviderProcess, start_refund: Start
) -> None:
    books.next(LoseAnswer(), method="POST")
    run = start_refund()
    drive(run)
    drive_on(run, until=RunState.COMPLETED)
    (effect,) = provider.effects()
    assert operation_of(run).external_ref == effect.refund_id
    assert books.forwarded(method="POST") == 1


def test_a_request_that_lands_late_is_sent_again_under_its_key_and_is_one_effect(
    books: FaultProxy, provider: ProviderProcess, start_refund: Start
) -> None:
    books.next(LandLate(), method="POST")
    run = start_refund()
    drive(run)
    drive_on(run, until=RunState.COMPLETED)
    books.release()
    books.wait_until_forwarded(2, method="POST")
    assert len(provider.effects()) == 1


def test_a_refusal_ends_the_call_with_the_providers_reason(
    books: FaultProxy, provider: ProviderProcess, start_refund: Start
) -> None:
    provider.fault("reject", reason="the order was refunded by hand")
    run = start_refund()
    drive(run)
    assert run.state == RunState.FAILED
    assert "the order was refunded by hand" in run.error
    assert provider.effects() == []


def test_a_key_that_somebody_else_used_ends_in_front_of_a_person(
    books: FaultProxy, provider: ProviderProcess, start_refund: Start
) -> None:
    run = start_refund(reconcile_within=timedelta(milliseconds=1))
    books.next(LandLate(), method="POST")
    drive(run)
    provider.place_refund(operation_of(run).id, amount="1.00").raise_for_status()
    drive_on(run, until=RunState.WAITING_FOR_RESOLUTION)
    assert [effect.cents for effect in provider.effects()] == [1_00]
    seen = operation_of(run).observations.values_list("detail", flat=True)
    assert any("amount differ" in detail for detail in seen)


@pytest.mark.parametrize("fault", [LoseAnswer(), LandLate()])
def test_a_stripe_that_ignores_keys_is_sent_one_request(
    fault: LoseAnswer | LandLate, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", API_KEY)
    with Localstripe(log_dir=tmp_path) as stripe, FaultProxy(stripe.url) as proxy:
        charge = stripe.charge(100_00)
        refund_tool(
            account="acct_1",
            of="charge",
            api_base=proxy.url,
            effect_type=EffectType.NON_IDEMPOTENT_WRITE,
            idempotency_support="none",
        )
        proxy.next(fault, method="POST")
        call = ToolCall("stripe_refund", charge=charge, amount=10_00)
        run = start(decider=call_once(call), tools=("stripe_refund",))
        drive(run)
        drive_when_due(run)
        if isinstance(fault, LandLate):
            assert operation_of(run).status == "UNKNOWN"
            assert proxy.forwarded(method="POST") == 0
            proxy.release()
            proxy.wait_until_forwarded(1, method="POST")
        drive_on(run, until=RunState.COMPLETED)
        (made,) = stripe.refunds(charge)
        assert operation_of(run).external_ref == made["id"]


def test_an_email_whose_reply_is_lost_goes_to_a_person_and_not_out_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MailServer(log_dir=tmp_path) as server:
        monkeypatch.setenv("SMTP_HOST", server.address)
        email_tool(
            sender="shop@example.com", security="none", approval_policy=Approve(when="false")
        )
        run = start(decider=call_once(lost_email()), tools=("send_email",))
        drive(run)
        drive_on(run, until=RunState.WAITING_FOR_RESOLUTION)
        operation = operation_of(run)
        (taken,) = server.taken(f"<{operation.id}@example.com>")
        assert taken.to == ("lost@example.com",)
        seen: Any = operation.observations.values_list("detail", flat=True)
        assert f"<{operation.id}@example.com>" in seen[0]


def lost_email() -> ToolCall:
    return ToolCall("send_email", to=["lost@example.com"], subject="Your order", text="Soon.")
