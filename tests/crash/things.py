"""A provider whose things are created under a name: a second creation finds that it exists.

Guarantees: `PUT /things/{name}` creates, or answers 412; what was made is kept before anything
is answered. `lose_answers` and `refuse_questions` count how many of the next PUTs get no answer,
and how many of the next GETs get a 500.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Things(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept: dict[str, Any] = {}
        self.asked: list[tuple[str, int | None]] = []
        self.lose_answers = 0
        self.refuse_questions = 0
        self.turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def things() -> Iterator[Things]:
    with Things() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Things

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.turn:
            exists = self.path in self.server.kept
            thing = self.server.kept.setdefault(self.path, body)
            is_lost = self.server.lose_answers > 0
            self.server.lose_answers -= is_lost
        if is_lost:
            self._note(None)
        elif exists:
            self._answer(412, {"error": "already exists"})
        else:
            self._answer(201, thing)

    def do_GET(self) -> None:
        with self.server.turn:
            thing = self.server.kept.get(self.path)
            is_refused = self.server.refuse_questions > 0
            self.server.refuse_questions -= is_refused
        if is_refused:
            self._answer(500, {"error": "something broke on our side"})
        elif thing is None:
            self._answer(404, {"error": "there is no such thing"})
        else:
            self._answer(200, thing)

    def log_message(self, format: str, *args: Any) -> None:
        """What was asked is in `asked`."""

    def _answer(self, status: int, value: Any) -> None:
        self._note(status)
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _note(self, status: int | None) -> None:
        with self.server.turn:
            self.server.asked.append((self.command, status))
