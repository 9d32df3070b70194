"""A provider that takes its time, as a process of its own.

uvicorn tests.bench.provider:answer
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

# Of a request, beside what HTTP costs: what is measured is what comes on top.
SECONDS: Final = 0.01
BODY: Final = b'{"id": "re_1"}'
HEADERS: Final = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
]

Message = MutableMapping[str, Any]


async def answer(
    scope: Message,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """Every request in the same way."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
