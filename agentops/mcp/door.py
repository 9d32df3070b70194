"""The door of `/mcp`: who may come in, and with how much.

Guarantees: a request from a host or an origin that `ALLOWED_HOSTS` does not name, without a known
token, too large, or not JSON, is refused here, with a status and a JSON-RPC error that say why;
no session is kept and none is offered.

Does not read what a request says beyond that.
"""

import io
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http.request import split_domain_port, validate_host
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request

from agentops.access import KEYWORD, TokenAuthentication
from agentops.mcp.server import ACTOR, BROKEN, Threads
from agentops.models import AuditEntry
from agentops.problems import describe
from agentops.telemetry.serving import within_trace
from runs.access import Actor
from runs.requests import MalformedJson, TooLarge, read_json

log = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PATHS: Final = frozenset({"/mcp", "/mcp/"})
BEARER: Final = "bearer"
# What stands around a call's arguments, which may be as large as any payload.
ENVELOPE_BYTES: Final = 64 * 1024
CHALLENGE: Final = 'Bearer realm="agentops"'


class Refused(Exception):
    """The request goes no further than the door."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        data: Any = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.data = status, message, code, data
        self.headers = headers or {}


class Door:
    """An ASGI application for the addresses in `PATHS`."""

    def __init__(self, *, manager: StreamableHTTPSessionManager, threads: Threads) -> None:
        self._manager = manager
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = ASGIRequest(dict(scope), io.BytesIO())
            _check_place(request)
            if request.method != "POST":
                # A stream that nothing would ever come on, or the end of a session never begun.
                raise Refused(405, "Send POST requests.", headers={"Allow": "POST"})
            actor = await self._threads.run(_find_actor, request)
            body = await _read(receive, scope)
        except Refused as refused:
            return await _refuse(send, refused)
        except Exception:
            log.exception("mcp_door_failed")
            return await _refuse(send, Refused(500, BROKEN, code=INTERNAL_ERROR))
        entered = {**scope, ACTOR: actor}
        with within_trace(actor.traceparent):
            await self._manager.handle_request(entered, _replay(body, receive), send)


def _check_place(request: ASGIRequest) -> None:
    """Against pages of other sites, and against names that were made to lead here."""
    try:
        request.get_host()
    except DisallowedHost:
        raise Refused(400, "The Host header is none of AGENTOPS_ALLOWED_HOSTS.") from None
    origin = request.META.get("HTTP_ORIGIN")
    if origin is not None and not _is_allowed(origin):
        raise Refused(403, "The Origin header is none of AGENTOPS_ALLOWED_HOSTS.")


def _is_allowed(origin: str) -> bool:
    try:
        domain, _ = split_domain_port(urlsplit(origin).netloc)
    except ValueError:
        return False
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def _find_actor(request: ASGIRequest) -> Actor:
    keyword, _, secret = request.META.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    if keyword.lower() == BEARER:
        request.META["HTTP_AUTHORIZATION"] = f"{KEYWORD} {secret}"
    try:
        found = TokenAuthentication().authenticate(Request(request))
        if found is None:
            raise NotAuthenticated
    except Exception as error:
        described = describe(error)
        if described is None:
            raise
        problem, headers = described
        if problem.status == 401:
            headers["WWW-Authenticate"] = CHALLENGE
        raise Refused(
            problem.status,
            problem.detail,
            data=problem.model_dump(mode="json", exclude_none=True),
            headers=headers,
        ) from error
    return replace(found[1], door=AuditEntry.Door.MCP)


async def _read(receive: Receive, scope: Scope) -> bytes:
    """The whole body, of which nothing more is read than is allowed."""
    limit = settings.AGENTOPS_PAYLOAD_BYTES + ENVELOPE_BYTES
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "The request broke off.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise Refused(413, str(TooLarge(field="body", limit=limit)))
    try:
        read_json(bytes(body), field="body")
    except MalformedJson as error:
        raise Refused(400, str(error), code=PARSE_ERROR) from error
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return messages.pop() if messages else await receive()

    return again


async def _refuse(send: Send, refused: Refused) -> None:
    error: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.data is not None:
        error["data"] = refused.data
    said = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(said)),
        **refused.headers,
    }
    await send(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": said})
