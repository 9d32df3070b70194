"""A server that speaks the wire formats of OpenAI and Anthropic over a real socket, by a script.

Guarantees: each request takes the next turn of the script, or what `otherwise` makes of it, and
is in the journal before its last byte leaves; a fault is one on the wire.

The formats themselves are those of `llmock`; what is added here are the faults that a client
which does not stream can meet. Does not understand what it is asked.

    with LlmServer() as server:
        server.script(call("pay", amount=5), fail(429, retry_after=7), say("done"))
        environment |= server.env()
"""

import json
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Self

import uvicorn
from llmock.journal import RequestRecord
from llmock.main import create_app
from llmock.scenarios import Delay, Fail, Plan, Reply, RequestInfo, ToolCall

Message = MutableMapping[str, Any]
Body = dict[str, Any]
# Where each format is served.
OPENAI, ANTHROPIC = "/v1", "/anthropic"
KEY = "a key of nobody"

_current: ContextVar["Turn"] = ContextVar("turn")


@dataclass(frozen=True)
class Turn:
    """What one request is answered with. `edit` gets the JSON that would be sent."""

    plan: Plan = field(default_factory=Plan)
    edit: Callable[[Body], Body] = lambda body: body
    # Of the bytes that would be sent, how many are, before the connection is reset.
    reset_after: int | None = None


def call(tool: str, /, **arguments: Any) -> Turn:
    return calls((tool, arguments))


def calls(*given: tuple[str, dict[str, Any]], text: str = "") -> Turn:
    """Several calls at once, and perhaps words beside them."""
    wanted = tuple(ToolCall(name, arguments) for name, arguments in given)
    return Turn(Plan(reply=Reply(text=text or None, tool_calls=wanted)))


def say(text: str, *, finish: str | None = None) -> Turn:
    """`finish` as OpenAI names it: "stop", "length" or "content_filter"."""
    return Turn(Plan(reply=Reply(text=text or " ", finish_reason=finish)))


def fail(
    status: int, *, retry_after: float | None = None, code: str | None = None, message: str = ""
) -> Turn:
    """An error of the provider, in its own form."""
    failure = Fail(status, retry_after=retry_after, code=code, message=message or None)
    return Turn(Plan(fail=failure))


def too_long() -> Turn:
    """What was asked is more than the llm can read."""
    words = "prompt is too long: 212000 tokens > 200000 maximum"
    return fail(400, code="context_length_exceeded", message=words)


def refuse() -> Turn:
    """A filter held the answer back, as each format says it."""
    return edited(say("I", finish="content_filter"), _hold_back)


def slow(turn: Turn, *, seconds: float) -> Turn:
    return replace(turn, plan=replace(turn.plan, delay=Delay(seconds)))


def reset(turn: Turn | None = None, *, after: int = 0) -> Turn:
    """The connection is reset when `after` bytes of the answer were sent, headers apart."""
    return replace(turn or say("lost"), reset_after=after)


def under_one_id(turn: Turn) -> Turn:
    """Every call of the answer has the same id, as some servers give them."""
    return replace(turn, edit=lambda body: _edit_calls(body, call_id="call_0"))


def malformed(turn: Turn) -> Turn:
    """The arguments of every call are cut off in the middle."""
    return replace(turn, edit=lambda body: _edit_calls(body, arguments='{"amount": 12'))


def edited(turn: Turn, edit: Callable[[Body], Body]) -> Turn:
    return replace(turn, edit=edit)


class LlmServer:
    """Listens on a free port of this machine, in a thread, until it is closed."""

    def __init__(self) -> None:
        self._app = create_app()
        self._state = self._app.state.llmock
        self._turns: deque[Turn] = deque()
        # What a request gets that finds the script empty, by what it says.
        self.otherwise: Callable[[Body], Turn] = lambda body: say("Nothing is left to say.")
        self._state.scenarios = self
        self._socket = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._serve,
            log_level="critical",
            lifespan="off",
            ws="none",
            interface="asgi3",
            timeout_keep_alive=60,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def env(self) -> dict[str, str]:
        """What points a process at this server."""
        return {
            "OPENAI_BASE_URL": self.url + OPENAI,
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url + ANTHROPIC,
            "ANTHROPIC_API_KEY": KEY,
        }

    def script(self, *turns: Turn) -> None:
        """What the next requests are answered with, in this order."""
        self._turns.extend(turns)

    @property
    def requests(self) -> list[RequestRecord]:
        """Every request so far that was answered or given up, oldest first."""
        return list(self._state.journal.records(wait=5))

    @property
    def bodies(self) -> list[Body]:
        return [record.body for record in self.requests]

    @property
    def is_script_over(self) -> bool:
        return not self._turns

    def clear(self) -> None:
        """Forget the script and the journal."""
        self._turns.clear()
        self._state.journal.clear()
        self.otherwise = lambda body: say("Nothing is left to say.")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()

    # llmock asks these of what it takes its scenarios from.

    def plan_for(self, info: RequestInfo) -> Plan:
        plan = _current.get().plan
        if plan.fail is not None and info.provider == "anthropic":
            # Its errors have types that follow from the status, and no codes.
            return replace(plan, fail=replace(plan.fail, code=None))
        return plan

    # Around llmock.

    async def _serve(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        asked = await _read(receive)
        turn = self._turns.popleft() if self._turns else self.otherwise(json.loads(asked))
        _current.set(turn)
        sent = _Sent()
        handed = iter([{"type": "http.request", "body": asked, "more_body": False}])

        async def hand_on() -> Message:
            return next(handed, None) or await receive()

        async def keep(message: Message) -> None:
            sent.add(message)

        await self._app(scope, hand_on, keep)
        body = sent.body
        if sent.status == 200:
            body = json.dumps(turn.edit(json.loads(body))).encode()
        headers = [pair for pair in sent.headers if pair[0] != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        if turn.reset_after is None or turn.reset_after > 0:
            await send({"type": "http.response.start", "status": sent.status, "headers": headers})
            part = body if turn.reset_after is None else body[: turn.reset_after]
            more = turn.reset_after is not None
            await send({"type": "http.response.body", "body": part, "more_body": more})
        if turn.reset_after is not None:
            # uvicorn's own: a protocol of applications has no word for a reset.
            send.__self__.transport.abort()  # type: ignore[attr-defined]


@dataclass
class _Sent:
    """What the application said, held back until it is whole."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def add(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")


async def _read(receive: Callable[[], Awaitable[Message]]) -> bytes:
    read = b""
    while True:
        message = await receive()
        read += message.get("body", b"")
        if not message.get("more_body"):
            return read


def _hold_back(body: Body) -> Body:
    if body.get("object") == "response":
        return body | {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    return body


def _edit_calls(body: Body, *, call_id: str = "", arguments: str = "") -> Body:
    """With another id, or other arguments, in every call, wherever this format has them."""
    for item in body.get("output", []):
        if item["type"] == "function_call":
            item["call_id"] = call_id or item["call_id"]
            item["arguments"] = arguments or item["arguments"]
    for choice in body.get("choices", []):
        for made in choice["message"].get("tool_calls") or []:
            made["id"] = call_id or made["id"]
            made["function"]["arguments"] = arguments or made["function"]["arguments"]
    for block in body.get("content", []):
        if block["type"] == "tool_use":
            block["id"] = call_id or block["id"]
            block["input"] = arguments or block["input"]
    return body
