"""What the store's tools call: a real HTTP server that counts effects and does as it is told.

An order's name says how it is treated: `bad-…` is refused, `lost-…` takes effect and is not
answered, `held-…` takes effect and is answered once the test says so. A key is honoured.
"""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StoreProvider:
    """`effects` counts what took effect, by kind and order."""

    def __init__(self) -> None:
        self.effects: Counter[tuple[str, str]] = Counter()
        self.goes_on = threading.Event()
        self.holds = threading.Event()
        self.is_broken = True
        self._answers: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self.url = ""

    def take(self, what: str, order: str, key: str) -> dict[str, Any]:
        with self._lock:
            if key not in self._answers:
                self.effects[what, order] += 1
                number = self.effects[what, order]
                self._answers[key] = {"effect": number, "external_ref": f"{what}:{order}:{number}"}
            return self._answers[key]


@contextmanager
def store_provider() -> Iterator[StoreProvider]:
    provider = StoreProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            what = self.path.strip("/")
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
            if order.startswith("bad-") and provider.is_broken:
                return self.answer(422, {"reason": "the order is closed"})
            done = provider.take(what, order, self.headers["Idempotency-Key"])
            if order.startswith("lost-"):
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return None
            if order.startswith("held-"):
                provider.holds.set()
                assert provider.goes_on.wait(60)
            self.answer(200, done)

        def answer(self, status: int, body: dict[str, Any]) -> None:
            said = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield provider
        server.shutdown()
