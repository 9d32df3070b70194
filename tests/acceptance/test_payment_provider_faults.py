"""The demo's payment provider misbehaves exactly as told, and says when it has."""

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor

import httpx2
import pytest

from examples.shop.provider_process import (
    Kind,
    ProviderDidNotSee,
    ProviderProcess,
)
from tests.acceptance.soon import SOON, eventually

# -- Faults ---------------------------------------------------------------------


def test_lose_answer_commits_and_says_nothing(provider: ProviderProcess, name: str) -> None:
    provider.fault("lose_answer")
    with pytest.raises(httpx2.RemoteProtocolError):
        provider.place_refund(name)
    assert len(provider.effects(name)) == 1
    assert provider.place_refund(name).headers["Idempotent-Replayed"] == "true"


def test_lose_answer_resets_the_connection_if_told(provider: ProviderProcess, name: str) -> None:
    provider.fault("lose_answer", reset=True)
    with pytest.raises(httpx2.ReadError):
        provider.place_refund(name)
    assert len(provider.effects(name)) == 1


def test_slow_commits_before_it_answers_and_its_key_is_in_flight(
    provider: ProviderProcess, name: str
) -> None:
    provider.fault("slow", seconds=60.0)
    with pytest.raises(httpx2.ReadTimeout):
        provider.place_refund(name, timeout=0.2)
    assert eventually(lambda: len(provider.effects(name)) == 1)
    again = provider.place_refund(name)
    assert again.status_code == 409
    assert again.json()["error"] == "key_in_flight"


def test_slow_answers_in_the_end(provider: ProviderProcess, name: str) -> None:
    provider.fault("slow", seconds=0.3)
    started = time.monotonic()
    assert provider.place_refund(name).is_success
    assert time.monotonic() - started >= 0.3
    assert provider.place_refund(name).headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("sticky", [False, True])
def test_error_500_has_an_effect_and_is_replayed_only_if_told(
    provider: ProviderProcess, name: str, after_commit: bool, sticky: bool
) -> None:
    provider.fault("error_500", after_commit=after_commit, sticky=sticky)
    assert provider.place_refund(name).status_code == 500
    assert len(provider.effects(name)) == int(after_commit)
    again = provider.place_refund(name)
    assert again.status_code == (500 if sticky else 200)
    assert ("Idempotent-Replayed" in again.headers) == (sticky or after_commit)
    assert len(provider.effects(name)) == (int(after_commit) if sticky else 1)


def test_late_lands_after_the_look_up_found_nothing(provider: ProviderProcess, name: str) -> None:
    provider.fault("late", seconds=1.5)
    with pytest.raises(httpx2.RemoteProtocolError):
        provider.place_refund(name)
    assert provider.look_up(name) == []
    provider.wait_until_landed()
    assert len(provider.look_up(name)) == 1


def test_a_late_request_and_its_repetition_make_one_effect(
    provider: ProviderProcess, name: str
) -> None:
    provider.fault("late", seconds=0.5)
    with pytest.raises(httpx2.RemoteProtocolError):
        provider.place_refund(name)
    assert provider.place_refund(name).is_success
    provider.wait_until_landed()
    assert len(provider.effects(name)) == 1


def test_a_delayed_request_lands_after_its_caller_gave_up(
    provider: ProviderProcess, name: str
) -> None:
    provider.fault("hold", delay=1.0, after_commit=True)
    with pytest.raises(httpx2.ReadTimeout):
        provider.place_refund(name, timeout=0.1)
    assert provider.effects(name) == []
    provider.wait_until_held()
    assert len(provider.effects(name)) == 1


def test_reset_before_resets_without_effect(provider: ProviderProcess, name: str) -> None:
    provider.fault("reset_before")
    with pytest.raises(httpx2.ReadError):
        provider.place_refund(name)
    assert provider.effects(name) == []
    assert "Idempotent-Replayed" not in provider.place_refund(name).headers


def test_unreadable_commits_and_answers_half_of_the_json(
    provider: ProviderProcess, name: str
) -> None:
    provider.fault("unreadable")
    answer = provider.place_refund(name)
    assert answer.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        answer.json()
    assert len(provider.effects(name)) == 1


