"""Calling tools through the gateway, with and without async.

Guarantees: `operation` has a tool called once per key, however often and from however many
processes it is called; it comes back with what is known, or raises one of `errors`.

Does not invent keys: one that is new after a crash names a new effect. `guarded` and the modules
for frameworks make them from what stays the same.
"""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from agentops.client import requests
from agentops.client.requests import Answer, Pause, Send, Steps, T
from agentops.client.results import Operation

API: Final = "/api/v1/"
PATIENCE: Final = 60.0
MOST_TO_CONNECT: Final = 5.0


class Client:
    """The gateway at `url`, for whoever holds `token`.

    `patience` is how many seconds it is put up with that nobody answers. Safe to share between
    threads.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float = PATIENCE,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(transport=transport, **_options(url, token))
        self._patience = patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def operation(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        run: str | None = None,
        thread: str | None = None,
        step: int | None = None,
        action: str | None = None,
        agent: str | None = None,
        rationale: str = "",
        wait: float | None = None,
    ) -> Operation:
        """Have a tool called once, and say what became of it.

        `key` names the call: the same one for the same call, also after a crash. `thread` is your
        own name of a conversation or job, or `run` the id of a run; `step` and `action` name the
        call within it, whatever key it comes under. `rationale` is shown to whoever has to sign.
        `wait` is how many seconds to wait for it to be settled; without it until it is settled or
        known to take long. Raises one of `errors`, or ValueError for what cannot be sent.
        """
        body = {
            "tool": tool,
            "arguments": dict(arguments),
            "run": run,
            "thread": thread,
            "step": step,
            "action": action,
            "agent": agent,
            "rationale": rationale,
        }
        return self._go(requests.call(body, key=key, wait=wait, patience=self._patience))

    def look(self, operation_id: str, *, wait: float = 0.0) -> Operation:
        """What is known of an operation; waits so many seconds for it to be settled."""
        return self._go(requests.look(operation_id, wait=wait, patience=self._patience))

    def finish(self, run: str, *, result: Any = None, error: str = "") -> None:
        """Say that a run has reached its goal, or with `error` why it will not."""
        self._go(requests.finish(run, result=result, error=error, patience=self._patience))

    def _go(self, steps: Steps[T]) -> T:
        answer: Answer = None
        while True:
            try:
                todo = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = None
            match todo:
                case Pause(seconds):
                    time.sleep(seconds)
                case Send():
                    try:
                        answer = self._http.request(**_request(todo))
                    except httpx2.RequestError as error:
                        answer = error


class AsyncClient:
    """`Client`, for programs with an event loop."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        patience: float = PATIENCE,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(transport=transport, **_options(url, token))
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def operation(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        key: str,
        run: str | None = None,
        thread: str | None = None,
        step: int | None = None,
        action: str | None = None,
        agent: str | None = None,
        rationale: str = "",
        wait: float | None = None,
    ) -> Operation:
        """See `Client.operation`."""
        body = {
            "tool": tool,
            "arguments": dict(arguments),
            "run": run,
            "thread": thread,
            "step": step,
            "action": action,
            "agent": agent,
            "rationale": rationale,
        }
        return await self._go(requests.call(body, key=key, wait=wait, patience=self._patience))

    async def look(self, operation_id: str, *, wait: float = 0.0) -> Operation:
        """See `Client.look`."""
        return await self._go(requests.look(operation_id, wait=wait, patience=self._patience))

    async def finish(self, run: str, *, result: Any = None, error: str = "") -> None:
        """See `Client.finish`."""
        await self._go(requests.finish(run, result=result, error=error, patience=self._patience))

    async def _go(self, steps: Steps[T]) -> T:
        answer: Answer = None
        while True:
            try:
                todo = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = None
            match todo:
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Send():
                    try:
                        answer = await self._http.request(**_request(todo))
                    except httpx2.RequestError as error:
                        answer = error


def _options(url: str, token: str) -> dict[str, Any]:
    address = httpx2.URL(url)
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f"url: {url!r:.200} is no address; give one such as https://gateway:8000/")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("token: it is none; `manage.py create_token` makes one")
    path = address.path.rstrip("/")
    base = address if path.endswith(API.rstrip("/")) else address.copy_with(path=f"{path}{API}")
    return {"base_url": base, "headers": {"Authorization": f"Token {token}"}}


def _request(send: Send) -> dict[str, Any]:
    headers = dict(send.headers)
    if send.content is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": send.method,
        "url": send.path,
        "params": dict(send.params),
        "headers": headers,
        "content": send.content,
        "timeout": httpx2.Timeout(send.seconds, connect=MOST_TO_CONNECT),
    }
