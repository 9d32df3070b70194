"""A tool declared over an HTTP API has one effect, whatever happens on the way.

The API is the shop's payment provider in its own process, with and without respect for keys;
effects are counted in its ledger.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from examples.shop.provider_process import ProviderProcess, provider_process
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
from tests.processes import Program
from tools import EffectType, Provider
from tools.catalog.http_api import FindInList, HttpApi, Says, http_tool
from tools.execution import wait_until_back
from tools.outcome import Committed, Refused, Unknown, Unsent

BOOKS = Provider(
    name="payments",
    account="acct_main",
    idempotency_support="key",
    idempotency_retention=timedelta(hours=24),
    lookup="by_key",
)
REJECTED = Says(422, {"error": "rejected"}, reason="reason")
MISMATCH = Says(422, {"error": "idempotency_mismatch"})
IN_THE_BOOKS = FindInList(
    path="/refunds",
    query={"operation_id": "{operation_id}"},
    ours={"operation_id": "{operation_id}"},
    same={"order": "order_id", "amount": "amount"},
    more=None,
)


class RefundOrder(BaseModel):
    """Refund an order."""

    order_id: str
    amount: str = "12.50"


class Refund(BaseModel):
    refund_id: str
    amount: str


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    with provider_process(tmp_path_factory.mktemp("provider") / "ledger.sqlite3") as process:
        yield process


@pytest.fixture
def proxy(provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(provider.url) as fault_proxy:
        monkeypatch.setenv("BOOKS_URL", fault_proxy.url)
        monkeypatch.setenv("BOOKS_TOKEN", "tok-4711-secret")
        yield fault_proxy
    provider.clear_faults()
    provider.release()


@pytest.fixture
def refund(proxy: FaultProxy) -> Operation:
    """One operation that refunds an order."""
    declare_refund()
    return new_refund()


def books(**changed: Any) -> HttpApi:
    given: dict[str, Any] = {
        "provider": BOOKS,
        "base_url_env": "BOOKS_URL",
        "token_env": "BOOKS_TOKEN",
        "mismatch": (MISMATCH,),
    }
    return HttpApi(**given | changed)


def declare_refund(**changed: Any) -> Callable[..., Any]:
    given: dict[str, Any] = {
        "api": books(),
        "name": "refund",
        "effect_type": EffectType.IDEMPOTENT_WRITE,
        "method": "POST",
        "path": "/refunds",
        "arguments": RefundOrder,
        "body": {"order": "order_id", "amount": "amount"},
        "also": {"operation_id": "{operation_id}"},
        "result": Refund,
        "external_ref": "refund_id",
        "refused": (REJECTED,),
        "look_up": IN_THE_BOOKS,
    }
    return http_tool(**given | changed)


def new_refund(**arguments: Any) -> Operation:
    return Operation("refund", {"order_id": "18"} | arguments, id=uuid.uuid4().hex)


# -- The plain call -------------------------------------------------------------------


def test_a_declared_write_is_one_request_with_key_token_and_reference(
    refund: Operation, proxy: FaultProxy, provider: ProviderProcess
) -> None:
    outcome = refund.send()
    assert isinstance(outcome, Committed)
    (effect,) = provider.effects(refund.id)
    assert outcome.external_ref == effect.refund_id
    assert outcome.result == {"refund_id": effect.refund_id, "amount": "12.50"}
    (seen,) = proxy.seen()
    assert seen.headers["Idempotency-Key"] == refund.id
    assert seen.headers["Authorization"] == "Bearer tok-4711-secret"
    assert "Fence-Token" not in seen.headers


def test_an_api_that_wants_it_gets_the_fencing_token_and_a_quoted_key(
    proxy: FaultProxy, provider: ProviderProcess
) -> None:
    api = books(fence_header="Fence-Token", key_header="X-Key", quoted_key=True)
    declare_refund(api=api)
    refund = new_refund()
    assert isinstance(refund.send(), Committed)
    (seen,) = proxy.seen()
    assert (seen.headers["X-Key"], seen.headers["Fence-Token"]) == (f'"{refund.id}"', "1")


# -- The answer is lost ---------------------------------------------------------------


@pytest.mark.parametrize("fault", [LoseAnswer(), LoseAnswer(reset=True), HalfBody()])
def test_a_lost_answer_is_unknown_found_and_one_effect(
    fault: LoseAnswer | HalfBody,
    refund: Operation,
    proxy: FaultProxy,
    provider: ProviderProcess,
) -> None:
    proxy.next(fault, method="POST")
    assert isinstance(refund.send(), Unknown)
    found = refund.look_up()
    (effect,) = provider.effects(refund.id)
    assert (found.verdict, found.external_ref) == ("committed", effect.refund_id)
    assert found.result == {"refund_id": effect.refund_id, "amount": "12.50"}
    again = refund.send()
    assert isinstance(again, Committed)
    assert again.external_ref == effect.refund_id
    assert len(provider.effects(refund.id)) == 1
    first, second = proxy.seen(method="POST")
    assert first.body == second.body


def test_an_answer_after_the_deadline_is_unknown_and_heard_late(
    refund: Operation, proxy: FaultProxy, provider: ProviderProcess
) -> None:
    proxy.next(HoldAnswer(), method="POST")
    assert isinstance(refund.send(seconds=0.5), Unknown)
    proxy.release()
    assert refund.look_up().verdict == "committed"
    assert len(provider.effects(refund.id)) == 1


def test_a_request_that_lands_late_is_not_found_before_and_found_after(
    refund: Operation, proxy: FaultProxy, provider: ProviderProcess
) -> None:
    proxy.next(LandLate(), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert refund.look_up().verdict == "not_found"
    assert isinstance(refund.send(), Committed)  # same key: whichever lands first is the one
    proxy.release()
    proxy.wait_until_forwarded(2, method="POST")
    assert len(provider.effects(refund.id)) == 1


def test_an_unreadable_success_is_unknown(refund: Operation, provider: ProviderProcess) -> None:
    provider.fault("unreadable")
    outcome = refund.send()
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "body"
    assert refund.look_up().verdict == "committed"


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"refund_id": "", "amount": "1"}'])
def test_a_success_without_the_declared_reference_is_unknown(
    body: bytes, refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(AnswerInstead(status=200, body=body), method="POST")
    assert isinstance(refund.send(), Unknown)


def test_an_endless_answer_is_cut_off(refund: Operation, proxy: FaultProxy) -> None:
    proxy.next(AnswerInstead(status=200, body=b" " * 3_000_000), method="POST")
    outcome = refund.send()
    assert isinstance(outcome, Unknown)
    assert "longer than" in outcome.reason


# -- What the provider says -----------------------------------------------------------


def test_only_the_documented_refusal_is_a_rejection(
    refund: Operation, provider: ProviderProcess
) -> None:
    provider.fault("reject", reason="too late")
    assert refund.send() == Refused("too late")
    assert provider.effects(refund.id) == []


@pytest.mark.parametrize("status", [301, 302, 400, 401, 404, 409, 422, 425, 429, 500, 503])
def test_every_other_status_is_unknown(status: int, refund: Operation, proxy: FaultProxy) -> None:
    made = b'{"refund_id": "re_1", "amount": "12.50"}'
    proxy.next(AnswerInstead(status=status, body=made), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert proxy.forwarded(method="POST") == 1


@pytest.mark.parametrize("status", [301, 303, 307, 308])
def test_no_redirect_is_followed(status: int, refund: Operation, proxy: FaultProxy) -> None:
    elsewhere = AnswerInstead(status=status, location=f"{proxy.url}/refunds", forward=False)
    proxy.next(elsewhere, method="POST")
    assert isinstance(refund.send(), Unknown)
    assert proxy.forwarded() == 0


def test_a_500_that_is_kept_for_the_key_stays_unknown_and_is_looked_up(
    refund: Operation, provider: ProviderProcess
) -> None:
    provider.fault("error_500", after_commit=True, sticky=True)
    assert isinstance(refund.send(), Unknown)
    assert isinstance(refund.send(), Unknown)
    assert refund.look_up().verdict == "committed"
    assert len(provider.effects(refund.id)) == 1


def test_an_answer_documented_as_not_executed_may_be_sent_again(proxy: FaultProxy) -> None:
    declare_refund(api=books(not_executed=(Says(429),)))
    refund = new_refund()
    proxy.next(AnswerInstead(status=429, forward=False), method="POST")
    assert isinstance(refund.send(), Unsent)
    assert isinstance(refund.send(), Committed)


def test_a_key_that_is_in_use_is_unknown(refund: Operation, provider: ProviderProcess) -> None:
    provider.fault("hold")
    assert isinstance(refund.send(seconds=0.5), Unknown)
    in_use = refund.send()
    assert isinstance(in_use, Unknown)
    assert "409" in in_use.reason
    provider.release()


def test_a_key_known_with_other_arguments_is_refused_loudly_and_not_as_a_rejection(
    refund: Operation, provider: ProviderProcess
) -> None:
    provider.place_refund(refund.id, amount="1.00").raise_for_status()
    outcome = refund.send()
    assert isinstance(outcome, Unknown)
    assert "with other arguments; a person must compare" in outcome.reason
    found = refund.look_up()
    assert found.verdict == "indeterminate"
    assert "amount differ" in found.why
    assert len(provider.effects(refund.id)) == 1


def test_what_exists_already_is_adopted_if_it_is_what_was_asked_for(
    refund: Operation, proxy: FaultProxy, provider: ProviderProcess
) -> None:
    proxy.next(LoseAnswer(), method="POST")
    refund.send()
    proxy.next(AnswerInstead(status=409, body=b'{"error": "exists"}', forward=False))
    assert isinstance(refund.send(), Unknown)
    found = refund.look_up()
    assert found.verdict == "committed"
    assert [found.external_ref] == [one.refund_id for one in provider.effects(refund.id)]


# -- Nothing left ---------------------------------------------------------------------


def test_a_refused_connection_sent_nothing(
    refund: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOKS_URL", f"http://127.0.0.1:{free_port()}")
    assert isinstance(refund.send(), Unsent)
    assert refund.look_up().failed


def test_a_connection_that_breaks_before_the_target_heard_is_unknown_all_the_same(
    refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(ResetBefore(), method="POST")
    assert isinstance(refund.send(), Unknown)
    assert proxy.forwarded() == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("BOOKS_TOKEN", ""), ("BOOKS_TOKEN", "a\nb-secret"), ("BOOKS_URL", "ftp://nowhere")],
)
def test_a_wrong_environment_sends_nothing_and_shows_no_value(
    name: str, value: str, refund: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    outcome = refund.send()
    assert isinstance(outcome, Unsent)
    assert name in outcome.reason
    assert "secret" not in outcome.reason


def test_the_token_is_not_in_what_is_told_of_an_answer(
    refund: Operation, proxy: FaultProxy
) -> None:
    proxy.next(AnswerInstead(status=401, body=b"bad token tok-4711-secret"), method="POST")
    outcome = refund.send()
    assert isinstance(outcome, Unknown)
    assert "bad token [redacted]" in outcome.reason
    assert "4711" not in outcome.reason


IN_A_PROCESS_OF_ITS_OWN = """
from tests.conformance.test_http_api import declare_refund, new_refund

declare_refund()
print(new_refund().send())
"""


def test_no_proxy_of_the_environment_stands_between(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    log = tmp_path / "sender.log"
    with Program("-c", IN_A_PROCESS_OF_ITS_OWN, env=os.environ, log=log) as sender:
        assert sender.wait() == 0, sender.said
        assert "Committed" in sender.said


def test_a_slow_name_service_makes_nothing_leave_after_the_deadline(
    refund: Operation, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline_passed = threading.Event()
    resolve = socket.getaddrinfo

    def resolve_slowly(*asked: Any, **options: Any) -> Any:
        deadline_passed.wait()
        return resolve(*asked, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_slowly)
    assert isinstance(refund.send(seconds=0.2), Unknown)
    deadline_passed.set()
    assert wait_until_back(seconds=10)
    (late,) = refund.late
    assert isinstance(late, Unsent)
    assert "could leave" in late.reason
    assert proxy.forwarded() == 0
