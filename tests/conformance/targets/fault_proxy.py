"""A proxy between a tool and its target that loses, delays and spoils on command.

    with FaultProxy("http://127.0.0.1:8000") as proxy:
        proxy.next(LoseAnswer(), method="POST")
        ...                                          # the tool talks to proxy.url
        assert proxy.forwarded(method="POST") == 1

Guarantees: real sockets on loopback; a request that meets no planned fault is passed on as it
came, a streamed answer included, and the connection to the caller stays open; "committed, answer
lost" is lost only after the target's answer was read to its end; what reached the target is
counted.
Does not speak TLS, and opens a connection of its own to the target for each request. A request
that is still held when the proxy ends is never forwarded.
"""

import http.client
import socket
import socketserver
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from tests.processes import wait_until

TARGET_SECONDS = 60.0
# What belongs to one connection alone, and is said anew on the other one.
HOP_BY_HOP = {"connection", "expect", "keep-alive", "proxy-connection", "transfer-encoding"}


@dataclass(frozen=True)
class LoseAnswer:
    """The target has done it and answered; the caller's connection ends without a byte.

    `reset` tears it down (RST) where a plain end (FIN) is the default.
    """

    reset: bool = False


@dataclass(frozen=True)
class ResetBefore:
    """The caller's connection is reset, and the target never hears of the request."""


@dataclass(frozen=True)
class LandLate:
    """The caller is cut off at once, and the request reaches the target later.

    Later is after `seconds`, or without them at `release()`.
    """

    seconds: float | None = None


@dataclass(frozen=True)
class HoldAnswer:
    """The target has done it and answered; the answer comes after `seconds`, or at `release()`."""

    seconds: float | None = None


@dataclass(frozen=True)
class AnswerInstead:
    """The target has done it; the caller reads this answer in place of the real one.

    With `forward=False` the target never hears of the request.
    """

    status: int = 500
    body: bytes = b'{"error": "spoiled on the way"}'
    content_type: str = "application/json"
    location: str = ""
    forward: bool = True


@dataclass(frozen=True)
class HalfBody:
    """The target has done it; the connection ends in the middle of its answer's body."""


_Headers = Iterable[tuple[str, str]]
Fault = LoseAnswer | ResetBefore | LandLate | HoldAnswer | AnswerInstead | HalfBody


