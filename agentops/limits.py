"""How large a request may be, on every door of the web process.

Guarantees: of a request whose address, headers or body are larger than this nothing reaches a
view, nothing of it is kept, and it is answered with 414, 431 or 413 and a problem document; a
body is measured as it comes, whatever its headers say of it. One that names itself twice, by two
keys or two tokens, which Django would make one text of, is answered with 400.

Does not see what the server has read before a request is complete as far as its headers: that is
bounded in `heads`. Does not know the smaller limits of JSON bodies; their views do.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings

from runs.shapes import Problem
from tools.redaction import bound_text

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[..., Awaitable[None]]

LONGEST_ADDRESS: Final = 8 * 1024
LONGEST_HEADERS: Final = 32 * 1024
MOST_HEADERS: Final = 100
ONCE: Final = {b"idempotency-key": "Idempotency-Key", b"authorization": "Authorization"}


class Limits:
    """An ASGI application: `inner`, for requests that are not too large."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        if (refusal := _judge(scope)) is not None:
            return await _refuse(send, *refusal, path=scope["path"])
        body = _Body(receive, send, scope)
        await self._inner(scope, body.receive, body.send)


class _Body:
    """The two ends of one request, until its body proves too large.

    An answer that does not wait for the rest of a body ends the connection, or the server would
    read on for nothing.
    """

    def __init__(self, receive: Receive, send: Send, scope: Scope) -> None:
        self._receive, self._send, self._path = receive, send, scope["path"]
        self._read = 0
        self._is_coming = any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in scope["headers"]
        )
        self._has_begun = self._is_over = False

    async def receive(self) -> Message:
        if self._is_over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._is_coming = bool(message.get("more_body"))
        self._read += len(message.get("body", b""))
        if self._read <= largest_body():
            return message
        self._is_over = True
        if not self._has_begun:
            await _refuse(self._send, *_too_large(), path=self._path)
        # To whoever reads, it looks as if the caller had gone.
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._is_over:
            return
        self._has_begun = True
        if self._is_coming and message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (b"connection", b"close")]
            message = {**message, "headers": headers}
        await self._send(message)


def largest_body() -> int:
    """Bytes of the largest body that any door takes."""
    return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


def _judge(scope: Scope) -> tuple[HTTPStatus, str, str, str] | None:
    """Status, what is wrong, why and what to do; None where nothing is."""
    address = len(scope.get("raw_path") or scope["path"].encode()) + len(scope["query_string"])
    if address > LONGEST_ADDRESS:
        return (
            HTTPStatus.REQUEST_URI_TOO_LONG,
            "address",
            f"The address is longer than {LONGEST_ADDRESS} bytes.",
            "Send what is long in a body.",
        )
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    size = sum(len(name) + len(value) for name, value in headers)
    if size > LONGEST_HEADERS or len(headers) > MOST_HEADERS:
        return (
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers",
            f"There are more than {MOST_HEADERS} headers, or more than {LONGEST_HEADERS} bytes.",
            "Send fewer and shorter ones.",
        )
    names = [name for name, _ in headers]
    for name, shown in ONCE.items():
        if names.count(name) > 1:
            return (
                HTTPStatus.BAD_REQUEST,
                shown,
                f"{shown} stands in more than one header.",
                "Send it once.",
            )
    said = dict(headers).get(b"content-length", b"")
    if said.isdigit() and (len(said) > 18 or int(said) > largest_body()):
        return _too_large()
    return None


def _too_large() -> tuple[HTTPStatus, str, str, str]:
    return (
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body",
        f"The body is larger than {largest_body()} bytes.",
        "Store the rest elsewhere and refer to it.",
    )


async def _refuse(
    send: Send, status: HTTPStatus, what: str, detail: str, fix: str, *, path: str
) -> None:
    kind, title = "too-large", f"The {what} {'are' if what == 'headers' else 'is'} too large"
    if status == HTTPStatus.BAD_REQUEST:
        kind, title = "invalid-input", "A value is not possible"
    problem = Problem(
        type=f"urn:agentops:problem:{kind}",
        title=title,
        status=status,
        detail=detail,
        instance=bound_text(path, 500),
        field=what,
        fix=fix,
    )
    said = problem.model_dump_json(exclude_none=True).encode()
    headers = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(said)),
        # What is left of the request is not read.
        "Connection": "close",
    }
    named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": named})
    await send({"type": "http.response.body", "body": said})
