"""The demo's payment provider answers bad input in JSON, by name, and without effect."""

import json
import socket
from contextlib import closing
from typing import Any

import httpx2
import pytest

from examples.shop.provider_process import (
    ProviderProcess,
)
from tests.acceptance.soon import SOON


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"order": None}, "order"),
        ({"order": 17}, "order"),
        ({"order": ""}, "order"),
        ({"order": "1\x00"}, "order"),
        ({"amount": None}, "amount"),
        ({"amount": 12.5}, "amount"),
        ({"amount": "0.00"}, "amount"),
        ({"amount": "-1"}, "amount"),
        ({"amount": "1.005"}, "amount"),
        ({"amount": "1e2"}, "amount"),
        ({"amount": "NaN"}, "amount"),
        ({"amount": "9" * 20}, "amount"),
        ({"amount": "\u0661"}, "amount"),
        ({"operation_id": "two words"}, "operation_id"),
        ({"operation_id": "x" * 256}, "operation_id"),
        ({"ammount": "1.00"}, "ammount"),
    ],
)
def test_a_bad_field_is_named_and_has_no_effect(
    provider: ProviderProcess, http: httpx2.Client, change: dict[str, Any], named: str
) -> None:
    before = len(provider.effects())
    body = {"order": "18", "amount": "1.00", "operation_id": "bad"} | change
    answer = http.post(f"{provider.url}/refunds", json=body, headers={"Idempotency-Key": "bad"})
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert answer.json()["message"].startswith(f"{named} is ")
    assert len(provider.effects()) == before


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"text"', b"\xff", b'{"amount": NaN}', b'{"order": "\\ud800"}', b"[" * 30_000],
)
def test_a_body_that_is_no_json_object_is_refused(
    provider: ProviderProcess, http: httpx2.Client, body: bytes
) -> None:
    answer = http.post(f"{provider.url}/refunds", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "unreadable_body"


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({}, "kind"),
        ({"kind": "loose_answer"}, "kind"),
        ({"kind": ["slow"]}, "kind"),
        ({"kind": "slow", "times": 0}, "times"),
        ({"kind": "slow", "times": 1.5}, "times"),
        ({"kind": "slow", "times": True}, "times"),
        ({"kind": "slow", "seconds": -1}, "seconds"),
        ({"kind": "slow", "seconds": 1e9}, "seconds"),
        ({"kind": "slow", "delay": "soon"}, "delay"),
        ({"kind": "hold", "after_commit": 1}, "after_commit"),
        ({"kind": "reject", "reason": 1}, "reason"),
        ({"kind": "hang", "seconds": 1}, "seconds"),
        ({"kind": "lose_answer", "reset": "yes"}, "reset"),
        ({"kind": "lag"}, "kind"),
        ({"kind": "lag", "path": "/orders", "method": "GET"}, "kind"),
        ({"kind": "first_page", "method": "GET", "seconds": 1}, "seconds"),
        ({"kind": "hang", "path": "/ledger"}, "path"),
        ({"kind": "hang", "path": "/refundsx"}, "path"),
        ({"kind": "hang", "path": 1}, "path"),
        ({"kind": "hang", "method": "get"}, "method"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(
    provider: ProviderProcess, http: httpx2.Client, told: dict[str, Any], named: str
) -> None:
    answer = http.post(f"{provider.url}/faults", json=told)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(f"{named} is ")
    assert http.get(f"{provider.url}/faults").json() == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "unknown_path"),
        ("GET", "/refunds/1", 404, "unknown_path"),
        ("GET", "/orders", 404, "unknown_path"),
        ("GET", "/orders/none", 404, "unknown_order"),
        ("GET", "/orders/a%20b/c", 404, "unknown_order"),
        ("GET", "/orders/%ff", 400, "invalid_request"),
        ("GET", "/refunds?order=17", 400, "invalid_request"),
        ("GET", "/wait?count=some", 400, "invalid_request"),
        ("GET", "/wait?count=nan", 400, "invalid_request"),
        ("GET", "/wait?method=PUT", 400, "invalid_request"),
        ("DELETE", "/refunds", 405, "method_not_allowed"),
        ("PUT", "/orders/17", 405, "method_not_allowed"),
        ("POST", "/ledger", 405, "method_not_allowed"),
        ("GET", "/release", 405, "method_not_allowed"),
        ("PATCH", "/faults", 405, "method_not_allowed"),
        ("OPTIONS", "/refunds", 501, "malformed_request"),
    ],
)
def test_a_wrong_address_or_method_is_answered_in_json(
    provider: ProviderProcess,
    http: httpx2.Client,
    method: str,
    path: str,
    status: int,
    code: str,
) -> None:
    answer = http.request(method, f"{provider.url}{path}")
    assert answer.status_code == status
    assert answer.json()["error"] == code


def test_a_key_that_cannot_be_one_is_refused(provider: ProviderProcess, name: str) -> None:
    answer = provider.place_refund(name, key="k" * 256)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("Idempotency-Key is ")
    assert provider.effects(name) == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /refunds HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", b"413"),
        (b"POST /refunds HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /refunds HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
    ],
)
def test_a_malformed_request_ends_its_connection(
    provider: ProviderProcess, head: bytes, status: bytes
) -> None:
    with closing(socket.create_connection(("127.0.0.1", provider.port), timeout=SOON)) as raw:
        raw.sendall(head)
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert status in answer.split(b"\r\n", 1)[0]
    assert json.loads(answer.rsplit(b"\r\n\r\n", 1)[-1])["error"]


def test_half_a_request_is_no_request(provider: ProviderProcess) -> None:
    before = len(provider.requests())
    body = json.dumps({"order": "18", "amount": "1.00", "operation_id": "half"}).encode()
    head = f"POST /refunds HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with closing(socket.create_connection(("127.0.0.1", provider.port), timeout=SOON)) as raw:
        raw.sendall(head + body[:-1])
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(1) == b""
    assert len(provider.requests()) == before
    assert provider.effects("half") == []
