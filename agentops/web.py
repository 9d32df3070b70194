"""The web process as a whole: Django's pages and API, and what lives as long as the process.

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

from runs.gateway.driving import drivers

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Django types its own more narrowly.
Application = Callable[..., Awaitable[None]]


class Web:
    """An ASGI application: `django`, and the process's beginning and end around it."""

    def __init__(self, django: Application) -> None:
        self._django = django

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        await self._django(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        drivers.start(size=settings.AGENTOPS_GATEWAY_CONCURRENCY, on_declared_ended=_end_process)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await sync_to_async(drivers.stop, thread_sensitive=False)()
        await send({"type": "lifespan.shutdown.complete"})


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
