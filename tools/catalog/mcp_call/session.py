"""One session with an MCP server for one call: connect, look at the tool, call it once, end.

Guarantees: whatever fails before the call's first byte leaves is NotSent; whatever fails
afterwards is Lost, except the server's own answer, which is kept even if the session ends badly;
the session ends with the call.
Does not answer questions that a server puts back (sampling, elicitation): it is told that we
take none, and a call that needs them is Lost.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import httpx2

from tools.call import Call
from tools.catalog.extras import need
from tools.catalog.mcp_call.gate import Gate, GatedTransport, Shut
from tools.catalog.mcp_call.server import HttpServer, McpServer
from tools.errors import NotSent, ToolError
from tools.outcome import describe
from tools.redaction import bound_text

MOST_PAGES: Final = 50
MOST_WORDS: Final = 500


class Lost(ToolError):
    """The call left, and what came back says nothing about what it did."""

    def __init__(self, reason: str, *, code: int | None = None) -> None:
        self.code = code
        super().__init__(bound_text(reason, MOST_WORDS))


async def call_once(
    call: Call,
    *,
    server: McpServer,
    tool: str,
    arguments: Mapping[str, Any],
    meta: Mapping[str, Any],
    check: Callable[[Any], None] | None = None,
) -> tuple[Any, Any]:
    """(the tool's listing, its `CallToolResult`), of the SDK's types. Raises NotSent, Lost.

    `check` is given the listing before anything leaves, and may raise NotSent.
    """
    need("mcp", extra="mcp")
    gate = Gate(call)
    answers: list[tuple[Any, Any]] = []
    try:
        with anyio.fail_after(max(0.0, call.seconds_left())):
            async with _opened(server, gate, call.seconds_left()) as session:
                listing = await _find_listing(session, tool)
                if check is not None:
                    check(listing)
                if not isinstance(server, HttpServer):
                    gate.open()
                answers.append((listing, await _send(session, tool, arguments, meta, call)))
    except Exception as error:  # noqa: BLE001 (read, never lost)
        if not answers:
            raise _read_failure(error, gate) from None
    finally:
        if gate.opened:
            call.window.mark("closed")
    return answers[0]


async def list_tools(server: McpServer, *, seconds: float) -> list[Any]:
    """The server's listings of all its tools, of the SDK's type; calls none. Raises NotSent."""
    need("mcp", extra="mcp")
    listings: list[Any] = []
    try:
        with anyio.fail_after(seconds):
            async with _opened(server, Shut(), seconds) as session:
                async for listed in _listings(session):
                    listings.append(listed)
                return listings
    except Exception as error:  # noqa: BLE001 (read, never lost)
        first = _first(error)
        raise (first if isinstance(first, NotSent) else NotSent(_words(first))) from None


@asynccontextmanager
async def _opened(server: McpServer, gate: Gate, seconds: float) -> AsyncIterator[Any]:
    """A session that was initialised."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    async with AsyncExitStack() as stack:
        if isinstance(server, HttpServer):
            http = httpx2.AsyncClient(
                transport=GatedTransport(gate),
                headers=server.headers(),
                timeout=max(0.0, seconds),
                # The library follows redirects itself, as many as the client would.
                max_redirects=0,
                trust_env=False,
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(server.url(), http_client=http)
        else:
            command, *arguments = server.command
            parameters = StdioServerParameters(
                command=command, args=arguments, env=server.given(), cwd=server.folder
            )
            # Not `sys.stderr`: a worker's may be no real file.
            errors = stack.enter_context(os.fdopen(os.dup(2), "w"))
            transport = stdio_client(parameters, errlog=errors)
        client = await stack.enter_async_context(Client(transport, cache=None))
        yield client.session


async def _find_listing(session: Any, tool: str) -> Any:
    """The server's own description of the tool. Raises NotSent.

    Newer servers refuse a call of a tool that this session has not listed.
    """
    async for listed in _listings(session):
        if listed.name == tool:
            return listed
    raise NotSent(f"the server lists no tool {tool}")


async def _listings(session: Any) -> AsyncIterator[Any]:
    from mcp_types import PaginatedRequestParams

    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        for listed in page.tools:
            yield listed
        cursor = page.next_cursor
        if cursor is None:
            break


async def _send(
    session: Any, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], call: Call
) -> Any:
    """The library's own `call_tool` lists, compares schemas and sends again: this does not."""
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

    given: Any = dict(meta)
    parameters = CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=given)
    return await session.send_request(
        CallToolRequest(params=parameters),
        CallToolResult,
        request_read_timeout_seconds=max(0.0, call.seconds_left()),
    )


def _read_failure(error: Exception, gate: Gate) -> NotSent | Lost:
    from mcp import MCPError

    first = _first(error)
    if not gate.opened:
        return first if isinstance(first, NotSent) else NotSent(_words(first))
    code = first.code if isinstance(first, MCPError) else None
    return Lost(_words(first), code=code)


def _first(error: BaseException) -> BaseException:
    """What failed first: the library's tasks fail in groups of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _words(error: BaseException) -> str:
    return bound_text(describe(error), MOST_WORDS)
