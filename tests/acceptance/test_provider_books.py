"""What the demo's provider books is never erased, and a key books once."""

from typing import Any

import httpx2
import pytest

from examples.shop.provider_process import ProviderProcess

BOOKED = {"order": "18", "units": 3}


def _book(
    provider: ProviderProcess, http: httpx2.Client, path: str, key: str, **body: Any
) -> httpx2.Response:
    return http.post(
        f"{provider.url}/bookings/{path}",
        json={**BOOKED, "operation_id": key, **body},
        headers={"Idempotency-Key": key},
    )


def test_what_is_taken_back_stands_beside_what_was_booked(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    there = _book(provider, http, "stock", f"{name}-1")
    back = _book(provider, http, "stock/back", f"{name}-2")
    assert (there.json()["units"], back.json()["units"]) == (3, -3)
    ours = [one for one in provider.bookings(order_id="18", book="stock") if name in str(one.key)]
    assert [one.units for one in ours] == [3, -3]
    assert provider.bookings(order_id="17", book="stock") == []


def test_a_key_books_once_and_is_found_by_its_operation(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    first, second = (_book(provider, http, "card", name) for _ in range(2))
    assert second.content == first.content
    assert second.headers["Idempotent-Replayed"] == "true"
    found = http.get(f"{provider.url}/bookings", params={"operation_id": name})
    assert found.json() == [first.json()]


@pytest.mark.parametrize("path", ["card/back", "stock"])
def test_a_key_that_was_used_elsewhere_is_a_mismatch(
    path: str, provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    _book(provider, http, "card", name)
    other = _book(provider, http, path, name)
    assert (other.status_code, other.json()["error"]) == (422, "idempotency_mismatch")


def test_a_fault_may_meet_one_book_alone(
    provider: ProviderProcess, http: httpx2.Client, name: str
) -> None:
    provider.fault("lose_answer", path="/bookings/card/back")
    assert _book(provider, http, "card", f"{name}-1").is_success
    with pytest.raises(httpx2.RemoteProtocolError):
        _book(provider, http, "card/back", f"{name}-2")
    ours = [one for one in provider.bookings(order_id="18", book="card") if name in str(one.key)]
    assert [one.units for one in ours] == [3, -3]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("shelf", {}, 404),
        ("card/forth", {}, 404),
        ("card", {"units": 0}, 400),
        ("card", {"units": -3}, 400),
        ("card", {"units": True}, 400),
        ("card", {"units": "3"}, 400),
        ("card", {"order": ""}, 400),
        ("card", {"more": 1}, 400),
    ],
)
def test_what_does_not_fit_books_nothing(
    path: str,
    body: dict[str, Any],
    status: int,
    provider: ProviderProcess,
    http: httpx2.Client,
    name: str,
) -> None:
    assert _book(provider, http, path, name, **body).status_code == status
    assert http.get(f"{provider.url}/bookings", params={"operation_id": name}).json() == []