@dataclass(frozen=True)
class Seen:
    """One request that reached the target, and the status of its answer (0: it gave none)."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int


class FaultProxy:
    """Listens from the start of a `with` block to its end. `target` is `http://host:port`."""

    def __init__(self, target: str) -> None:
        self._server = _Server(target)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stage.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def next(
        self, fault: Fault, *, method: str | None = None, path: str | None = None, times: int = 1
    ) -> None:
        """Let the next `times` requests meet the fault: of this method, at a path that begins so.

        Faults are met in the order in which they were planned, one per request.
        """
        self._server.stage.plan(_Planned(fault, method, path, times))

    def seen(self, *, method: str | None = None, path: str | None = None) -> list[Seen]:
        """The requests that reached the target and were answered, oldest first."""
        return [one for one in self._server.stage.seen() if _fits(one, method, path)]

    def forwarded(self, *, method: str | None = None, path: str | None = None) -> int:
        """How many requests reached the target."""
        return len(self.seen(method=method, path=path))

    def release(self) -> None:
        """Let every request and answer that is held go on."""
        self._server.stage.release()

    def wait_until_held(self, count: int = 1) -> None:
        """Until so many requests and answers are held at once. Raises `DidNotHappen`."""
        wait_until(lambda: self._server.stage.held >= count, what=f"{count} are held")

    def wait_until_forwarded(
        self, count: int = 1, *, method: str | None = None, path: str | None = None
    ) -> None:
        """Until so many requests have reached the target. Raises `DidNotHappen`."""
        wait_until(
            lambda: self.forwarded(method=method, path=path) >= count,
            what=f"{count} requests {method or ''} {path or ''} reached the target",
        )


@dataclass
class _Planned:
    fault: Fault
    method: str | None
    path: str | None
    times: int


def _fits(one: Any, method: str | None, path: str | None) -> bool:
    return method in (None, one.method) and (path is None or one.path.startswith(path))


class _Stage:
    """What is planned, what is held and what has reached the target; shared by all threads."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._planned: list[_Planned] = []
        self._seen: list[Seen] = []
        self._releases = 0
        self._closed = False
        self.held = 0

    def plan(self, planned: _Planned) -> None:
        with self._turn:
            self._planned.append(planned)

    def take(self, *, method: str, path: str) -> Fault | None:
        with self._turn:
            for planned in self._planned:
                if planned.method in (None, method) and path.startswith(planned.path or ""):
                    planned.times -= 1
                    if planned.times <= 0:
                        self._planned.remove(planned)
                    return planned.fault
        return None

    def note(self, one: Seen) -> None:
        with self._turn:
            self._seen.append(one)

    def seen(self) -> list[Seen]:
        with self._turn:
            return list(self._seen)

    def hold(self, seconds: float | None) -> bool:
        """Wait for the time, or for `release` without one; False when the proxy has ended."""
        with self._turn:
            since = self._releases
            self.held += 1
            self._turn.wait_for(lambda: self._releases > since or self._closed, timeout=seconds)
            self.held -= 1
            return not self._closed

    def release(self) -> None:
        with self._turn:
            self._releases += 1
            self._turn.notify_all()

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._turn.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, target: str) -> None:
        place = urlsplit(target)
        assert place.hostname is not None
        self.target = (place.hostname, place.port or 80)
        self.stage = _Stage()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # The inherited one asks the name service who 127.0.0.1 is, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller or target that went away is what this proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_request(self) -> None:
        body = self._read_body()
        stage = self.server.stage
        match stage.take(method=self.command, path=self.path):
            case None:
                with self._forward(body) as answer:
                    self._relay(answer)
            case LoseAnswer(reset=reset):
                with self._forward(body) as answer:
                    answer.read()
                self._hang_up(reset=reset)
            case ResetBefore():
                self._hang_up(reset=True)
            case LandLate(seconds=seconds):
                self._hang_up(reset=False)
                if stage.hold(seconds):
                    with self._forward(body) as answer:
                        answer.read()
            case HoldAnswer(seconds=seconds):
                with self._forward(body) as answer:
                    said = answer.read()
                if stage.hold(seconds):
                    self._send(answer.status, answer.getheaders(), said)
            case AnswerInstead() as instead:
                if instead.forward:
                    with self._forward(body) as answer:
                        answer.read()
                headers = [("Content-Type", instead.content_type)]
                headers += [("Location", instead.location)] if instead.location else []
                self._send(instead.status, headers, instead.body)
            case HalfBody():
                with self._forward(body) as answer:
                    said = answer.read()
                self._head(answer.status, answer.getheaders(), length=len(said))
                self.wfile.write(said[: len(said) // 2])
                self._hang_up(reset=False)

    do_DELETE = do_GET = do_HEAD = do_MKCOL = do_OPTIONS = do_PATCH = handle_request
    do_POST = do_PROPFIND = do_PUT = do_REPORT = handle_request

    def log_message(self, format: str, *args: Any) -> None:
        """`FaultProxy.seen` is the log."""

    @contextmanager
    def _forward(self, body: bytes) -> Iterator[http.client.HTTPResponse]:
        """The target's answer to the request, not read yet; counted as soon as it begins."""
        target = http.client.HTTPConnection(*self.server.target, timeout=TARGET_SECONDS)
        target.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                target.putheader(name, value)
        if body or self.command in ("POST", "PUT", "PATCH"):
            target.putheader("Content-Length", str(len(body)))
        target.putheader("Connection", "close")
        status = 0
        try:
            target.endheaders(body)
            answer = target.getresponse()
            status = answer.status
        finally:
            said = dict(self.headers.items())
            self.server.stage.note(Seen(self.command, self.path, said, body, status))
        with closing(target):
            yield answer

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return body

    def _relay(self, answer: http.client.HTTPResponse) -> None:
        """Pass an answer on as it comes: a stream of events may take its time."""
        headers = answer.getheaders()
        if answer.length is not None or self.command == "HEAD":
            self._send(answer.status, headers, answer.read())
            return
        self._head(answer.status, headers, length=None)
        while piece := answer.read1(65536):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, headers: _Headers, body: bytes) -> None:
        self._head(status, headers, length=len(body))
        self.wfile.write(body)

    def _head(self, status: int, headers: _Headers, *, length: int | None) -> None:
        bodiless = self.command == "HEAD" or status in (204, 304)
        self.send_response_only(status)
        for name, value in headers:
            # The length of a body that does not come is the target's word alone.
            if name.lower() not in HOP_BY_HOP and (bodiless or name.lower() != "content-length"):
                self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        elif not bodiless:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _hang_up(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            # A close with a linger time of zero sends RST where a plain close would send FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self.connection.detach())
            return
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
