"""The web process as a whole: Django's pages and API, the MCP server beside them, and what lives as
long as the process.

Guarantees: the gateway's threads are there before the first request and end after the last one;
what they had under way is finished or left to the workers, and the process's end is reported. From
the signal to end on no run is begun here, and who waits is answered before the server gives up.

Does not answer requests itself.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from types import FrameType
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.conf import settings

from agentops import logs
from agentops.mcp.door import PATHS, Door
from agentops.mcp.server import Threads, serving
from agentops.metrics.flushing import flusher
from agentops.telemetry import exporting
from runs import engine
from runs.gateway.driving import drivers
from runs.gateway.waiting import board

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# After the signal to end, calls under way have so long to be answered with what they come to.
# Together with reading that it is less than the server's own patience (`processes.py`).
LAST_ANSWERS_SECONDS: Final = 2.0
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
        flusher.start()
        drivers.start(size=settings.AGENTOPS_GATEWAY_CONCURRENCY, on_declared_ended=_end_process)
        threads = Threads()
        async with serving(threads) as manager:
            self._mcp = Door(manager=manager, threads=threads)
            _hear_of_end(asyncio.get_running_loop())
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await sync_to_async(drivers.stop, thread_sensitive=False)()
        await sync_to_async(exporting.stop, thread_sensitive=False)()
        await sync_to_async(flusher.stop, thread_sensitive=False)()
        # The server ends the process by the signal that ended it.
        await sync_to_async(logs.flush, thread_sensitive=False)()
        await send({"type": "lifespan.shutdown.complete"})


def _hear_of_end(loop: asyncio.AbstractEventLoop) -> None:
    """Begin to end with the signal itself: the server tells the application only once the last
    request is over, and whoever waits would be what it waits for."""
    if threading.current_thread() is not threading.main_thread():
        return

    def begin_end() -> None:
        engine.drain()
        loop.call_later(LAST_ANSWERS_SECONDS, board.close)

    for number in (signal.SIGINT, signal.SIGTERM):
        server = signal.getsignal(number)
        if callable(server):
            signal.signal(number, _chained(server, lambda: loop.call_soon_threadsafe(begin_end)))


def _chained(
    server: Callable[[int, FrameType | None], Any], first: Callable[[], object]
) -> Callable[[int, FrameType | None], None]:
    def hear(number: int, frame: FrameType | None) -> None:
        first()
        server(number, frame)

    return hear


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
