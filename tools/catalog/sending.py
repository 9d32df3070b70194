"""One HTTP request of a ready-made tool, and its whole answer.

Guarantees: the request leaves at most once, and does not begin to leave after the call's
deadline, even if the process stood still in between; no redirect is followed, nothing is
retried, and no proxy or login is taken from the environment; the answer is read to its end, or
an error says why not.
Does not judge an answer: what a status means is for the provider's declaration to say.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from tools.call import Call
from tools.errors import DeadlinePassed, NotSent, ToolError
from tools.threads import reset_after_fork
from tools.window import trace

MOST_BYTES = 1024 * 1024
# The kernel bounds how many calls are made at once; one that hangs must not take another's seat.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)


class UnreadableAnswer(ToolError):
    """The provider answered, and what it said cannot be used."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the answer cannot be used: {problem}")


@dataclass(frozen=True)
class Answer:
    """A complete answer, whatever its status."""

    status: int
    headers: httpx2.Headers
    body: bytes

    def json(self) -> Any:
        """The body's value, None for an empty one. Raises JSONDecodeError, UnicodeDecodeError."""
        return json.loads(self.body) if self.body else None


def send(
    call: Call,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | None = None,
) -> Answer:
    """The answer to one request. Takes its time-out from `call.remaining`, once.

    Raises what httpx2 raises, NotSent when the deadline passed before a byte could leave, and
    UnreadableAnswer.
    """
    with _client().stream(
        method,
        url,
        # A compressed answer could unfold into any size. What a provider compares under one key is
        # the request itself: the trace it belongs to, which each attempt names anew, is not of it.
        headers={"Accept-Encoding": "identity", **call.trace_headers, **headers},
        content=content,
        timeout=_time_left(call),
        extensions={"trace": _watch(call)},
    ) as response:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnreadableAnswer("it is compressed, although that was not asked for")
        return Answer(response.status_code, response.headers, _read(response, call))


def _time_left(call: Call) -> float:
    try:
        return call.remaining
    except DeadlinePassed as error:
        if call.timeouts_given:
            raise
        # There was no earlier request that could have used up the time.
        raise NotSent(error.reason) from error


def _read(response: httpx2.Response, call: Call) -> bytes:
    body = b""
    for piece in response.iter_raw():
        body += piece
        if len(body) > MOST_BYTES:
            raise UnreadableAnswer(f"it is longer than {MOST_BYTES} bytes")
        # The client's time-out starts anew with every piece.
        if call.seconds_left() <= 0:
            raise UnreadableAnswer("it had not come to its end at the deadline")
    return body


def _watch(call: Call) -> Callable[[str, Mapping[str, Any]], None]:
    """Notes when bytes leave, and lets none leave late.

    Connecting may use up the whole time-out, and a process may be stopped at any line: this is
    the last one before the socket.
    """
    note = trace(call)

    def watch(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".started") and call.seconds_left() <= 0:
            if event.endswith("send_request_headers.started"):
                raise NotSent("the deadline passed before the request could leave")
            if event.endswith("send_request_body.started"):
                raise DeadlinePassed(operation_id=call.operation_id, deadline=call.deadline)
        note(event, info)

    return watch


@cache
def _client() -> httpx2.Client:
    return httpx2.Client(
        transport=httpx2.HTTPTransport(retries=0, limits=_LIMITS),
        follow_redirects=False,
        trust_env=False,
    )


# A child must not write into its parent's connections.
reset_after_fork(_client.cache_clear)
