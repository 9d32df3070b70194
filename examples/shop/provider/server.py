"""HTTP on the loopback interface, one thread per connection.

Guarantees that nothing is done for a request whose body did not arrive whole, that a fault which
closes the connection really does, and that every answer is JSON, also one to a malformed request.
Does not speak TLS, read chunked bodies, or listen to anybody but this machine.
"""

import socket
import socketserver
import struct
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from examples.shop.provider.acting import INTERNAL_ERROR
from examples.shop.provider.endpoints import Endpoints
from examples.shop.provider.errors import (
    BodyTooLarge,
    InvalidField,
    LengthRequired,
    RequestError,
)
from examples.shop.provider.wire import Answer, Hangup, Reply, Request

MOST_BODY_BYTES = 64 * 1024


class Server(ThreadingHTTPServer):
    """Listens as soon as it exists; port 0 picks a free one."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, *, port: int, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def server_bind(self) -> None:
        # The inherited one asks the name service who 127.0.0.1 is, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that went away is no error: crash tests do little else."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Head and body are two writes; together with delayed acknowledgement that costs 40 ms.
    disable_nagle_algorithm = True

    def handle_method(self) -> None:
        try:
            request = self._read_request()
            reply = None if request is None else self.server.endpoints.reply(request)
        except RequestError as error:
            reply = Answer.to_error(error)
        except Exception:  # noqa: BLE001  printed, and answered as a 500
            traceback.print_exc()
            reply = INTERNAL_ERROR
        self._send(reply or Hangup())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_method

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What http.server itself refuses, in our form instead of its page of HTML."""
        # Without a readable version it takes the caller for HTTP/0.9, and would send no head.
        self.request_version = self.protocol_version
        sentence = message or HTTPStatus(code).phrase
        answer = Answer.of(code, {"error": "malformed_request", "message": sentence[:200]})
        self._send(Answer(status=answer.status, body=answer.body, ends_connection=True))

    def log_message(self, format: str, *args: Any) -> None:
        """The ledger is the log."""

    def _read_request(self) -> Request | None:
        """None when the caller went away before the whole body was there."""
        body = self._read_body()
        if body is None:
            return None
        try:
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query, keep_blank_values=True, errors="strict"))
            path = unquote(url.path, errors="strict")
        except ValueError as error:
            raise InvalidField(
                "the address", self.path, "give valid percent-encoded UTF-8"
            ) from error
        return Request(
            method=self.command,
            path=path,
            query=query,
            body=body,
            key=self.headers.get("Idempotency-Key"),
            fence_token=self.headers.get("Fence-Token"),
            account=self.headers.get("Account"),
        )

    def _read_body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding"):
            raise LengthRequired
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()):
            raise LengthRequired
        if len(length) > 9 or int(length) > MOST_BODY_BYTES:
            raise BodyTooLarge(MOST_BODY_BYTES)
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _send(self, reply: Reply) -> None:
        if isinstance(reply, Hangup):
            self.close_connection = True
            if reply.reset:
                self._reset()
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.body)))
        if reply.replayed:
            self.send_header("Idempotent-Replayed", "true")
        if reply.has_more:
            self.send_header("Has-More", "true")
        if reply.ends_connection:
            # send_header also tells the base class to stop reading.
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(reply.body)

    def _reset(self) -> None:
        """Closing with a linger time of zero sends RST where a plain close would send FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())
