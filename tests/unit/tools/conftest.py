"""What the tests of this app share: calls, and a server on loopback."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from tools import Call


class MakeCall(Protocol):
    def __call__(
        self, arguments: Mapping[str, Any] | None = None, *, seconds: float = ..., op: str = ...
    ) -> Call: ...


@pytest.fixture
def make_call() -> MakeCall:
    def make(
        arguments: Mapping[str, Any] | None = None, *, seconds: float = 10.0, op: str = "op-1"
    ) -> Call:
        return Call(
            operation_id=op,
            idempotency_key=f"key-{op}",
            fence_token=1,
            attempt=1,
            run_id="run-1",
            step_number=1,
            arguments=arguments or {},
            deadline=datetime.now(UTC) + timedelta(seconds=seconds),
            expires_at_monotonic=time.monotonic() + seconds,
        )

    return make


class Server:
    """A TCP server whose behaviour is a function of one connection; it counts requests."""

    def __init__(self, behave: Callable[["Server", socket.socket], None]) -> None:
        self.stopping = threading.Event()
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/refunds"
        self._behave = behave
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def refuse_from_now_on(self) -> None:
        # Closing alone would leave a blocked accept() holding the port open.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def read_request(self, connection: socket.socket) -> None:
        """Wait for one whole request and note it."""
        data = b""
        while b"\r\n\r\n" not in data:
            if not (part := connection.recv(65536)):
                return
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(body) < length:
            body += connection.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)

    def stop(self) -> None:
        self.stopping.set()
        self.refuse_from_now_on()
        for thread in self._threads:
            thread.join(timeout=10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._behave(self, connection)


Serve = Callable[[Callable[[Server, socket.socket], None]], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(behave: Callable[[Server, socket.socket], None]) -> Server:
        servers.append(Server(behave))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def closed_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
