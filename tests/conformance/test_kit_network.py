"""The broken networks of the kit, met by real clients at a real server, with and without TLS."""

import asyncio
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.processes import wait_until
from tools.testing.children import Child
from tools.testing.diary import Diary
from tools.testing.network import (
    answer_unavailable,
    hang_connections,
    refuse_connections,
    swallow_answers,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]

SECONDS = 1.0


class Server(ThreadingHTTPServer):
    """Counts what it was asked, which is what the clients must not be told."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = 0
        self.scheme = "https" if tls else "http"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is the point here."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture(params=["plain", "TLS"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    tls = _certified(tmp_path / "certificate.pem") if request.param == "TLS" else None
    with Server(tls) as running:
        serving = threading.Thread(target=running.serve_forever, daemon=True)
        serving.start()
        yield running
        running.shutdown()
        serving.join()


def _certified(path: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def by_httpx2(url: str) -> int:
    return httpx2.Client(verify=False).post(url, json={}, timeout=SECONDS).status_code


def by_asynchronous_httpx2(url: str) -> int:
    async def post() -> int:
        async with httpx2.AsyncClient(verify=False) as client:
            return (await client.post(url, json={}, timeout=SECONDS)).status_code

    return asyncio.run(post())


def by_requests(url: str) -> int:
    requests.packages.urllib3.disable_warnings()  # type: ignore[attr-defined]
    return requests.post(url, json={}, verify=False, timeout=SECONDS).status_code


def by_urllib(url: str) -> int:
    trusting = ssl._create_unverified_context() if url.startswith("https") else None
    asked = urllib.request.Request(url, data=b"{}")
    try:
        status: int = urllib.request.urlopen(asked, timeout=SECONDS, context=trusting).status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return status


Client = Callable[[str], int]
CLIENTS = (by_httpx2, by_asynchronous_httpx2, by_requests, by_urllib)


def _meet(network: Callable[[Diary], None], client: Client, url: str, directory: Path) -> Diary:
    """What a client met, and "raised" if it noticed, or "answered" if it was told something."""
    diary = Diary(directory / "met.diary")

    def work() -> None:
        network(diary)
        try:
            diary.note("answered", status=client(url))
        except Exception as error:
            diary.note("raised", text=repr(error))

    child = Child(work, log=directory / "client.log")
    wait_until(lambda: child.has_ended, what="the client has given up")
    assert not child.has_failed, child.said
    return diary


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_whose_answer_is_swallowed_has_been_heard(
    client: Client, server: Server, tmp_path: Path
) -> None:
    met = _meet(swallow_answers, client, server.url, tmp_path)
    wait_until(lambda: server.asked == 1, what="the server has been asked")
    assert met.count("cut") >= 1
    assert met.count("connect") == 1
    assert met.count("raised") == 1


@pytest.mark.parametrize("network", [refuse_connections, hang_connections])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_gets_no_connection_or_no_word_has_not_been_heard(
    client: Client, network: Callable[[Diary], None], server: Server, tmp_path: Path
) -> None:
    met = _meet(network, client, server.url, tmp_path)
    assert met.count("connect") == 1
    assert met.count("raised") == 1
    assert server.asked == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_whose_answer_is_replaced_by_a_503_reads_just_that(
    client: Client, server: Server, tmp_path: Path
) -> None:
    met = _meet(answer_unavailable, client, server.url, tmp_path)
    assert [entry["status"] for entry in met.entries("answered")] == [503], met.entries("raised")
    assert met.count("connect") == 1
    assert met.count("cut") >= 1
    wait_until(lambda: server.asked == 1, what="the server has been asked")