def test_reject_refuses_for_the_reason_given(provider: ProviderProcess, name: str) -> None:
    provider.fault("reject", reason="the card was closed")
    answers = [provider.place_refund(name) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["reason"] == "the card was closed"
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert provider.effects(name) == []


def test_hang_never_answers_and_has_no_effect(provider: ProviderProcess, name: str) -> None:
    provider.fault("hang")
    with pytest.raises(httpx2.ReadTimeout):
        provider.place_refund(name, timeout=0.3)
    assert provider.effects(name) == []
    assert provider.place_refund(name).is_success


@pytest.mark.parametrize("after_commit", [False, True])
def test_hold_answers_once_released(
    provider: ProviderProcess, name: str, after_commit: bool
) -> None:
    provider.fault("hold", after_commit=after_commit)
    with ThreadPoolExecutor(1) as pool:
        held: Future[httpx2.Response] = pool.submit(provider.place_refund, name)
        provider.wait_until_held()
        assert len(provider.effects(name)) == int(after_commit)
        assert provider.place_refund(name).status_code == 409
        assert provider.release() == 1
        assert held.result(timeout=SOON).is_success
    assert len(provider.effects(name)) == 1
    assert provider.release() == 0


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("lose_answer", httpx2.RemoteProtocolError),
        ("late", httpx2.RemoteProtocolError),
        ("reset_before", httpx2.ReadError),
        ("hang", httpx2.ReadTimeout),
        ("hold", httpx2.ReadTimeout),
        ("slow", httpx2.ReadTimeout),
    ],
)
@pytest.mark.parametrize("path", ["/refunds", "/orders"])
def test_look_ups_meet_faults_that_give_no_answer(
    provider: ProviderProcess, http: httpx2.Client, kind: Kind, raised: type[Exception], path: str
) -> None:
    provider.fault(kind, path=path, method="GET")
    url = f"{provider.url}/orders/17" if path == "/orders" else f"{provider.url}/refunds"
    with pytest.raises(raised):
        http.get(url, timeout=0.2)
    assert http.get(url).is_success


@pytest.mark.parametrize(
    ("kind", "status"), [("error_500", 500), ("unreadable", 200), ("reject", 422)]
)
def test_look_ups_meet_faults_that_answer_wrongly(
    provider: ProviderProcess, http: httpx2.Client, kind: Kind, status: int
) -> None:
    provider.fault(kind, path="/orders/17", method="GET")
    assert http.get(f"{provider.url}/orders/18").json()["order_id"] == "18"
    wrong = http.get(f"{provider.url}/orders/17")
    assert wrong.status_code == status
    assert b"currency" not in wrong.content
    assert http.get(f"{provider.url}/orders/17").json()["order_id"] == "17"


def test_a_look_up_that_lags_does_not_see_the_newest_refunds(
    provider: ProviderProcess, name: str
) -> None:
    assert provider.place_refund(name).is_success
    provider.fault("lag", method="GET", seconds=600.0)
    assert provider.look_up(name) == []
    assert len(provider.look_up(name)) == 1
    provider.fault("lag", method="GET", seconds=0.01)
    assert eventually(lambda: len(provider.look_up(name)) == 1)


def test_a_first_page_lists_the_oldest_refund_and_says_that_there_are_more(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    for _ in range(2):
        assert provider.place_refund(name, key=None).is_success
    url = f"{provider.url}/refunds?operation_id={name}"
    provider.fault("first_page", method="GET")
    page, whole = http.get(url), http.get(url)
    assert page.headers["Has-More"] == "true"
    assert "Has-More" not in whole.headers
    assert page.json() == whole.json()[:1]
    assert len(whole.json()) == 2


def test_a_key_that_was_forgotten_is_executed_again(provider: ProviderProcess, name: str) -> None:
    assert provider.place_refund(name).is_success
    assert provider.forget_keys() >= 1
    assert "Idempotent-Replayed" not in provider.place_refund(name).headers
    assert len(provider.effects(name)) == 2
    assert provider.place_refund(name).headers["Idempotent-Replayed"] == "true"


def test_faults_are_used_in_the_order_told_and_so_often_as_told(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    provider.fault("error_500", times=2)
    provider.fault("reject")
    told = http.get(f"{provider.url}/faults").json()
    assert [(fault["kind"], fault["left"]) for fault in told] == [("error_500", 2), ("reject", 1)]
    statuses = [provider.place_refund(f"{name}-{n}").status_code for n in range(4)]
    assert statuses == [500, 500, 422, 200]


def test_faults_can_be_taken_back(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    provider.fault("error_500", times=9)
    provider.clear_faults()
    assert http.get(f"{provider.url}/faults").json() == []
    assert provider.place_refund(name).is_success


# -- Waiting --------------------------------------------------------------------


def test_wait_returns_when_the_request_has_arrived_although_it_is_not_answered(
    provider: ProviderProcess, name: str
) -> None:
    so_far = len(provider.requests(path="/refunds", method="POST"))
    provider.fault("hold")
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(provider.wait_for_requests, so_far + 1)
        held = pool.submit(provider.place_refund, name)
        waiting.result(timeout=SOON)
        assert provider.requests()[-1].outcome == "pending"
        provider.wait_until_held()
        provider.release()
        assert held.result(timeout=SOON).is_success


def test_a_wait_in_vain_says_so(provider: ProviderProcess) -> None:
    with pytest.raises(ProviderDidNotSee, match="1000000 requests did not happen within"):
        provider.wait_for_requests(1_000_000, seconds=0.05)
    with pytest.raises(ProviderDidNotSee, match="held"):
        provider.wait_until_held(seconds=0.05)
