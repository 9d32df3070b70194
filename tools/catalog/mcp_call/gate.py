"""The one way out for a `tools/call`, below the MCP client library.

Guarantees: at most one `tools/call` leaves per call of ours, whatever the library decides to
send again, and none after the deadline; no redirect and no proxy or login of the environment is
followed; an interrupted answer is not resumed, because a resumed stream may replay the answer to
another request and the library takes the first that comes; no answer is longer than the limit.
Does not bound the memory of a program on standard streams: the library reads its lines whole.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any, Final

import httpx2

from tools.call import Call
from tools.errors import NotSent, ToolError
from tools.window import trace

MOST_BYTES: Final = 4 * 1024 * 1024
# Ending a session is politeness to the server; the answer is there already.
FAREWELL_SECONDS: Final = 2.0


class SentAlready(ToolError):
    """The client library tried to send the call a second time."""

    def __init__(self) -> None:
        super().__init__("the MCP client library tried to send the call again")


class TooLong(ToolError):
    """A server's answer exceeds the limit."""

    def __init__(self) -> None:
        super().__init__(f"the answer is longer than {MOST_BYTES} bytes")


class Gate:
    """Opens once, at the moment when the call's first byte leaves."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.opened = False

    def open(self) -> None:
        """Let the call leave now. Raises NotSent past the deadline, SentAlready."""
        if self.opened:
            raise SentAlready
        if self._call.seconds_left() <= 0:
            raise NotSent("the deadline passed before the call could leave")
        self.opened = True
        self._call.window.mark("first_byte")

    def watch(self, request: httpx2.Request) -> None:
        """Give the request of the call its time-out and its last check."""
        note = trace(self._call)

        async def look(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith("send_request_headers.started"):
                self.open()
            note(event, info)

        request.headers.update(self._call.trace_headers)
        timeout = httpx2.Timeout(self._call.remaining).as_dict()
        request.extensions = {**request.extensions, "timeout": timeout, "trace": look}


class Shut(Gate):
    """Opens never: for a session that is to call nothing."""

    def __init__(self) -> None:
        self.opened = False

    def open(self) -> None:
        raise NotSent("this session only lists tools")

    def watch(self, request: httpx2.Request) -> None:
        self.open()


class GatedTransport(httpx2.AsyncBaseTransport):
    """The HTTP transport that the MCP client library is given."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._inner = httpx2.AsyncHTTPTransport(verify=_trusted(), retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            # As a server answers that offers no stream of its own, and none to resume.
            return httpx2.Response(405, request=request)
        if request.method == "DELETE":
            timeout = httpx2.Timeout(FAREWELL_SECONDS).as_dict()
            request.extensions = {**request.extensions, "timeout": timeout}
        if _is_call(request):
            self._gate.watch(request)
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for piece in self._inner:
            seen += len(piece)
            if seen > MOST_BYTES:
                raise TooLong
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def _trusted() -> ssl.SSLContext:
    """Reading the certificates takes longer than all else that is done here for a call."""
    return httpx2.create_ssl_context()


def _is_call(request: httpx2.Request) -> bool:
    if request.method != "POST":
        return False
    return bool(json.loads(request.content).get("method") == "tools/call")
