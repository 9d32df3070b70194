"""The server of the official SDK, and what it answers with.

Guarantees: it keeps nothing between two requests, so any number of web processes answer for one
another; a client that goes away ends its own waiting and nothing else; an error that nobody
foresaw is said to be one, without what it looked like inside.

Does not authenticate: `door` has put the actor into the request's scope.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, ParamSpec, TypeVar

import anyio
import anyio.to_thread
import mcp_types as types
import structlog
from django.db import connection
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from agentops.mcp.calling import call_tool
from agentops.mcp.listing import list_tools, name_of_look
from agentops.telemetry.serving import current_context
from runs.access import Actor
from runs.gateway.waiting import MOST_WAITING

log = structlog.get_logger(__name__)

P = ParamSpec("P")
Result = TypeVar("Result")
Context = ServerRequestContext[Any, Any]

ACTOR: Final = "agentops.actor"
# Whoever waits holds a thread, and no connection; the rest is for requests that do not wait.
MOST_THREADS: Final = MOST_WAITING + 64
VERSION: Final = "1"
BROKEN: Final = "A bug, or something that broke; the log has the details."


class Threads:
    """Where what waits for the database or for an outcome is done, off the event loop."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(MOST_THREADS)

    async def run(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The function's value. Whoever stops waiting leaves it to its end."""

        def work() -> Result:
            try:
                return function(*args, **kwargs)
            finally:
                connection.close()

        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)


@asynccontextmanager
async def serving(threads: Threads) -> AsyncIterator[StreamableHTTPSessionManager]:
    """The SDK's side of the door, for the time of the block."""
    manager = StreamableHTTPSessionManager(
        app=_build(threads),
        stateless=True,
        # Nothing is said before the answer, and a stream would be cut when the process is told to
        # end, which lets answers go out.
        json_response=True,
        max_request_body_size=2**31,  # the door has measured it
    )
    async with manager.run():
        yield manager


def _build(threads: Threads) -> Server[Any]:
    async def on_list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise MCPError(code=INVALID_PARAMS, message="cursor: there is one page; leave it out")
        return types.ListToolsResult(tools=await _guarded(threads, list_tools, _actor(context)))

    async def on_call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await _guarded(
            threads,
            call_tool,
            actor=_actor(context),
            name=params.name,
            arguments=params.arguments or {},
            meta=(context.params or {}).get("_meta"),
        )

    return Server(
        "agentops",
        version=VERSION,
        title="agentops",
        instructions=_instructions(),
        # No schema of ours takes an argument from a header.
        get_tool_input_schema=lambda _name: None,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _instructions() -> str:
    return (
        "Tools that change the outside world, each carried out at most once per intended action. "
        "Every answer has a status. COMMITTED: done, see result. AWAITING_APPROVAL, RUNNING, "
        f"PREPARED or UNKNOWN: not settled; do not call again, look later with {name_of_look()}. "
        "REJECTED, CANCELLED or REFUSED: nothing happened, see error, problem and next. The same "
        "call again is answered with what is recorded (replayed: true); to repeat an action on "
        "purpose, give a new idempotency_key."
    )


async def _guarded(
    threads: Threads, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs
) -> Result:
    try:
        return await threads.run(function, *args, **kwargs)
    except MCPError:
        raise
    except Exception as error:
        log.exception("mcp_request_failed")
        raise MCPError(code=INTERNAL_ERROR, message=BROKEN) from error


def _actor(context: Context) -> Actor:
    assert context.request is not None, "it came by HTTP"
    actor = context.request.scope[ACTOR]
    assert isinstance(actor, Actor), "the door lets nobody in without one"
    # The library reads what a client says of its trace beside the call, and opens a span below it.
    return replace(actor, traceparent=current_context() or actor.traceparent)
