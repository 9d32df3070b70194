"""The web process as a whole: Django's pages and API, the MCP server beside them, and what lives as
long as the process.

Guarantees: the gateway's threads are there before the first request and end after the last one;
what they had under way is finished or left to the workers, and the process's end is reported.

Does not answer requests itself.
"""

import os
import signal
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings

from agentops.mcp.door import PATHS, Door
from agentops.mcp.server import Threads, serving
from runs.gateway.driving import drivers

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Django types its own more narrowly.
Application = Callable[..., Awaitable[None]]


class Web:
    """An ASGI application: `django`, `/mcp`, and the process's beginning and end around them."""

    def __init__(self, django: Application) -> None:
        self._django = django
        self._mcp: Door | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        if scope["type"] == "http" and scope["path"] in PATHS and self._mcp is not None:
            return await self._mcp(scope, receive, send)
        await self._django(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        drivers.start(size=settings.AGENTOPS_GATEWAY_CONCURRENCY, on_declared_ended=_end_process)
        threads = Threads()
        async with serving(threads) as manager:
            self._mcp = Door(manager=manager, threads=threads)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await sync_to_async(drivers.stop, thread_sensitive=False)()
        await send({"type": "lifespan.shutdown.complete"})


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
