"""A stand-in for AWS that refuses every write with one code, as AWS words it.

Guarantees: the refusal carries a request id, in the form of S3 and of AWS's JSON services; the
methods it was asked with are noted.
Does not do anything: it is for the answers that no fake of AWS gives.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class RefusingAws:
    """Listens from the start of a `with` block to its end."""

    def __init__(self, *, status: int, code: str) -> None:
        self.asked: list[str] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.status, self._server.code, self._server.asked = status, code, self.asked
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: int
    code: str
    asked: list[str]


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def refuse(self) -> None:
        self.server.asked.append(self.command)
        self.rfile.read(int(self.headers["Content-Length"]))
        code = self.server.code
        xml = f"<Error><Code>{code}</Code></Error>"
        json = f'{{"ErrorCode": "{code}", "Message": "no"}}'
        body = (xml if self.command == "PUT" else json).encode()
        self.send_response(self.server.status)
        self.send_header("x-amz-request-id", "R1")
        self.send_header("x-amzn-requestid", "R1")
        self.send_header("x-amzn-ErrorType", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = refuse

    def do_HEAD(self) -> None:
        """Where a bucket is, for a client that goes looking for it."""
        self.server.asked.append(self.command)
        self.send_response(200)
        self.send_header("x-amz-bucket-region", "eu-west-1")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """`asked` is the log."""
