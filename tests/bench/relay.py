"""Counts round trips between a client and PostgreSQL, on the wire.

A round trip ends when the server says that it is ready for the next query, whatever the
client library calls it: a pipeline is one, `BEGIN`, `SELECT` and `COMMIT` are three.
Works without an extension on the server. Slows the client down, so nothing that passes
through a relay is timed. Does not speak TLS.
"""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.bench.server import other_url

READY_FOR_QUERY = ord("Z")
CHUNK_BYTES = 1 << 16


@contextmanager
def relayed(url: str) -> Iterator["Relay"]:
    """A relay in front of the server of `url`, for as long as the block runs."""
    with psycopg.connect(url) as connection:
        relay = Relay(url, host=connection.info.host, port=connection.info.port)
    thread = threading.Thread(target=relay.serve_forever, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.shutdown()
        relay.server_close()


class Relay(socketserver.ThreadingTCPServer):
    """Listens on a free loopback port; `url` leads through it, `round_trips` grows."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, url: str, *, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.upstream = (host, port)
        self.round_trips = 0
        self._counting = threading.Lock()
        self.url = other_url(
            url,
            host="127.0.0.1",
            port=str(self.server_address[1]),
            sslmode="disable",
            gssencmode="disable",
        )

    def count(self, round_trips: int) -> None:
        with self._counting:
            self.round_trips += round_trips


class _Connection(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with _connect(*self.server.upstream) as upstream:
            for end in (self.request, upstream):
                if end.family != socket.AF_UNIX:
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pump, args=(self.request, upstream), daemon=True).start()
            messages = Messages()
            for chunk in _chunks(upstream):
                self.server.count(messages.read(chunk).count(READY_FOR_QUERY))
                self.request.sendall(chunk)


class Messages:
    """Finds the type bytes in a stream of server messages: type, length, body."""

    def __init__(self) -> None:
        self._header = b""
        self._body = 0

    def read(self, chunk: bytes) -> bytes:
        kinds = bytearray()
        at = 0
        while at < len(chunk):
            if self._body:
                taken = min(self._body, len(chunk) - at)
                self._body -= taken
                at += taken
                continue
            taken = 5 - len(self._header)
            self._header += chunk[at : at + taken]
            at += taken
            if len(self._header) == 5:
                kinds.append(self._header[0])
                self._body = int.from_bytes(self._header[1:], "big") - 4
                self._header = b""
        return bytes(kinds)


def _connect(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(f"{host}/.s.PGSQL.{port}")
    return upstream


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for chunk in _chunks(source):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while chunk := source.recv(CHUNK_BYTES):
        yield chunk
