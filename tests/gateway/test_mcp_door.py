"""Who gets in at `/mcp`, with what, and what a lost connection comes to."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from runs.models import GatewayCall
from tests.gateway.conftest import Gateway
from tests.gateway.provider import StoreProvider
from tests.processes import wait_until

OLD = "2025-06-18"
ACCEPT = "application/json, text/event-stream"


def body(name: str = "refund_customer", /, meta: Any = None, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments} | ({"_meta": meta} if meta else {})
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def headers(token: str, **more: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "Accept": ACCEPT,
        "Content-Type": "application/json",
        "MCP-Protocol-Version": OLD,
        **more,
    }


def post(url: str, token: str, said: Any, **more: str) -> httpx2.Response:
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    return httpx2.post(f"{url}/mcp", content=content, headers=headers(token, **more), timeout=60)


def result_of(answer: httpx2.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def test_nobody_comes_in_without_a_token(gateway: Gateway, new_token: Any) -> None:
    for sent in (None, "Bearer", "Bearer aot_none", "Basic YTpi", "Token a b"):
        given = headers("") | ({"Authorization": sent} if sent else {})
        if sent is None:
            del given["Authorization"]
        answer = httpx2.post(f"{gateway.one}/mcp", json=body(), headers=given)
        assert answer.status_code == 401, sent
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        assert answer.json()["error"]["data"]["field"] == "Authorization"


def test_a_token_comes_by_either_word(gateway: Gateway, new_token: Any) -> None:
    said, token = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, new_token()
    for keyword in ("Token", "bearer", "Bearer"):
        answer = post(gateway.one, "", said, Authorization=f"{keyword} {token}")
        shown = {tool["name"] for tool in result_of(answer)["tools"]}
        assert {"refund_customer", "get_operation"} <= shown


def test_only_allowed_hosts_and_origins(gateway: Gateway, new_token: Any) -> None:
    said, token = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, new_token()
    for name, value, status in (
        ("Host", "evil.example", 400),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://localhost.evil.example:8000", 403),
        ("Origin", "http://localhost:1234", 200),
        ("Origin", "http://[::1]:1234", 200),
    ):
        assert post(gateway.one, token, said, **{name: value}).status_code == status, value


def test_there_are_no_sessions_to_listen_to_or_to_end(gateway: Gateway, new_token: Any) -> None:
    for method in ("GET", "DELETE"):
        answer = httpx2.request(method, f"{gateway.one}/mcp", headers=headers(new_token()))
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_what_is_no_request_is_refused_with_why(gateway: Gateway, new_token: Any) -> None:
    token = new_token()
    for said, status, word in (
        (b'{"jsonrpc": "2.0"', 400, "no JSON"),
        (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', 400, "id"),
        (b"[" * 100_000, 400, "nested"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b"[]", 400, ""),
        (b'"%s"' % (b"x" * 400_000), 413, "larger"),
    ):
        answer = post(gateway.one, token, said)
        assert answer.status_code == status, said[:60]
        assert word in answer.json()["error"]["message"]
        assert answer.json()["id"] in (None, "server-error")


@pytest.mark.parametrize(
    "written",
    [r'"\u0000"', r'"\ud800"', "[" * 40 + "]" * 40, "NaN", "1e400"],
    ids=["NUL", "a lone surrogate", "deep", "NaN", "infinite"],
)
def test_what_cannot_be_stored_is_refused_and_leaves_nothing(
    gateway: Gateway, new_token: Any, written: str, provider: StoreProvider
) -> None:
    said = json.dumps(body("post_letter", to="ann", text="?")).replace('"?"', written)
    answer = post(gateway.one, new_token(), said.encode())
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert result_of(answer)["structuredContent"]["status"] == "REFUSED"
    assert not GatewayCall.objects.exists()
    assert not provider.effects


def test_no_handshake_is_needed_and_any_process_answers(
    gateway: Gateway, new_token: Any, provider: StoreProvider
) -> None:
    token = new_token()
    for url in (gateway.one, gateway.two):
        said = body(order_id="1", amount="5", meta={"idempotencyKey": "k"})
        result = result_of(post(url, token, said))["structuredContent"]
        assert result["status"] == "COMMITTED"
    assert result["replayed"] is True
    assert provider.effects == {("refund", "1"): 1}


@pytest.mark.parametrize("meta", [None, {"idempotencyKey": "k"}], ids=["keyless", "keyed"])
def test_a_call_whose_connection_is_lost_is_answered_when_it_is_sent_again(
    gateway: Gateway, new_token: Any, provider: StoreProvider, meta: Any
) -> None:
    token = new_token()
    said = json.dumps(body(order_id="held-1", amount="5", meta=meta)).encode()
    where = urlsplit(gateway.one)
    head = {**headers(token), "Host": where.netloc, "Content-Length": str(len(said))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection((where.hostname or "", where.port or 0)) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + said)
        wait_until(provider.holds.is_set, what="the provider holds the answer back")
    provider.goes_on.set()
    result = result_of(post(gateway.two, token, json.loads(said)))["structuredContent"]
    assert (result["status"], result["replayed"]) == ("COMMITTED", True)
    assert result["result"]["effect"] == 1
    assert provider.effects == {("refund", "held-1"): 1}


def test_a_call_that_takes_long_is_said_to_be_under_way(
    gateway: Gateway, new_token: Any, provider: StoreProvider
) -> None:
    token = new_token()
    said = body(order_id="held-1", amount="5", meta={"waitSeconds": 0})
    result = result_of(post(gateway.one, token, said))["structuredContent"]
    assert result["status"] in ("PREPARED", "RUNNING")
    assert "Do not call it again" in result["next"]
    look = body("get_operation", operation_id=result["operation_id"], wait_seconds=0)
    assert result_of(post(gateway.two, token, look))["isError"] is False
    provider.goes_on.set()
    look = body("get_operation", operation_id=result["operation_id"], wait_seconds=30)
    assert result_of(post(gateway.two, token, look))["structuredContent"]["status"] == "COMMITTED"
    assert provider.effects == {("refund", "held-1"): 1}
