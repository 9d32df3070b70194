"""How real errors of four HTTP libraries, from real sockets, are read."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
import pytest
import requests
import requests.adapters
import urllib3
from urllib3.util import Retry

from tools.outcome import Unknown, Unsent, classify

Send = Callable[..., Any]
PATIENCE = 10.0
IMPATIENCE = 0.2


def _with_httpx2(url: str, patience: float = PATIENCE) -> Any:
    with httpx2.Client(follow_redirects=True, timeout=patience, trust_env=False) as client:
        return client.post(url, json={"amount": "5"}).raise_for_status().json()


def _with_httpx2_async(url: str, patience: float = PATIENCE) -> Any:
    async def send() -> Any:
        async with httpx2.AsyncClient(
            follow_redirects=True, timeout=patience, trust_env=False
        ) as client:
            return (await client.post(url, json={"amount": "5"})).raise_for_status().json()

    return asyncio.run(send())


def _with_httpx(url: str, patience: float = PATIENCE) -> Any:
    with httpx.Client(follow_redirects=True, timeout=patience, trust_env=False) as client:
        return client.post(url, json={"amount": "5"}).raise_for_status().json()


def _with_requests(url: str, patience: float = PATIENCE) -> Any:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(url, json={"amount": "5"}, timeout=patience)
        answer.raise_for_status()
        return answer.json()


def _with_urllib3(url: str, patience: float = PATIENCE) -> Any:
    with urllib3.PoolManager(timeout=patience) as pool:
        # Without a forced list this library calls every status a success.
        retries = Retry(3, backoff_factor=0, status=0, status_forcelist=[409, 429, 500])
        retries = retries.new(allowed_methods=None, read=False)
        return pool.request("POST", url, json={"amount": "5"}, retries=retries).json()


LIBRARIES: dict[str, Send] = {
    "httpx2": _with_httpx2,
    "httpx2 async": _with_httpx2_async,
    "httpx": _with_httpx,
    "requests": _with_requests,
    "urllib3": _with_urllib3,
}


@pytest.fixture(params=LIBRARIES)
def send(request: pytest.FixtureRequest) -> Send:
    return LIBRARIES[request.param]


def _outcome(send: Send, url: str, **options: Any) -> Any:
    with pytest.raises(Exception) as raised:  # noqa: PT011 (which one, is the subject)
        send(url, **options)
    return classify(raised.value)


# -- Nothing left -------------------------------------------------------------------


def test_a_refused_connection_was_not_sent(send: Send, closed_port: int) -> None:
    assert isinstance(_outcome(send, f"http://127.0.0.1:{closed_port}/"), Unsent)


def test_an_unresolvable_name_was_not_sent(send: Send) -> None:
    assert isinstance(_outcome(send, "http://no-such-host.invalid/"), Unsent)


def test_a_connection_that_never_opens_was_not_sent(send: Send) -> None:
    with _full_backlog() as port:
        assert isinstance(_outcome(send, f"http://127.0.0.1:{port}/", patience=IMPATIENCE), Unsent)


def test_a_failed_tls_handshake_was_not_sent(send: Send, serve: Any) -> None:
    def answer_in_plain_text(server: Any, connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = serve(answer_in_plain_text)
    assert isinstance(_outcome(send, f"https://127.0.0.1:{server.port}/"), Unsent)


def test_a_tls_handshake_cut_off_was_not_sent(send: Send, serve: Any) -> None:
    server = serve(lambda server, connection: connection.recv(65536))
    assert isinstance(_outcome(send, f"https://127.0.0.1:{server.port}/"), Unsent)


def test_a_tls_handshake_that_hangs_was_not_sent(send: Send, serve: Any) -> None:
    server = serve(lambda server, connection: server.stopping.wait(10))
    assert isinstance(
        _outcome(send, f"https://127.0.0.1:{server.port}/", patience=IMPATIENCE), Unsent
    )


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_waiting_for_a_free_httpx_connection_was_not_sent(library: Any, serve: Any) -> None:
    server = serve(_answer_head_and_hang)
    limits = library.Limits(max_connections=1)
    with (
        library.Client(
            limits=limits, timeout=library.Timeout(PATIENCE, pool=IMPATIENCE), trust_env=False
        ) as client,
        client.stream("GET", server.url),
    ):
        outcome = _outcome(client.post, server.url)
    assert isinstance(outcome, Unsent)
    assert len(server.requests) == 1


def test_waiting_for_a_free_urllib3_connection_was_not_sent(serve: Any) -> None:
    server = serve(_answer_head_and_hang)
    with urllib3.HTTPConnectionPool(
        "127.0.0.1", server.port, maxsize=1, block=True, timeout=PATIENCE
    ) as pool:
        held = pool.request("GET", "/", preload_content=False)
        outcome = _outcome(lambda url: pool.request("POST", url, pool_timeout=IMPATIENCE), "/")
        held.close()
    assert isinstance(outcome, Unsent)
    assert len(server.requests) == 1


def test_an_address_without_scheme_was_not_sent() -> None:
    for send in (_with_httpx2, _with_httpx, _with_requests):
        assert isinstance(_outcome(send, "payments.example/refunds"), Unsent)


# -- It may have an effect ----------------------------------------------------------


def test_a_connection_closed_after_the_request_is_unknown(send: Send, serve: Any) -> None:
    server = serve(lambda server, connection: server.read_request(connection))
    outcome = _outcome(send, server.url)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "read"
    assert len(server.requests) == 1


def test_a_slow_answer_is_unknown(send: Send, serve: Any) -> None:
    def take_and_hang(server: Any, connection: socket.socket) -> None:
        server.read_request(connection)
        server.stopping.wait(10)

    server = serve(take_and_hang)
    outcome = _outcome(send, server.url, patience=IMPATIENCE)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "read"
    assert len(server.requests) == 1


def test_an_unreadable_body_is_unknown(send: Send, serve: Any) -> None:
    server = serve(_answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{"))
    outcome = _outcome(send, server.url)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "body"


def test_a_body_cut_short_is_unknown(send: Send, serve: Any) -> None:
    server = serve(_answering(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"a'))
    assert isinstance(_outcome(send, server.url), Unknown)


def test_a_body_that_cannot_be_decoded_is_unknown(send: Send, serve: Any) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
    outcome = _outcome(send, serve(_answering(head + b"not gzip")).url)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "body"


@pytest.mark.parametrize("status", [409, 422, 429, 500, 503])
def test_an_error_status_is_unknown(status: int, serve: Any) -> None:
    head = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()
    server = serve(_answering(head))
    for send in (_with_httpx2, _with_httpx2_async, _with_httpx, _with_requests):
        outcome = _outcome(send, server.url)
        assert isinstance(outcome, Unknown)
        assert outcome.stage == "status"


def test_a_status_that_urllib3_refuses_is_unknown(serve: Any) -> None:
    server = serve(_answering(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"))
    outcome = _outcome(_with_urllib3, server.url)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "status"


def test_nonsense_instead_of_http_is_unknown(send: Send, serve: Any) -> None:
    server = serve(_answering(b"SSH-2.0-nonsense\r\n\r\n"))
    assert isinstance(_outcome(send, server.url), Unknown)


# -- The last error is a refused connection, but a request had left before -----------


def test_a_redirect_that_fails_on_its_second_hop_is_unknown(
    send: Send, serve: Any, closed_port: int
) -> None:
    location = f"Location: http://127.0.0.1:{closed_port}/elsewhere\r\n".encode()
    head = b"HTTP/1.1 307 Moved\r\nContent-Length: 0\r\n" + location + b"\r\n"
    server = serve(_answering(head))
    outcome = _outcome(send, server.url)
    assert isinstance(outcome, Unknown)
    assert outcome.stage == "connect"
    assert len(server.requests) == 1


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_a_second_request_of_an_auth_flow_that_fails_is_unknown(
    library: Any, serve: Any, closed_port: int
) -> None:
    class Login(library.Auth):  # type: ignore[misc]
        def auth_flow(self, request: Any) -> Iterator[Any]:
            yield request
            yield library.Request("POST", f"http://127.0.0.1:{closed_port}/login")

    server = serve(_answering(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"))
    with library.Client(auth=Login(), trust_env=False) as client:
        outcome = _outcome(client.post, server.url)
    assert isinstance(outcome, Unknown)
    assert len(server.requests) == 1


def _with_retrying_urllib3(url: str) -> Any:
    with urllib3.PoolManager(timeout=PATIENCE) as pool:
        return pool.request("PUT", url, retries=Retry(3, backoff_factor=0))


def _with_retrying_requests(url: str) -> Any:
    with requests.Session() as session:
        session.trust_env = False
        retries = Retry(3, backoff_factor=0, allowed_methods=None)
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        return session.post(url, timeout=PATIENCE)


@pytest.mark.parametrize("retrying", [_with_retrying_urllib3, _with_retrying_requests])
def test_a_library_that_retried_after_sending_is_unknown(retrying: Send, serve: Any) -> None:
    def take_and_vanish(server: Any, connection: socket.socket) -> None:
        server.read_request(connection)
        server.refuse_from_now_on()

    server = serve(take_and_vanish)
    outcome = _outcome(retrying, server.url)
    assert isinstance(outcome, Unknown)
    assert len(server.requests) == 1


@pytest.mark.parametrize("retrying", [_with_retrying_urllib3, _with_retrying_requests])
def test_a_library_that_retried_refused_connections_sent_nothing(
    retrying: Send, closed_port: int
) -> None:
    assert isinstance(_outcome(retrying, f"http://127.0.0.1:{closed_port}/"), Unsent)


@pytest.mark.parametrize("library", [httpx2, httpx])
def test_a_hook_that_fails_after_the_answer_is_unknown(
    library: Any, serve: Any, closed_port: int
) -> None:
    def tell_another(_: Any) -> None:
        with library.Client(trust_env=False) as other:
            other.post(f"http://127.0.0.1:{closed_port}/")

    server = serve(_answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
    with library.Client(event_hooks={"response": [tell_another]}, trust_env=False) as client:
        outcome = _outcome(client.post, server.url)
    assert isinstance(outcome, Unknown)
    assert len(server.requests) == 1


def test_a_requests_hook_that_fails_after_the_answer_is_unknown(
    serve: Any, closed_port: int
) -> None:
    def tell_another(answer: requests.Response, **_: Any) -> None:
        answer.close()
        _with_requests(f"http://127.0.0.1:{closed_port}/")

    server = serve(_answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
    with requests.Session() as session:
        session.trust_env = False
        session.hooks["response"].append(tell_another)
        outcome = _outcome(session.post, server.url)
    assert isinstance(outcome, Unknown)


# -- Errors without a traceback are read by their class alone ------------------------


def test_bare_errors_are_read_by_class() -> None:
    assert isinstance(classify(httpx2.ConnectError("refused")), Unsent)
    assert isinstance(classify(httpx2.ConnectTimeout("slow")), Unsent)
    assert isinstance(classify(requests.ConnectTimeout("slow")), Unsent)
    assert classify(httpx2.WriteTimeout("slow")) == Unknown("WriteTimeout: slow", "write")
    assert classify(requests.ConnectionError("?")) == Unknown("ConnectionError: ?", "")
    assert classify(urllib3.exceptions.HTTPError("?")) == Unknown("HTTPError: ?", "")


# -- Behaviours ----------------------------------------------------------------------


def _answering(answer: bytes) -> Callable[[Any, socket.socket], None]:
    def behave(server: Any, connection: socket.socket) -> None:
        server.read_request(connection)
        connection.sendall(answer)

    return behave


def _answer_head_and_hang(server: Any, connection: socket.socket) -> None:
    server.read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    server.stopping.wait(10)


@contextmanager
def _full_backlog() -> Iterator[int]:
    """A port whose queue of waiting connections is full: a further one is left hanging."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        try:
            yield listener.getsockname()[1]
        finally:
            for client in waiting:
                client.close()
