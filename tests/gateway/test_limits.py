"""How large a request may be: a real web process, on every door."""

import json
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx2
import pytest

from agentops.heads import LONGEST
from agentops.limits import LONGEST_ADDRESS, LONGEST_HEADERS, MOST_HEADERS, largest_body
from tests.gateway.conftest import Gateway

pytestmark = pytest.mark.django_db(transaction=True)
# The API, the MCP server, the admin, and an address that nobody serves.
DOORS = ("/api/v1/operations/", "/mcp", "/admin/login/", "/nothing/")
PIECE = b"x" * 65_536


@pytest.fixture
def headers(new_token: Callable[..., str]) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {new_token()}",
        "Content-Type": "application/json",
        "Idempotency-Key": "k",
    }


def problem_of(answer: httpx2.Response) -> tuple[int, str]:
    assert answer.headers["Content-Type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["fix"]
    return answer.status_code, said["field"]


def test_what_is_too_large_is_refused_on_every_door(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    content, big = b"x" * (largest_body() + 1), {"X-Big": "x" * LONGEST_HEADERS}
    many = {f"X-{number}": "x" for number in range(MOST_HEADERS + 1)}
    with httpx2.Client(headers=headers) as client:
        for door in DOORS:
            address = gateway.one + door
            assert problem_of(client.post(address, content=content)) == (413, "body")
            long = f"{address}?q={'x' * LONGEST_ADDRESS}"
            assert problem_of(client.post(long, content=b"{}")) == (414, "address")
            for more in (big, many):
                answer = client.post(address, content=b"{}", headers=more)
                assert problem_of(answer) == (431, "headers")
            assert client.post(address, content=b"{}").status_code not in {413, 414, 431}


def test_a_body_that_says_no_length_is_measured_as_it_comes(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        while sent < 64 * largest_body():
            sent += len(PIECE)
            yield PIECE

    with httpx2.Client(headers=headers) as client:
        for door in DOORS:
            sent = 0
            try:
                answer = client.post(gateway.one + door, content=pieces())
            except httpx2.TransportError:
                # The answer was not read before the connection was seen to be closed.
                pass
            else:
                assert answer.status_code == 413
            assert sent < 64 * largest_body(), door


def test_a_request_that_names_itself_twice_is_refused(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    for name in ("Idempotency-Key", "Authorization"):
        twice = [*headers.items(), (name.lower(), "another")]
        answer = httpx2.post(gateway.one + "/api/v1/operations/", content=b"{}", headers=twice)
        assert problem_of(answer) == (400, name)


def test_what_fits_a_smaller_limit_is_told_that_one(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    headers["Authorization"] = headers["Authorization"].replace("Bearer", "Token")
    body = json.dumps({"tool": "ring", "arguments": {"order_id": "x" * 300_000}})
    with httpx2.Client(headers=headers) as client:
        answer = client.post(gateway.one + "/api/v1/operations/", content=body)
    assert problem_of(answer) == (413, "body")


@pytest.mark.parametrize(
    "endless", [b"GET / HTTP/1.1\r\nX: ", b"GET /", b"POST / HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_a_head_without_an_end_is_cut_off(gateway: Gateway, endless: bytes) -> None:
    """And the process serves on."""
    at = urlsplit(gateway.one)
    piece = b"X-One: more\r\n" * 5_000 if endless.endswith(b"\n") else PIECE
    taken = 0
    with socket.create_connection((at.hostname, at.port)) as caller:
        caller.sendall(endless)
        try:
            while taken < 64 * LONGEST:
                caller.sendall(piece)
                taken += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert taken < 64 * LONGEST
    assert httpx2.get(gateway.one + "/healthz").status_code == 200


def test_trailers_without_an_end_are_cut_off(gateway: Gateway) -> None:
    at = urlsplit(gateway.one)
    head = (
        b"POST /nothing/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nX-Trailer: "
    )
    taken = 0
    with socket.create_connection((at.hostname, at.port)) as caller:
        caller.sendall(head)
        try:
            while taken < 64 * LONGEST:
                caller.sendall(PIECE)
                taken += len(PIECE)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert taken < 64 * LONGEST
    assert httpx2.get(gateway.one + "/healthz").status_code == 200


def test_bodies_one_after_the_other_on_one_connection_are_no_head(
    gateway: Gateway, headers: dict[str, str]
) -> None:
    with httpx2.Client(headers=headers) as client:
        answers = [
            client.post(gateway.one + "/nothing/", content=b"x" * 1_000_000).status_code
            for _ in range(5)
        ]
    assert answers == [404] * 5
