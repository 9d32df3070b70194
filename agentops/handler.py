"""Django under ASGI, with each request handled in one thread.

Django's own handler goes to a thread and back for every piece that is not asynchronous: each
middleware, each signal. Everything here is synchronous, so a request goes there once, and the
thread stays, with its database wrapper and all else that is kept per thread.

Guarantees: a request is answered by one thread, whole; as many are handled at a time as may wait
for something and some more, and the others after them.

Does not stream: an answer is sent once it is complete.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.http import HttpResponseBase
from django.urls import set_script_prefix

from runs.gateway.waiting import MOST_WAITING

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Whoever waits holds a thread; these are for the others.
MOST_AT_WORK: Final = 32


class ThreadedHandler(ASGIHandler):
    """An ASGI application for HTTP requests alone."""

    def __init__(self) -> None:
        BaseHandler.__init__(self)
        self.load_middleware(is_async=False)
        self._threads = ThreadPoolExecutor(
            max_workers=MOST_WAITING + MOST_AT_WORK, thread_name_prefix="request"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        loop = asyncio.get_running_loop()
        head, content = await loop.run_in_executor(self._threads, self._answer, scope, body)
        await send(head)
        await send({"type": "http.response.body", "body": content})

    def _answer(self, scope: Scope, body: Any) -> tuple[dict[str, Any], bytes]:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refusal = self.create_request(scope, body)
        response = self.get_response(request) if request is not None else refusal
        assert response is not None, "one of the two is made"
        try:
            content = b"".join(response)
            return _head_of(response), content
        finally:
            # Tells Django that the request is over, which gives its connection back.
            response.close()
            body.close()


def _head_of(response: HttpResponseBase) -> dict[str, Any]:
    headers = [
        *((name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()),
        *(
            (b"Set-Cookie", cookie.OutputString().encode("latin-1"))
            for cookie in response.cookies.values()
        ),
    ]
    return {"type": "http.response.start", "status": response.status_code, "headers": headers}
